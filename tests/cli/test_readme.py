"""The code of README.md runs as written, with only the packages of its line for pip."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text("utf-8")
EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
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


def test_the_commands_of_the_readme_run_after_its_python_with_the_packages_of_its_line_for_pip(
    missing_modules: str, tmp_path: Path
) -> None:
    sections = re.split(r"<!--- skip: next.*?-->\s*```python\n.*?```", README, flags=re.DOTALL)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", "".join(sections), re.MULTILINE | re.DOTALL))
    (script,) = [
        block for block in re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL) if "info" in block
    ]
    environment = {**os.environ, "RUN": RUN, "MISSING": missing_modules, "PYTHON": sys.executable}
    define = 'set -eu; bowstring() { "$PYTHON" -c "$RUN" "$MISSING" "$@"; }; trap \'kill 0\' EXIT\n'
    for command in ([sys.executable, "-c", code], ["bash", "-c", f"{define}{script}echo complete"]):
        process = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
            start_new_session=True,
        )  # fmt: skip
        assert "not installed" not in process.stderr
        assert command[0] == sys.executable or "complete" in process.stdout, process.stdout + process.stderr
        assert command[0] != sys.executable or process.returncode == 0, process.stderr
    assert {"people.arrow", "people.csv", "recovered.arrow"} <= {path.name for path in tmp_path.iterdir()}
