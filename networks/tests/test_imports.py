"""The networks import only what Bowstring offers to packages with transports and connectors."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "networks" / "src" / "bowstring_networks"
PAGE = (REPOSITORY / "docs" / "reference" / "transports.md").read_text(encoding="utf-8")
THIRD_PARTY = {"numpy", "pyarrow", "cuda"}


def offered_modules() -> set[str]:
    """The modules in the table of the page, and those that every package has."""
    _, _, section = PAGE.partition("\n### Ship it\n")
    cells = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    return {f"bowstring.{name}" for cell in cells for name in re.findall(r"`([a-z_.]+)`", cell)}


def imported_names() -> list[tuple[str, str, str]]:
    """The file, module and name of each import; the name of a module is empty."""
    return [
        (path.name, module, name)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for module, name in (
            [(alias.name, "") for alias in node.names]
            if isinstance(node, ast.Import)
            else [(node.module or "", alias.name) for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]


def test_the_networks_import_only_modules_of_bowstring_that_are_offered_to_all() -> None:
    used = {module for _, module, _ in imported_names() if module.partition(".")[0] == "bowstring"}
    assert len(used) > 20
    assert used <= offered_modules()


def test_the_networks_import_no_private_name_of_bowstring() -> None:
    imports = [each for each in imported_names() if each[1].startswith("bowstring.")]
    assert not [each for each in imports if each[2].startswith("_") or "._" in each[1]]


def test_the_networks_need_no_other_packages() -> None:
    packages = {module.partition(".")[0] for _, module, _ in imported_names()}
    assert packages - sys.stdlib_module_names == THIRD_PARTY | {"bowstring", "bowstring_networks"}
