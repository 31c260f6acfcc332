"""Public names that are imported on first use (PEP 562).

`import bowstring` loads nothing, not even NumPy. Each public name is listed twice in the `__init__.py` of its package:
in the table for `lazy_exports`, and in the imports under `TYPE_CHECKING` for type checkers and editors.
tests/test_exports.py compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence


def lazy_exports(
    package: str, names: Mapping[str, Sequence[str]], subpackages: Sequence[str] = ()
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package.

    `names` has the public names of each module, given by its path within `package`. `subpackages` are imported on first
    access, too, but are not in `__all__`.
    """
    modules = {name: f"{package}.{module}" for module, exported in names.items() for name in exported}

    def get_attribute(name: str) -> object:
        from importlib import import_module

        if name in subpackages:
            return import_module(f"{package}.{name}")
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *subpackages, *modules})

    return sorted(modules), get_attribute, list_names
