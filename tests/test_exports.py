"""The package's names: both lists in bowstring/__init__.py agree, each name is there, and asking is what loads it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bowstring

NAMES = sorted(bowstring._HOME)


def names_for_type_checkers() -> dict[str, set[str]]:
    """Module -> names, as the block under TYPE_CHECKING imports them."""
    tree = ast.parse(Path(bowstring.__file__).read_bytes())
    block = next(node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    found: dict[str, set[str]] = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        assert statement.module is not None
        for alias in statement.names:
            assert alias.asname == alias.name, f"write `{alias.name} as {alias.name}`, or it is not exported"
            found.setdefault(statement.module, set()).add(alias.name)
    return found


def loaded_after(statement: str) -> set[str]:
    """The top-level packages and our own modules that a fresh interpreter has loaded after `statement`."""
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_the_table_and_the_block_for_type_checkers_agree() -> None:
    table = {module: set(names) for module, names in bowstring._EXPORTS.items()}
    assert names_for_type_checkers() == table | {"bowstring": set(bowstring._SUBPACKAGES)}


def test_help_lists_every_public_name() -> None:
    told = pydoc.render_doc(bowstring, renderer=pydoc._PlainTextDoc())  # type: ignore[attr-defined]
    assert [name for name in NAMES if not re.search(rf"\b{name}\b", told.partition("PACKAGE CONTENTS")[2])] == []


def test_the_packages_docstring_names_only_what_is_there() -> None:
    told = re.findall(r"`(?:bowstring\.)?([a-z_0-9]+)(?:\.\w+)?(?:\(\))?`", bowstring.__doc__ or "")
    assert len(told) > 10
    assert set(told) <= {*NAMES, *bowstring._SUBPACKAGES}


def test_no_name_is_listed_twice() -> None:
    listed = [name for names in bowstring._EXPORTS.values() for name in names]
    assert sorted(listed) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_what_its_module_has(name: str) -> None:
    assert getattr(bowstring, name) is getattr(importlib.import_module(bowstring._HOME[name]), name)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_object_has_a_docstring(name: str) -> None:
    public = getattr(bowstring, name)
    if inspect.isroutine(public) or inspect.isclass(public):
        assert (public.__doc__ or "").strip()


@pytest.mark.parametrize("name", bowstring._SUBPACKAGES)
def test_a_subpackage_is_an_attribute(name: str) -> None:
    assert getattr(bowstring, name) is sys.modules[f"bowstring.{name}"]


def test_dir_lists_what_there_is() -> None:
    assert {"__version__", *NAMES, *bowstring._SUBPACKAGES} <= set(dir(bowstring))


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = bowstring.no_such_name  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_else() -> None:
    loaded = loaded_after("import bowstring")
    assert not loaded & {"numpy", "pyarrow", "pyspark", "click", "rich", "typing_extensions"}
    assert {module for module in loaded if module.startswith("bowstring")} == {"bowstring"}


def test_the_command_loads_no_numpy_before_a_command_runs() -> None:
    assert not loaded_after("from bowstring.cli.main import main\nmain(['--version'])") & {
        "numpy",
        "pyspark",
        "pyarrow",
    }
