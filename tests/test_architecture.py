"""Compare the imports of the sources with docs/development/architecture.md."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src" / "bowstring"
PAGE = (REPOSITORY / "docs" / "development" / "architecture.md").read_text(encoding="utf-8")

# bowstring/__init__.py belongs to no sub-package, nor does the module that all tables of exports import.
ROOT = "bowstring"
IMPORTERS_OF_ROOT = {"cli"}
LAZY_EXPORTS = "bowstring._lazy_exports"


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement: its location, its target, and whether it is in a function or only for type checkers."""

    path: Path
    line: int
    package: str
    target: str
    inside_function: bool
    type_checking: bool = False

    @property
    def where(self) -> str:
        return f"{self.path.relative_to(REPOSITORY)}:{self.line} ({self.package}) imports {self.target}"

    @property
    def target_package(self) -> str | None:
        """The imported sub-package, `ROOT` for bowstring itself, None for a third-party package."""
        first, *rest = self.target.split(".")
        if first != "bowstring":
            return None
        if rest and rest[0] in packages():
            return rest[0]
        return "cli" if rest == ["__main__"] else ROOT


def fenced(language: str) -> list[str]:
    blocks = re.findall(rf"^```{re.escape(language)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"docs/development/architecture.md has {len(blocks)} blocks ```{language}, not one"
    return [line.strip() for line in blocks[0].splitlines() if line.strip()]


def arrows(lines: list[str], arrow: str) -> set[tuple[str, str]]:
    """The pairs (imported, importer) of chains such as `a -> b & c -> d`."""
    pairs = set()
    for line in lines:
        steps = [[name.strip() for name in step.split("&")] for step in line.split(arrow)]
        for imported, importers in pairwise(steps):
            pairs |= {(left, right) for left in imported for right in importers}
    return pairs


def closure(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    closed = set(pairs)
    while more := {(a, d) for a, b in closed for c, d in closed if b == c} - closed:
        closed |= more
    return closed


IMPORTS = closure(arrows([line for line in fenced("mermaid") if "-->" in line], "-->"))
ENTRY_POINT = ("cli.main", "cli.commands")
"""The import inside a function that is allowed: the importing module and the imported one."""
THIRD_PARTY = {
    name: set(importers.split())
    for names, importers in (line.split(":") for line in fenced("third-party"))
    for name in names.split()
}


@cache
def packages() -> set[str]:
    return {package for pair in IMPORTS for package in pair}


@cache
def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_bytes()) for path in sources()}


def package_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return {"__init__": ROOT, "_lazy_exports": ROOT, "__main__": "cli"}.get(first, first)


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports_under(node: ast.AST, path: Path, inside_function: bool = False) -> Iterator[Import]:
    """Every import under `node`, those in functions and for type checkers included."""
    if isinstance(node, ast.If) and is_type_checking(node.test):
        for statement in node.body:
            yield from (replace(each, type_checking=True) for each in imports_under(statement, path, inside_function))
        for statement in node.orelse:
            yield from imports_under(statement, path, inside_function)
        return
    if isinstance(node, ast.Import):
        for alias in node.names:
            for target in sorted({alias.name, *lazy_exports(alias.name).values()}):
                yield Import(path, node.lineno, package_of(path), target, inside_function)
    elif isinstance(node, ast.ImportFrom):
        module = absolute(node, path)
        for alias in node.names:
            submodule = f"{module}.{alias.name}"
            if module == "bowstring" or is_module(submodule):
                targets = {submodule, *lazy_exports(submodule).values()}
            else:
                targets = {lazy_exports(module).get(alias.name, module)}
            for target in sorted(targets):
                yield Import(path, node.lineno, package_of(path), target, inside_function)
    elif isinstance(node, ast.Call) and (name := named_in_call(node)):
        yield Import(path, node.lineno, package_of(path), name, inside_function)
    inside_function = inside_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from imports_under(child, path, inside_function)


def named_in_call(node: ast.Call) -> str | None:
    """The module that `import_module("...")` names, if the call has a literal argument."""
    if is_import_call(node) and node.args and isinstance(node.args[0], ast.Constant):
        return str(node.args[0].value)
    return None


def is_import_call(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    return called in {"import_module", "__import__"}


def imports_computed_name(tree: ast.Module) -> bool:
    """Whether a module imports another whose name is not a literal."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_import_call(node)]
    return any(named_in_call(call) is None for call in calls)


@cache
def is_module(name: str) -> bool:
    """Whether bowstring has a module of this full name."""
    path = SOURCE.joinpath(*name.split(".")[1:])
    return name.startswith("bowstring.") and (path.with_suffix(".py").is_file() or path.is_dir())


@cache
def lazy_exports(package: str) -> dict[str, str]:
    """The modules that a sub-package's lazy exports import on first use, by exported name.

    Code that imports the sub-package itself may use any of them, perhaps only within a function. Those of `bowstring`
    are not followed: only `IMPORTERS_OF_ROOT`, above all packages, import it.
    """
    stub = SOURCE.joinpath(*package.split(".")[1:], "__init__.pyi")
    if not package.startswith("bowstring.") or not stub.is_file():
        return {}
    imports = [node for node in ast.parse(stub.read_bytes()).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def absolute(node: ast.ImportFrom, path: Path) -> str:
    if node.level == 0:
        return node.module or ""
    package = ["bowstring", *path.relative_to(SOURCE).parts[:-1]]
    return ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])


@cache
def declared_imports() -> list[Import]:
    return [statement for path, tree in trees().items() for statement in imports_under(tree, path)]


@cache
def all_imports() -> list[Import]:
    """Every import that can run."""
    return [statement for statement in declared_imports() if not statement.type_checking]


def wrong_direction(statement: Import) -> bool:
    target = statement.target_package
    if target is None or target == statement.package or is_exempt(statement):
        return False
    if target == ROOT:
        is_export_table = statement.target == LAZY_EXPORTS and statement.path.name == "__init__.py"
        return not is_export_table and statement.package not in IMPORTERS_OF_ROOT
    if statement.package == ROOT:
        return module_name(statement.path) != "_lazy_exports" or target not in ("fork_safe_imports", "pyarrow_names")
    return (target, statement.package) not in IMPORTS


def is_hidden_in_function(statement: Import) -> bool:
    """Whether a function imports a module of bowstring, which belongs to the top of the file."""
    return statement.inside_function and statement.target_package is not None and not is_exempt(statement)


def is_exempt(statement: Import) -> bool:
    """Whether an import is that of the command's entry point."""
    names = module_name(statement.path), statement.target.removeprefix("bowstring.")
    return statement.inside_function and names == ENTRY_POINT


def module_name(path: Path) -> str:
    """The name of a module within bowstring, such as `ipc.stream`; that of a package is the package's."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def cycles(imports: Iterable[Import]) -> list[set[str]]:
    """The groups of two or more modules that import each other, directly or through others."""
    modules = {module_name(path) for path in sources()}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for statement in imports:
        target = statement.target.removeprefix("bowstring.")
        if target in modules:
            graph[module_name(statement.path)].add(target)
    reachable = {module: reach(graph, module) for module in graph}
    groups = [{other for other in reachable[module] if module in reachable[other]} for module in graph]
    return [group for index, group in enumerate(groups) if len(group) > 1 and group not in groups[:index]]


def reach(graph: dict[str, set[str]], start: str) -> set[str]:
    """The modules that `start` imports, directly or through others."""
    reached: set[str] = set()
    pending = [start]
    while pending:
        targets = graph[pending.pop()] - reached - {start}
        reached |= targets
        pending += targets
    return reached | {start}


LAYERED = ("ipc", "transports", "sharing", "spark")


def layers_of(package: str) -> dict[str, int]:
    """The modules and packages of a package, each with the line of its layer."""
    return {name: layer for layer, line in enumerate(fenced(f"layers-of-{package}")) for name in line.split()}


def imports_higher_layer(statement: Import) -> bool:
    """Whether an import within a package with layers is from a higher one, or from another module of the same one."""
    package, own, target = statement.package, statement.path.relative_to(SOURCE).parts[1:], statement.target.split(".")
    if package not in LAYERED or target[:2] != ["bowstring", package] or len(target) < 3:
        return False
    layers, here = layers_of(package), own[0].removesuffix(".py")
    return here != target[2] and layers[target[2]] >= layers[here]


def is_misplaced(statement: Import) -> bool:
    name = statement.target.partition(".")[0]
    if name == "bowstring" or name in sys.stdlib_module_names:
        return False
    return statement.package not in THIRD_PARTY.get(name, set())


def imports_of(source: str, path: str) -> list[Import]:
    return list(imports_under(ast.parse(source), SOURCE / path))


def test_no_module_imports_itself_through_others() -> None:
    assert cycles(declared_imports()) == []


def test_a_cycle_that_type_annotations_make_is_detected() -> None:
    imports = [
        *imports_of("if TYPE_CHECKING:\n    from bowstring.memory.bitmap import Mask", "memory/iovec.py"),
        *imports_of("from bowstring.memory.iovec import IoVec", "memory/bitmap.py"),
    ]
    assert cycles(imports) == [{"memory.bitmap", "memory.iovec"}]


def test_a_cycle_of_modules_is_detected() -> None:
    imports = [
        *imports_of("from bowstring.memory.bitmap import Mask", "memory/mapping_pool.py"),
        *imports_of("def function():\n    from bowstring.memory import iovec", "memory/bitmap.py"),
        *imports_of("from bowstring.memory.mapping_pool import take", "memory/iovec.py"),
        *imports_of("from bowstring.memory.mapping_pool import take", "memory/region.py"),
    ]
    assert cycles(imports) == [{"memory.bitmap", "memory.iovec", "memory.mapping_pool"}]


@pytest.mark.parametrize("source", ["from bowstring import datatypes", "from bowstring.datatypes import as_type"])
def test_a_cycle_through_the_lazy_exports_of_a_package_is_detected(source: str) -> None:
    imports = [
        *imports_of(source, "datatypes/field.py"),
        *imports_of("from bowstring.datatypes.field import Field", "datatypes/conversion.py"),
    ]
    assert cycles(imports) == [{"datatypes.conversion", "datatypes.field"}]


def test_functions_import_only_third_party_packages() -> None:
    assert not [statement.where for statement in all_imports() if is_hidden_in_function(statement)]


@pytest.mark.parametrize(
    ("source", "path", "hidden"),
    [
        ("def function():\n    from bowstring.interop import c_data", "arrays/record_batch.py", True),
        ("def function():\n    import bowstring.cli.commands", "cli/main.py", False),
        ("def function():\n    import pandas", "interop/pandas/pandas_api.py", False),
        ("from bowstring.interop import c_data", "arrays/record_batch.py", False),
    ],
)
def test_an_import_of_bowstring_in_a_function_is_detected(source: str, path: str, hidden: bool) -> None:
    assert [is_hidden_in_function(statement) for statement in imports_of(source, path)] == [hidden]


def test_only_the_listed_modules_import_a_computed_name() -> None:
    importers = {module_name(path) for path, tree in trees().items() if imports_computed_name(tree)}
    assert importers == {name for line in fenced("imports-by-computed-name") for name in line.split()}
    assert imports_computed_name(ast.parse("import_module(f'bowstring.{name}')"))
    assert not imports_computed_name(ast.parse("import_module('pyarrow')"))


def test_imports_within_a_package_are_from_lower_layers() -> None:
    assert not [statement.where for statement in all_imports() if imports_higher_layer(statement)]


@pytest.mark.parametrize("package", LAYERED)
def test_every_module_of_a_package_with_layers_has_one(package: str) -> None:
    modules = {path.name.removesuffix(".py") for path in (SOURCE / package).iterdir() if not path.name.startswith("_")}
    assert modules == set(layers_of(package))


def test_every_source_file_belongs_to_a_package_of_the_page() -> None:
    assert {package_of(path) for path in sources()} - {ROOT} <= packages()


def test_every_package_has_a_row_in_the_table() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == packages()


def test_no_two_packages_import_each_other() -> None:
    assert not {(left, right) for left, right in IMPORTS if (right, left) in IMPORTS}


def test_imports_have_the_declared_direction() -> None:
    assert not [statement.where for statement in all_imports() if wrong_direction(statement)]


def test_third_party_packages_are_imported_only_where_declared() -> None:
    assert not [statement.where for statement in all_imports() if is_misplaced(statement)]


def test_every_module_has_a_docstring() -> None:
    assert not [str(path.relative_to(REPOSITORY)) for path, tree in trees().items() if not ast.get_docstring(tree)]


def test_no_two_public_classes_have_the_same_name() -> None:
    names = Counter(node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert not {name for name, count in names.items() if count > 1 and not name.startswith("_")}


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("from bowstring.ipc.api import open_file", "layouts/list_.py"),
        ("from bowstring.layouts import Array", "flatbuf/reader.py"),
        ("from ..ipc import api", "dissociated/messages.py"),
        ("from bowstring import spark", "sharing/server/server.py"),
        ("from bowstring import table", "ipc/stream.py"),
        ("from bowstring._lazy_exports import attach_lazy_exports", "ipc/stream.py"),
        ("def function():\n    import bowstring.cli.main", "spark/publication.py"),
        ("from bowstring.arrays.array import Array", "interop/c_data.py"),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import bowstring.arrays", "memory/buffer.py"),
    ],
)
def test_an_import_in_the_wrong_direction_is_detected(source: str, path: str) -> None:
    assert {wrong_direction(statement) for statement in imports_of(source, path)} == {True}


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("from bowstring.errors import InvalidArgumentError", "spark/publication.py"),
        ("from bowstring import errors", "dissociated/messages.py"),
        ("from .base import Layout", "layouts/list_.py"),
        ("from bowstring.interop import c_data", "arrays/record_batch.py"),
        ("import bowstring", "cli/doctor.py"),
        ("from bowstring._lazy_exports import attach_lazy_exports", "ipc/__init__.py"),
    ],
)
def test_an_import_in_the_declared_direction_is_allowed(source: str, path: str) -> None:
    assert {wrong_direction(statement) for statement in imports_of(source, path)} == {False}


def test_imports_under_type_checking_do_not_run() -> None:
    (statement,) = imports_of("if TYPE_CHECKING:\n    import pyarrow", "ipc/api.py")
    assert statement.type_checking
    assert statement not in all_imports()


@pytest.mark.parametrize(
    ("source", "path", "misplaced"),
    [
        ("import pyarrow as pa", "ipc/api.py", True),
        ("def function():\n    import pyspark", "sharing/server/server.py", True),
        ("from rich.table import Table", "inspection/report.py", True),
        ("import some_new_package", "cli/info.py", True),
        ("import numpy as np", "errors.py", True),
        ("import numpy as np", "memory/buffer.py", False),
        ("from pyspark.sql import DataFrame", "spark/publication.py", False),
        ("import struct", "flatbuf/reader.py", False),
        ("importlib.import_module('pyarrow')", "ipc/api.py", True),
        ("def function():\n    from bowstring_networks.flight import FlightServer", "sharing/server/server.py", True),
        ("from bowstring_testing import strategies", "cli/info.py", True),
    ],
)
def test_a_misplaced_third_party_package_is_detected(source: str, path: str, misplaced: bool) -> None:
    assert [is_misplaced(statement) for statement in imports_of(source, path)] == [misplaced]


def test_the_page_names_only_modules_that_exist() -> None:
    rows = PAGE.partition("## Where to look")[2].partition("\n## ")[0].splitlines()
    paths = [path for row in rows if row.startswith("|") for path in re.findall(r"`((?:\w+/)*\w+\.py)`", row)]
    assert len(paths) >= 12
    assert not [path for path in paths if not (SOURCE / path).exists()]
