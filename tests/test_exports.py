"""The public names: the stub of each package lists them, each name is public in one place, and is loaded on use."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import bowstring

SUBPACKAGES = (
    "compute",
    "datasets",
    "datatypes",
    "errors",
    "feather",
    "inspection",
    "ipc",
    "memory",
    "sharing",
    "spark",
    "tensors",
    "types",
)
LAZY = (
    "bowstring",
    *(f"bowstring.{name}" for name in SUBPACKAGES if name not in ("compute", "errors", "feather", "types")),
)
"""The packages with a stub that lists their public names. `errors`, `feather` and `types` are modules; the names of
`compute` are pyarrow's.
"""


def public_names(package: str) -> list[str]:
    return list(importlib.import_module(package).__all__)


def static_exports(package: str) -> dict[str, str]:
    """Each public name and its module, as imported in the package's stub."""
    path = importlib.import_module(package).__file__
    assert path is not None
    modules: dict[str, str] = {}
    for statement in ast.parse(Path(path).with_suffix(".pyi").read_bytes()).body:
        if not isinstance(statement, ast.ImportFrom):
            continue
        assert statement.module is not None
        for alias in statement.names:
            assert alias.asname == alias.name, f"write `{alias.name} as {alias.name}`, or it is not exported"
            assert alias.name not in modules
            modules[alias.name] = statement.module
    return modules


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after `statement`."""
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(process.stdout.split())


TWICE = {"RecordBatchReader", "json_", "new_file", "new_stream", "open_file", "open_stream", "uuid"}
"""The names that pyarrow has both in `pyarrow` and in `pyarrow.ipc`, or has in another place than Bowstring."""

EXPORTS = [(package, name) for package in LAZY for name in public_names(package)]


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_and_the_interpreter_find_the_same_names(package: str) -> None:
    static = {name for name, module in static_exports(package).items() if module != "bowstring"}
    assert static == set(public_names(package))


@pytest.mark.parametrize(("package", "name"), EXPORTS)
def test_a_public_name_is_that_of_its_module(package: str, name: str) -> None:
    public = getattr(importlib.import_module(package), name)
    assert public is getattr(importlib.import_module(static_exports(package)[name]), name)


@pytest.mark.parametrize(("package", "name"), EXPORTS)
def test_a_public_object_has_a_docstring(package: str, name: str) -> None:
    public = getattr(importlib.import_module(package), name)
    if inspect.isroutine(public) or inspect.isclass(public):
        assert (public.__doc__ or "").strip()


def test_only_names_of_pyarrow_are_public_in_two_packages() -> None:
    places = Counter(f"{module}.{name}" for package in LAZY for name, module in _origins(package).items())
    assert {place.rpartition(".")[2] for place, count in places.items() if count > 1} == TWICE


def _origins(package: str) -> dict[str, str]:
    objects = {name: getattr(importlib.import_module(package), name) for name in public_names(package)}
    return {name: getattr(value, "__module__", package) for name, value in objects.items()}


@pytest.mark.parametrize("package", LAZY)
def test_help_lists_every_public_name(package: str) -> None:
    text = pydoc.render_doc(importlib.import_module(package), renderer=pydoc._PlainTextDoc())  # type: ignore[attr-defined]
    contents = text.partition("PACKAGE CONTENTS")[2]
    assert [name for name in public_names(package) if not re.search(rf"\b{name}\b", contents)] == []


def test_the_docstring_of_the_package_names_only_public_names() -> None:
    names = re.findall(r"`([a-z_0-9]+|[A-Z]\w+)`", bowstring.__doc__ or "")
    assert len(names) > 20
    assert set(names) <= {*public_names("bowstring"), *SUBPACKAGES}


def test_the_docstring_of_the_package_names_every_subpackage() -> None:
    assert set(SUBPACKAGES) <= set(re.findall(r"`(\w+)`", bowstring.__doc__ or ""))


@pytest.mark.parametrize("name", SUBPACKAGES)
def test_a_subpackage_is_an_attribute(name: str) -> None:
    assert getattr(bowstring, name) is sys.modules[f"bowstring.{name}"]


def test_type_checkers_find_the_subpackages() -> None:
    static = {name for name, module in static_exports("bowstring").items() if module == "bowstring"}
    assert static == set(SUBPACKAGES)


@pytest.mark.parametrize("package", LAZY)
def test_dir_lists_the_public_names(package: str) -> None:
    names = {name for name in dir(importlib.import_module(package)) if not name.startswith("__")}
    assert names == {*public_names(package), *(SUBPACKAGES if package == "bowstring" else ())}


def test_dir_lists_the_version_and_the_subpackages() -> None:
    assert {"__version__", *SUBPACKAGES} <= set(dir(bowstring))


@pytest.mark.parametrize("package", LAZY)
def test_a_name_that_does_not_exist_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
        _ = importlib.import_module(package).no_such_name


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("bs.tabel", "table"),
        ("bs.ipc.FileReadr", "FileReader"),
        ("bs.compute.summ", "sum"),
        ("bs.table({'a': [1]}).fliter", "filter"),
        ("bs.array([1]).tak", "take"),
        ("bs.chunked_array([[1]]).fliter", "filter"),
        ("bs.schema({'a': 'int8'}).nams", "names"),
    ],
)
def test_the_traceback_of_a_missing_attribute_names_the_most_similar_one(statement: str, name: str) -> None:
    program = f"import bowstring as bs\n{statement}"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert process.stderr.rstrip().endswith(f"Did you mean: '{name}'?")


CLASSES = [
    pytest.param(value, id=f"{package}.{name}")
    for package, name in EXPORTS
    if inspect.isclass(value := getattr(importlib.import_module(package), name)) and not issubclass(value, tuple)
]


@pytest.mark.parametrize("cls", CLASSES)
def test_objects_of_a_public_class_accept_weak_references(cls: type) -> None:
    assert cls.__weakrefoffset__ != 0


def test_importing_the_package_loads_nothing_else() -> None:
    modules = modules_after("import bowstring")
    assert not modules & {"numpy", "pyarrow", "pyspark", "click", "rich", "typing_extensions"}
    own = {name for name in modules if name.startswith("bowstring")}
    assert own == {"bowstring", "bowstring._lazy_exports", "bowstring.fork_safe_imports", "bowstring.pyarrow_names"}


def test_a_subpackage_is_loaded_on_first_access() -> None:
    modules = modules_after("import bowstring as bs\nbs.ipc")
    assert "bowstring.ipc" in modules
    assert "numpy" not in modules
    assert "bowstring.ipc.writers" in modules_after("import bowstring as bs\nbs.ipc.FileWriter")


def test_the_command_loads_no_numpy_before_a_command_runs() -> None:
    modules = modules_after("from bowstring.cli.main import main\nmain(['--version'])")
    assert not modules & {"numpy", "pyspark", "pyarrow"}
