"""`bowstring doctor`: check this machine and environment for what Bowstring uses."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import click
from packaging.requirements import Requirement

from bowstring import __version__
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_json
from bowstring.cli.options import json_option
from bowstring.cli.terminal_tables import ColumnFit, print_table, terminal_width
from bowstring.display.printable_text import format_size, to_printable
from bowstring.errors import BowstringError, MissingExtraError, format_install_command
from bowstring.memory.available_memory import read_memory_limits
from bowstring.memory.device import load_cuda_driver
from bowstring.memory.region import Region
from bowstring.memory.unnamed_file import open_unnamed_file
from bowstring.sharing.agent.memory_budget import find_spill_folders
from bowstring.spark.runtime.java_runtime import find_java

Status = Literal["ok", "missing", "failed"]

_COLORS = {"ok": "green", "missing": "yellow", "failed": "red"}
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
_IGNORED_EXTRAS = frozenset(("all", "dev", "docs", "fuzz", "test"))


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
        _show_checks(checks)
    return int(any(check.status == "failed" for check in checks))


def _show_checks(checks: Sequence[Check]) -> None:
    """Show the checks as a table, or with the details below the names if the terminal is narrow."""
    width = terminal_width()
    if width is None or width >= _MIN_TABLE_WIDTH:
        rows = [(check.name, check.status, to_printable(check.detail)) for check in checks]
        print_table(("check", "status", ""), rows, fit=ColumnFit(wraps_last=True), colors=_COLORS)
        return
    for check in checks:
        click.echo(f"{check.name}  {click.style(check.status, fg=_COLORS[check.status])}")
        click.echo(textwrap.fill(to_printable(check.detail), width, initial_indent="  ", subsequent_indent="  "))


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
    """The number of GPUs; a missing package has a line of its own."""
    try:
        count = load_cuda_driver().count_gpus()
        yield Check("GPUs", "ok" if count else "missing", str(count))
    except MissingExtraError:
        yield Check("GPUs", "missing", "unknown without the packages for CUDA")
    except BowstringError as problem:
        yield Check("GPUs", "missing", str(problem))


def _check_packages() -> Iterator[Check]:
    """One check for each package of the extras that users install, and for the networks."""
    try:
        yield Check(_NETWORKS, "ok", metadata.version(_NETWORKS))
        distributions = ["bowstring", _NETWORKS]
    except metadata.PackageNotFoundError:
        yield Check(_NETWORKS, "missing", f"UCX, libfabric, CUDA, Flight; {format_install_command('', _NETWORKS)}")
        distributions = ["bowstring"]
    uses: dict[str, list[tuple[str, str, Requirement]]] = {}
    for name in distributions:
        distribution = metadata.distribution(name)
        requirements = [each for each in map(Requirement, distribution.requires or ()) if each.name != "bowstring"]
        extras = set(distribution.metadata.get_all("Provides-Extra") or ()) - _IGNORED_EXTRAS
        packages_by_extra = {extra: [each for each in requirements if _is_of_extra(each, extra)] for extra in extras}
        # The smallest extra comes first: it is the one to install.
        for extra, packages in sorted(packages_by_extra.items(), key=lambda entry: (len(entry[1]), entry[0])):
            for requirement in packages:
                uses.setdefault(requirement.name, []).append((name, extra, requirement))
    for package in sorted(uses):
        yield _check_package(package, uses[package])


def _check_package(package: str, uses: Sequence[tuple[str, str, Requirement]]) -> Check:
    """Check a package that extras of distributions require."""
    extras = f"for {', '.join(dict.fromkeys(extra for _, extra, _ in uses))}"
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        problem, (name, extra, _) = "not installed", uses[0]
    else:
        unmet = [use for use in uses if not use[2].specifier.contains(version, prereleases=True)]
        if not unmet:
            return Check(f"package {package}", "ok", f"{version}, {extras}")
        name, extra, requirement = unmet[0]
        problem = f"{version} does not match {requirement.specifier}"
    return Check(f"package {package}", "missing", f"{problem}, {extras}; {format_install_command(extra, name)}")


def _is_of_extra(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


_CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    _check_versions,
    _check_memory,
    _check_folders,
    _check_shm,
    _check_limits,
    _check_java,
    _check_gpus,
    _check_packages,
)
