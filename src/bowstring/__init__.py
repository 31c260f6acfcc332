"""Bowstring: Arrow in pure Python and NumPy, and the road that Arrow data takes out of Spark.

Everything public is a name of this package. `import bowstring` itself loads nothing, not even NumPy: a name's module is
imported when the name is first asked for (PEP 562).

To add a public name, write one line in each of the two places below: `_EXPORTS` tells the interpreter where it is, the
imports under `TYPE_CHECKING` tell type checkers and editors. tests/test_exports.py holds that they agree.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bowstring import (
        errors as errors,
    )
    from bowstring.errors import (
        BowstringError as BowstringError,
    )

__version__ = "0.1.0"

_SUBPACKAGES = ("errors",)

_EXPORTS = {
    "bowstring.errors": ("BowstringError",),
}

_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

if not TYPE_CHECKING:  # a type checker would take any name at all for public

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _SUBPACKAGES:
            return import_module(f"bowstring.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'bowstring' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted(["__version__", *_SUBPACKAGES, *_HOME])
