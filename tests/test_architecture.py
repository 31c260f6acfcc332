"""docs/architecture.md is the truth: imports run the way it says, and packages from elsewhere stay in their rooms."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src" / "bowstring"
PAGE = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")

# The package's own door and the command's: they belong to no room.
ENTRANCE = "bowstring"
USERS_OF_THE_ENTRANCE = {"cli", "testing"}


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement: where it stands, what it names, and whether it waits in a function."""

    path: Path
    line: int
    room: str
    target: str
    inside_function: bool

    @property
    def where(self) -> str:
        return f"{self.path.relative_to(REPOSITORY)}:{self.line} ({self.room}) imports {self.target}"

    @property
    def target_room(self) -> str | None:
        """The room of ours that is imported, `ENTRANCE` for the package itself, None for a package from elsewhere."""
        first, *rest = self.target.split(".")
        if first != "bowstring":
            return None
        if rest and rest[0] in rooms():
            return rest[0]
        return "cli" if rest == ["__main__"] else ENTRANCE


def fenced(language: str) -> list[str]:
    blocks = re.findall(rf"^```{re.escape(language)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"docs/architecture.md has {len(blocks)} blocks ```{language}, not one"
    return [line.strip() for line in blocks[0].splitlines() if line.strip()]


def arrows(lines: list[str], arrow: str, between: str) -> set[tuple[str, str]]:
    """The pairs (imported, importer) of chains such as `a -> {b, c} -> d`."""
    pairs = set()
    for line in lines:
        steps = [[name.strip() for name in re.split(between, step.strip("{} \t"))] for step in line.split(arrow)]
        for imported, importers in pairwise(steps):
            pairs |= {(left, right) for left in imported for right in importers}
    return pairs


def closure(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    found = set(pairs)
    while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= more
    return found


IMPORTS = closure(arrows(fenced("imports"), "->", ","))
INSIDE_FUNCTIONS = arrows(fenced("imports inside functions"), "->", ",")
ELSEWHERE = {name: set(names.split()) for name, names in (line.split(":") for line in fenced("third-party"))}


def rooms() -> set[str]:
    return {room for pair in IMPORTS for room in pair} | {"testing"}


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return {"__init__": ENTRANCE, "__main__": "cli"}.get(first, first)


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports_under(node: ast.AST, path: Path, inside_function: bool = False) -> Iterator[Import]:
    """Every import that can run under `node`, those in functions included, those under TYPE_CHECKING not."""
    if isinstance(node, ast.If) and is_type_checking(node.test):
        for statement in node.orelse:
            yield from imports_under(statement, path, inside_function)
        return
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(path, node.lineno, room_of(path), alias.name, inside_function)
    elif isinstance(node, ast.ImportFrom):
        module = absolute(node, path)
        for alias in node.names:
            target = f"{module}.{alias.name}" if module == "bowstring" else module
            yield Import(path, node.lineno, room_of(path), target, inside_function)
    elif isinstance(node, ast.Call) and (name := named_in_call(node)):
        yield Import(path, node.lineno, room_of(path), name, inside_function)
    inside_function = inside_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from imports_under(child, path, inside_function)


def named_in_call(node: ast.Call) -> str | None:
    """The module that `import_module("...")` names, if the call is one and names it in so many words."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    if called in {"import_module", "__import__"} and node.args and isinstance(node.args[0], ast.Constant):
        return str(node.args[0].value)
    return None


def absolute(node: ast.ImportFrom, path: Path) -> str:
    if node.level == 0:
        return node.module or ""
    package = ["bowstring", *path.relative_to(SOURCE).parts[:-1]]
    return ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])


def all_imports() -> list[Import]:
    return [found for path in sources() for found in imports_under(ast.parse(path.read_bytes()), path)]


def wrong_direction(found: Import) -> bool:
    target = found.target_room
    if target is None or target == found.room:
        return False
    if target == ENTRANCE:
        return found.room not in USERS_OF_THE_ENTRANCE
    if target == "testing":
        return True
    if found.room == "testing" or (target, found.room) in IMPORTS:
        return False
    return not (found.inside_function and (target, found.room) in INSIDE_FUNCTIONS)


def floors_of_ipc() -> dict[str, int]:
    """The rooms and modules within `ipc`, and the line of the page that each stands on."""
    return {name: floor for floor, line in enumerate(fenced("floors of ipc")) for name in line.split()}


def goes_up_in_ipc(found: Import) -> bool:
    """Whether an import within `ipc` leads to a higher floor, or to another place of the same one."""
    own, target = found.path.relative_to(SOURCE).parts[1:], found.target.split(".")
    if found.room != "ipc" or target[:2] != ["bowstring", "ipc"] or len(target) < 3:
        return False
    floors, here = floors_of_ipc(), own[0].removesuffix(".py")
    return here != target[2] and floors[target[2]] >= floors[here]


def misplaced_package(found: Import) -> bool:
    package = found.target.partition(".")[0]
    if package == "bowstring" or package in sys.stdlib_module_names or found.room == "testing":
        return False
    return found.room not in ELSEWHERE.get(package, set())


def imports_of(source: str, path: str) -> list[Import]:
    return list(imports_under(ast.parse(source), SOURCE / path))


def test_within_ipc_imports_run_down() -> None:
    wrong = [found.where for found in all_imports() if goes_up_in_ipc(found)]
    assert not wrong


def test_every_place_within_ipc_has_its_floor() -> None:
    there = {path.name.removesuffix(".py") for path in (SOURCE / "ipc").iterdir() if not path.name.startswith("_")}
    assert there == set(floors_of_ipc())


def test_every_source_file_belongs_to_a_room_of_the_page() -> None:
    assert {room_of(path) for path in sources()} - {ENTRANCE} <= rooms()


def test_every_room_has_its_line_in_the_table_of_rooms() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == rooms()


def test_no_room_stands_on_both_sides_of_an_arrow() -> None:
    assert not {(left, right) for left, right in IMPORTS if (right, left) in IMPORTS}


def test_the_diagram_draws_what_the_table_says() -> None:
    drawn = [line for line in fenced("mermaid") if "-->" in line]
    assert closure(arrows(drawn, "-->", "&")) == IMPORTS


def test_imports_run_the_way_the_page_says() -> None:
    assert not [found.where for found in all_imports() if wrong_direction(found)]


def test_packages_from_elsewhere_are_imported_only_in_their_rooms() -> None:
    assert not [found.where for found in all_imports() if misplaced_package(found)]


def test_every_module_has_a_docstring() -> None:
    assert not [
        str(path.relative_to(REPOSITORY)) for path in sources() if not ast.get_docstring(ast.parse(path.read_bytes()))
    ]


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("from bowstring.ipc.api import open_file", "layouts/list_.py"),
        ("from bowstring.layouts import Array", "flatbuf/codec.py"),
        ("from ..ipc import api", "dissociated/wire.py"),
        ("from bowstring import spark", "serving/server.py"),
        ("from bowstring import table", "ipc/stream.py"),
        ("def function():\n    import bowstring.cli.main", "spark/publish.py"),
        ("from bowstring.exchange import cdata", "tabular/batch.py"),
        ("from bowstring.testing import strategies", "cli/info.py"),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import bowstring.tabular", "memory/buffer.py"),
    ],
)
def test_an_import_against_the_arrows_is_found(source: str, path: str) -> None:
    assert [wrong_direction(found) for found in imports_of(source, path)] == [True]


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("from bowstring.errors import UsageError", "spark/publish.py"),
        ("from bowstring import errors", "dissociated/wire.py"),
        ("from .base import Layout", "layouts/list_.py"),
        ("def function():\n    from bowstring.exchange import cdata", "tabular/batch.py"),
        ("import bowstring", "cli/demo.py"),
        ("from bowstring.testing import strategies", "testing/conformance.py"),
    ],
)
def test_an_import_along_the_arrows_is_allowed(source: str, path: str) -> None:
    assert [wrong_direction(found) for found in imports_of(source, path)] == [False]


def test_imports_under_type_checking_are_not_counted() -> None:
    assert imports_of("if TYPE_CHECKING:\n    import pyarrow", "ipc/api.py") == []


@pytest.mark.parametrize(
    ("source", "path", "misplaced"),
    [
        ("import pyarrow as pa", "ipc/api.py", True),
        ("def function():\n    import pyspark", "serving/server.py", True),
        ("from rich.table import Table", "inspection/report.py", True),
        ("import some_new_package", "cli/info.py", True),
        ("import numpy as np", "errors.py", True),
        ("import numpy as np", "memory/buffer.py", False),
        ("from pyspark.sql import DataFrame", "spark/publish.py", False),
        ("import struct", "flatbuf/codec.py", False),
        ("importlib.import_module('pyarrow')", "ipc/api.py", True),
    ],
)
def test_a_package_outside_its_room_is_found(source: str, path: str, misplaced: bool) -> None:
    assert [misplaced_package(found) for found in imports_of(source, path)] == [misplaced]
