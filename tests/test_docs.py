"""The documentation has no dead links, its examples run as tests, and public methods have docstrings.

The examples are separate tests: conftest.py at the root collects the blocks of README.md and docs/, and pytest those of
docstrings (`--doctest-modules`).
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest

import bowstring
import bowstring_networks
import bowstring_testing
from bowstring import datasets, ipc, sharing

pytest_plugins = ["pytester"]

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = sorted(
    page for pattern in ("*.md", "networks/*.md", "testing/*.md", "docs/**/*.md") for page in REPOSITORY.glob(pattern)
)
WITHOUT_EXAMPLE = {
    *(f"bowstring.spark.{name}" for name in ("publish", "publish_stream", "register", "session", "set_java_home")),
    *(f"bowstring.spark.{name}" for name in ("PublishedFrame", "read", "vacuum", "write")),
    "bowstring.follow_published",
    *(f"bowstring.sharing.{name}" for name in ("DeviceTable", "device_table")),
}
"""They need Spark, a GPU, or a class that implements them."""
METHODS_WITHOUT_EXAMPLE = {
    *("from_array_data", "from_lazy_chunks", "from_lazy_columns"),
    *("buffer_values", "compact", "compact_validity", "is_null_at", "require_dictionary", "slice_buffer"),
    *("take_validity", "validity_mask", "with_layout"),
    *("close", "iterate", "seek", "to_host"),
}
"""Methods for other modules of Bowstring, `close`, and one that needs a GPU."""
METHODS = (FunctionType, classmethod, staticmethod, property, functools.cached_property)


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", without_blocks(text))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", without_blocks(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> list[str]:
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_relative_link_has_a_target(page: Path) -> None:
    assert not dead_links(page)


def test_a_dead_link_is_detected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '# A heading\n[here](#a-heading) [there](#nowhere) [file](gone.md "Gone") [web](https://example.org/)\n',
        "utf-8",
    )
    assert dead_links(page) == ["#nowhere", "gone.md"]


def test_a_wrong_example_in_a_page_or_a_docstring_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    pytester.makeconftest((REPOSITORY / "conftest.py").read_text(encoding="utf-8"))
    pytester.makefile(".md", README="```python\nvalue = 1\n```\n\n```python\nassert value == 2\n```\n")
    pytester.makepyfile(module='"""A module.\n\n>>> 1 + 1\n3\n"""\n')
    result = pytester.runpytest_subprocess("--doctest-modules", "-p", "no:cacheprovider", "README.md", "module.py")
    result.assert_outcomes(passed=1, failed=2)


def unbound_names(page: Path) -> set[str]:
    """The names that the Python blocks of a page use but do not bind, also blocks that do not run as tests.

    Each section of README.md is for a process of its own.
    """
    text = page.read_text(encoding="utf-8")
    unbound = set()
    for section in text.split("\n## ") if page.name == "README.md" else [text]:
        nodes = [
            node
            for block in re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
            for node in ast.walk(ast.parse(block))
        ]
        bound: set[str | None] = set(dir(builtins))
        bound |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bound |= {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
        bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler)}
        bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        unbound |= {node.id for node in nodes if isinstance(node, ast.Name)} - bound
    return unbound


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_examples_bind_all_names_that_they_use(page: Path) -> None:
    assert not unbound_names(page)


def undocumented_methods(cls: type) -> Iterator[str]:
    """The public methods and properties that have no docstring, nor override one that has."""
    for name, member in vars(cls).items():
        if name.startswith(("_", "test_")) or not isinstance(member, METHODS):
            continue
        if not any(getattr(vars(base).get(name), "__doc__", None) for base in cls.__mro__):
            yield f"{cls.__module__}.{cls.__qualname__}.{name}"


def test_every_public_method_has_or_inherits_a_docstring() -> None:
    undocumented = []
    for info in (
        *pkgutil.walk_packages(bowstring.__path__, "bowstring."),
        *pkgutil.walk_packages(bowstring_networks.__path__, "bowstring_networks."),
        *pkgutil.walk_packages(bowstring_testing.__path__, "bowstring_testing."),
    ):
        is_optional = info.name in ("bowstring.datasets.torch", "bowstring.datasets.ray")
        if is_optional and importlib.util.find_spec(info.name.rpartition(".")[2]) is None:
            continue  # PyTorch and Ray are not among the packages of the tests
        module = importlib.import_module(info.name)
        classes = [cls for cls in vars(module).values() if inspect.isclass(cls) and cls.__module__ == info.name]
        undocumented += [name for cls in classes if cls.__name__[0] != "_" for name in undocumented_methods(cls)]
    assert not undocumented


def public_callables(package: str) -> Iterator[str]:
    """The public functions and classes of a package, other than exceptions, that are defined in Bowstring."""
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        is_exception = inspect.isclass(value) and issubclass(value, BaseException)
        if callable(value) and not is_exception and getattr(value, "__module__", "").startswith("bowstring"):
            yield f"{package}.{name}"


def has_example(qualified_name: str) -> bool:
    package, _, name = qualified_name.rpartition(".")
    return ">>>" in (getattr(importlib.import_module(package), name).__doc__ or "")


def test_every_public_function_and_class_has_an_example() -> None:
    stubs = REPOSITORY.glob("src/bowstring/**/__init__.pyi")
    packages = [".".join(stub.parent.relative_to(REPOSITORY / "src").parts) for stub in stubs]
    packages.remove("bowstring.compute")  # pyarrow's, with pyarrow's examples
    names = [name for package in packages for name in public_callables(package)]
    assert len(names) > 200
    assert {name for name in names if not has_example(name)} == WITHOUT_EXAMPLE


def test_every_method_of_tables_arrays_schemas_and_data_sets_has_or_inherits_an_example() -> None:
    classes = (
        *(bowstring.Table, bowstring.RecordBatch, bowstring.Array, bowstring.ChunkedArray, bowstring.Scalar),
        *(datasets.Dataset, datasets.PublishedDataset, datasets.EpochReader, sharing.DatasetReader, ipc.StreamReader),
    )
    methods = [
        (cls, name)
        for cls in (*classes, bowstring.Schema, bowstring.Field)
        for name, member in inspect.getmembers(cls, inspect.isroutine)
        if not name.startswith("_") and name not in METHODS_WITHOUT_EXAMPLE and hasattr(cls, name)
    ]
    assert len(methods) > 100
    assert [f"{cls.__name__}.{name}" for cls, name in methods if not has_method_example(cls, name)] == []


def has_method_example(cls: type, name: str) -> bool:
    """Whether a method, or one that it overrides, has an example."""
    return any(">>>" in (getattr(vars(base).get(name), "__doc__", None) or "") for base in cls.__mro__)


def test_a_public_method_without_a_docstring_is_detected() -> None:
    class Base:
        def inherited(self) -> None:
            """Do nothing."""

    class Overriding(Base):
        def inherited(self) -> None: ...

        def new(self) -> None: ...

        @property
        def value(self) -> int:
            return 0

    names = [name.rpartition(".")[2] for name in undocumented_methods(Overriding)]
    assert names == ["new", "value"]


def test_each_terminal_of_the_tutorial_imports_and_assigns_the_names_it_uses() -> None:
    text = (REPOSITORY / "docs/tutorial.md").read_text("utf-8")
    defined: dict[str, set[str]] = {}
    terminal = ""
    for line in re.split(r"(?=^```python\n)|(?<=^```\n)", text, flags=re.MULTILINE):
        if not line.startswith("```python\n"):
            terminal = ["", terminal, *re.findall(r"\b(first|second|third) terminal", line)][-1]
            continue
        tree = ast.parse(line.removeprefix("```python\n").partition("```")[0])
        names = defined.setdefault(terminal, set(dir(builtins)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert used <= names, (terminal, used - names)
    assert set(defined) == {"first", "second", "third"}


@pytest.mark.parametrize("page", sorted(REPOSITORY.glob("docs/reference/*.md")), ids=lambda page: page.stem)
def test_each_reference_page_opens_with_three_examples(page: Path) -> None:
    opening, heading, _ = page.read_text("utf-8").partition("\n## ")
    assert heading
    assert len(re.findall(r"^```(?:python|sh|)\n.*?^```$", opening, re.MULTILINE | re.DOTALL)) >= 3


def test_the_readme_links_ten_pages() -> None:
    text = (REPOSITORY / "README.md").read_text("utf-8")
    assert len(set(re.findall(r"\]\(([^):#]+\.md)[)#]", text))) == 10
