"""The commands of README.md need no packages but those of its line for pip."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cli.command_line import write

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text("utf-8")
EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
COMMANDS = re.findall(r"^bowstring (.*?)(?: +#.*)?$", README, re.MULTILINE)
RUN = """
import sys
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split()))  # importing these fails
from bowstring.cli.main import main
sys.exit(main())
"""


def collect_distributions(requirements: Iterable[str], extras: Iterable[str] = ("",)) -> set[str]:
    """Return the names of all distributions that pip installs for requirements."""
    names: set[str] = set()
    for requirement in map(Requirement, requirements):
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            if requirement.name == "bowstring":
                own = [text for extra in requirement.extras for text in EXTRAS[extra]]
                names |= collect_distributions(own)
                continue
            names.add(canonicalize_name(requirement.name))
            try:
                names |= collect_distributions(requires(requirement.name) or (), requirement.extras or ("",))
            except PackageNotFoundError:  # for another platform
                pass
    return names


@pytest.fixture(scope="module")
def missing_modules() -> str:
    """Return the modules that are installed here, but not by the line of README.md."""
    extras = re.search(r"^pip install '\.(\[.*\])'", README, re.MULTILINE)
    assert extras is not None
    installed = collect_distributions([f"bowstring{extras[1]}", "numpy"]) | {"bowstring"}
    return " ".join(
        module
        for module, distributions in packages_distributions().items()
        if installed.isdisjoint(map(canonicalize_name, distributions))
    )


def test_packages_that_are_not_installed_are_missing(missing_modules: str) -> None:
    assert {"hypothesis", "moto", "pytest"} <= set(missing_modules.split())
    assert {"click", "numpy"}.isdisjoint(missing_modules.split())


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.startswith("serve")])
def test_a_command_of_the_readme_needs_only_the_packages_of_its_line_for_pip(
    command: str, missing_modules: str, tmp_path: Path
) -> None:
    complete = write(tmp_path / "people.arrow", pa.table({"id": [0, 1, 2], "name": ["a", "b", None]})).read_bytes()
    (tmp_path / "damaged.arrow").write_bytes(complete[:-20])
    (tmp_path / "people.csv").write_text("city,people\nRiga,605273\n")
    process = subprocess.run(
        [sys.executable, "-c", RUN, missing_modules, *command.split()],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (process.returncode, "not installed" in process.stderr) == (0, False), process.stderr
    assert process.stdout + process.stderr
