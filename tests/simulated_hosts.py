"""Several hosts on one machine: network namespaces, joined by a bridge, with processes in namespaces of their own.

A process of one host sees neither the processes nor the abstract unix sockets of another. Root and Linux's commands
`ip` and `unshare` are required. The namespaces and their processes disappear with `close`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from bowstring.errors import UnmetRequirementError
from bowstring.memory.closable import Closable, call_on_error

_NETWORK = "10.213.0"
_BRIDGE = "bridge0"
_LISTENING = "0A"
"""The state of a listening socket in /proc/net/tcp."""
_START_SCRIPT = 'hostname "$0" && exec "$@"'


class SimulatedHosts(Closable):
    """Hosts with these names; the bridge belongs to the first. Raises `UnmetRequirementError`."""

    def __init__(self, *names: str) -> None:
        self._namespaces = {name: f"bowstring-{os.getpid()}-{name}" for name in names}
        self.addresses = {name: f"{_NETWORK}.{number}" for number, name in enumerate(names, 1)}
        """The IP address of each host."""
        self._processes: list[subprocess.Popen[str]] = []
        for command in ("ip", "unshare"):
            if shutil.which(command) is None:
                raise UnmetRequirementError(f"several hosts on one machine: the command {command} is required")
        first, *others = names
        with call_on_error(self.close):
            for namespace in self._namespaces.values():
                _run("ip", "netns", "add", namespace)
                _run("ip", "-n", namespace, "link", "set", "lo", "up")
            bridge_namespace = self._namespaces[first]
            _run("ip", "-n", bridge_namespace, "link", "add", _BRIDGE, "type", "bridge")
            for name in others:
                link = ["link", "add", name, "netns", bridge_namespace, "type", "veth", "peer", "name", "eth0"]
                _run("ip", *link, "netns", self._namespaces[name])
                _run("ip", "-n", bridge_namespace, "link", "set", name, "master", _BRIDGE, "up")
                self._configure(name, "eth0")
            self._configure(first, _BRIDGE)

    def namespace(self, name: str) -> str:
        """The name of a host's network namespace."""
        return self._namespaces[name]

    def start(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int | IO[str] = subprocess.DEVNULL,
    ) -> subprocess.Popen[str]:
        """Start a command on a host, with processes and mounts of its own, which end with it."""
        isolation = ["unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--uts"]
        process: subprocess.Popen[str] = subprocess.Popen(
            ["ip", "netns", "exec", self._namespaces[name], *isolation, "sh", "-c", _START_SCRIPT, name, *command],
            env=None if env is None else {**os.environ, **env},
            text=True,
            start_new_session=True,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        self._processes.append(process)
        return process

    def set_connected(self, name: str, is_connected: bool) -> None:
        """Pass packets to and from a host other than the first, or none."""
        state = "up" if is_connected else "down"
        _run("ip", "-n", next(iter(self._namespaces.values())), "link", "set", name, state)

    def process_ids(self, name: str) -> list[int]:
        """The processes of a host, by their IDs outside."""
        return [int(pid) for pid in _run("ip", "netns", "pids", self._namespaces[name]).split()]

    def is_listening(self, name: str, port: int) -> bool:
        """Whether a process of a host listens at a TCP port."""
        suffix = f":{port:04X}"
        for pid in self.process_ids(name)[:1]:
            for table in ("tcp", "tcp6"):
                lines = [line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
                if any(line[1].endswith(suffix) and line[3] == _LISTENING for line in lines):
                    return True
        return False

    def close(self) -> None:
        """Kill all processes, and remove the namespaces. Idempotent."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()
        for namespace in self._namespaces.values():
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)

    def _configure(self, name: str, device: str) -> None:
        namespace = self._namespaces[name]
        _run("ip", "-n", namespace, "address", "add", f"{self.addresses[name]}/24", "dev", device)
        _run("ip", "-n", namespace, "link", "set", device, "up")


def _run(*command: str) -> str:
    """Run a command, and return its output. Raises `UnmetRequirementError` if it fails."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        reason = process.stderr.strip() or f"exit code {process.returncode}"
        raise UnmetRequirementError(
            f"several hosts on one machine need root and namespaces: {' '.join(command)}: {reason}"
        )
    return process.stdout
