"""`bowstring doctor`: check this machine and environment for what Bowstring uses."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import click
from packaging.requirements import Requirement
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from bowstring import __version__
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_json
from bowstring.cli.options import json_option
from bowstring.cli.terminal_tables import borderless_table, open_console
from bowstring.display.printable_text import format_size, to_printable
from bowstring.errors import BowstringError, format_install_command
from bowstring.memory.available_memory import read_memory_limits
from bowstring.memory.device import load_cuda_driver
from bowstring.memory.region import Region
from bowstring.memory.unnamed_file import open_unnamed_file
from bowstring.sharing.agent.memory_budget import find_spill_folders
from bowstring.spark.runtime.java_runtime import find_java

Status = Literal["ok", "missing", "failed"]

_STYLES: dict[Status, str] = {"ok": "green", "missing": "yellow", "failed": "red"}
# The defaults of Linux (ulimit -n, vm.max_map_count): a lower limit was set on purpose.
_MIN_DESCRIPTORS = 1024
_MIN_MAPPINGS = 65_530
_MAP_COUNT_FILE = Path("/proc/sys/vm/max_map_count")
_SHM_FOLDER = "/dev/shm"
# Containers have 64 MiB by default, which is too little for the workers of a DataLoader.
_MIN_SHM_BYTES = 1 << 28
# On narrower terminals the checks are lines instead.
_MIN_TABLE_WIDTH = 80
_NETWORKS = "bowstring-networks"
_DEVELOPMENT_EXTRAS = frozenset(("dev", "docs", "fuzz", "test"))


@dataclass(frozen=True, slots=True)
class Check:
    """The state of one part of the environment: `missing` disables a feature, `failed` most of them."""

    name: str
    status: Status
    detail: str


@click.command(
    epilog=examples(
        "bowstring doctor",
        "bowstring doctor --json",
    )
)
@json_option("Write the checks as JSON.")
def doctor(*, as_json: bool) -> int:
    """Check Python, memory, limits, Java, GPUs and the packages of each extra.

    The exit status is 1 if a check failed. A missing package is not a failure: only some features need it.
    """
    checks = [check for function in _CHECKS for check in function()]
    if as_json:
        echo_json({"checks": [asdict(check) for check in checks]})
    else:
        with open_console() as console:
            _show_checks(console, checks)
    return int(any(check.status == "failed" for check in checks))


def _show_checks(console: Console, checks: Sequence[Check]) -> None:
    """Show the checks as a table, or with the details below the names if the terminal is narrow."""
    if console.width < _MIN_TABLE_WIDTH:
        for check in checks:
            console.print(Text.assemble(check.name, "  ", (check.status, _STYLES[check.status])))
            console.print(Padding(Text(to_printable(check.detail)), (0, 0, 0, 2)))
        return
    table = borderless_table(("check", False), ("status", False), ("", False), is_folded=True)
    for check in checks:
        table.add_row(check.name, Text(check.status, _STYLES[check.status]), Text(to_printable(check.detail)))
    table.pad_edge = False
    for column in table.columns[:2]:
        column.no_wrap = True
    console.print(table)


def _check_versions() -> Iterator[Check]:
    python = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    yield Check("bowstring", "ok", f"{__version__}, {Path(__file__).parent.parent}")
    yield Check("Python", "ok", python)
    yield Check("NumPy", "ok", metadata.version("numpy"))
    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    is_supported = platform.system() == "Linux" and sys.maxsize > 2**32
    yield Check("system", "ok" if is_supported else "failed", system if is_supported else f"{system}: not 64-bit Linux")


def _check_memory() -> Iterator[Check]:
    limits = ", ".join(
        f"{limit.name}: {format_size(limit.available_bytes)} of {format_size(limit.total_bytes)} available"
        for limit in read_memory_limits()
    )
    yield Check("memory", "ok", limits or "unknown")
    try:
        with Region.create_writer("doctor") as memory:
            memory.write(b"\0")
            memory.seal().close()
        yield Check("shared memory", "ok", "sealed memory files")
    except (BowstringError, OSError) as problem:
        yield Check("shared memory", "failed", str(problem))


def _check_folders() -> Iterator[Check]:
    """Where published data goes that does not fit into memory."""
    folders = find_spill_folders()
    try:
        descriptor, folder = open_unnamed_file(folders)
    except (BowstringError, OSError) as problem:
        yield Check("spill folder", "missing", str(problem))
        return
    os.close(descriptor)
    yield Check("spill folder", "ok", f"{folder}: {format_size(shutil.disk_usage(folder).free)} free")


def _check_shm() -> Iterator[Check]:
    """The folder of POSIX shared memory, which Bowstring does not use."""
    users = "PyTorch's workers and UCX need it"
    try:
        free_bytes = shutil.disk_usage(_SHM_FOLDER).free
    except OSError as problem:
        yield Check(_SHM_FOLDER, "missing", f"{problem.strerror}; {users}")
        return
    if not os.access(_SHM_FOLDER, os.W_OK):
        yield Check(_SHM_FOLDER, "missing", f"not writable; {users}")
        return
    is_low = free_bytes < _MIN_SHM_BYTES
    note = f"; {users}, mostly {format_size(_MIN_SHM_BYTES)} or more" if is_low else ""
    yield Check(_SHM_FOLDER, "missing" if is_low else "ok", f"{format_size(free_bytes)} free{note}")


def _check_limits() -> Iterator[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} (ulimit -n), at most {hard}"
    is_low = soft < _MIN_DESCRIPTORS
    yield Check("descriptors", "missing" if is_low else "ok", f"{text}; {_MIN_DESCRIPTORS} suffice" if is_low else text)
    try:
        mappings = int(_MAP_COUNT_FILE.read_text("ascii"))
    except (OSError, ValueError):
        return
    is_low = mappings < _MIN_MAPPINGS
    text = f"{mappings} (vm.max_map_count)" + (f"; {_MIN_MAPPINGS} suffice" if is_low else "")
    yield Check("memory mappings", "missing" if is_low else "ok", text)


def _check_java() -> Iterator[Check]:
    try:
        java = find_java()
        yield Check("Java", "ok", f"{java.version}, {java.home} (from {java.origin})")
    except BowstringError as problem:
        yield Check("Java", "missing", str(problem))


def _check_gpus() -> Iterator[Check]:
    try:
        count = load_cuda_driver().count_gpus()
        yield Check("GPUs", "ok" if count else "missing", str(count))
    except BowstringError as problem:
        yield Check("GPUs", "missing", str(problem))


def _check_extras() -> Iterator[Check]:
    """One check for each extra that users install, and for the networks."""
    yield from _check_extras_of("bowstring")
    try:
        yield Check(_NETWORKS, "ok", metadata.version(_NETWORKS))
    except metadata.PackageNotFoundError:
        yield Check(_NETWORKS, "missing", f"UCX, libfabric, CUDA, Flight; {format_install_command('', _NETWORKS)}")
    else:
        yield from _check_extras_of(_NETWORKS)


def _check_extras_of(name: str) -> Iterator[Check]:
    distribution = metadata.distribution(name)
    requirements = [Requirement(text) for text in distribution.requires or ()]
    for extra in sorted(set(distribution.metadata.get_all("Provides-Extra") or ()) - _DEVELOPMENT_EXTRAS):
        packages = [r for r in requirements if _is_of_extra(r, extra) and r.name != "bowstring"]
        if not packages:
            continue
        states = [_describe_package(requirement) for requirement in packages]
        is_complete = all(is_usable for is_usable, _ in states)
        detail = ", ".join(dict.fromkeys(text for _, text in states))  # several extras may need a package
        advice = "" if is_complete else f"; {format_install_command(extra, name)}"
        yield Check(f"extra {extra}", "ok" if is_complete else "missing", detail + advice)


def _is_of_extra(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _describe_package(requirement: Requirement) -> tuple[bool, str]:
    """Return whether a package is usable, and its version or the problem."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return False, f"{requirement.name} is not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return False, f"{requirement.name} {version} does not match {requirement.specifier}"
    return True, f"{requirement.name} {version}"


_CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    _check_versions,
    _check_memory,
    _check_folders,
    _check_shm,
    _check_limits,
    _check_java,
    _check_gpus,
    _check_extras,
)
