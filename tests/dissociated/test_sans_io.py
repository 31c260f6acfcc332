"""The protocol's core does no input or output: it can't, because it imports nothing to do it with."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ALLOWED = {"__future__", "base64", "binascii", "collections", "dataclasses", "enum", "numpy", "re", "struct", "typing"}
OWN = ("bowstring.errors", "bowstring.dissociated", "urllib.parse")


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("module", ["connection", "events", "leases", "limits", "pairing", "states", "uri", "wire"])
def test_a_module_imports_no_socket_no_thread_and_no_clock(module: str, repository: Path) -> None:
    names = imported(repository / "src" / "bowstring" / "dissociated" / f"{module}.py")
    assert not [name for name in names if name.partition(".")[0] not in ALLOWED and not name.startswith(OWN)]
