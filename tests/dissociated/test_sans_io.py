"""The protocol's core does no input or output: it can't, because it imports nothing to do it with."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bowstring.dissociated

MODULES = sorted(Path(bowstring.dissociated.__path__[0]).glob("*.py"))
STANDARD_MODULES = ("bisect", "collections", "dataclasses", "enum", "numpy", "operator", "re", "struct", "typing")
ALLOWED_MODULES = {"__future__", "base64", "binascii", *STANDARD_MODULES}
ALLOWED_PREFIXES = ("bowstring.errors", "bowstring.dissociated", "bowstring.display.objects", "urllib.parse")


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", MODULES, ids=[path.stem for path in MODULES])
def test_a_module_imports_no_socket_no_thread_and_no_clock(path: Path) -> None:
    names = imported_modules(path)
    assert names or path.stem == "__init__"
    assert not [
        name
        for name in names
        if name.partition(".")[0] not in ALLOWED_MODULES and not name.startswith(ALLOWED_PREFIXES)
    ]
