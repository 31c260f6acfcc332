"""Declarations of the structures and functions of C libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from bowstring.errors import UnmetRequirementError

Prototypes: TypeAlias = Mapping[str, tuple[Any, tuple[Any, ...]]]
"""The return type and the types of the arguments of functions, by name."""


def members(kind: Any, names: str) -> list[tuple[str, Any]]:
    """Return the `_fields_` of consecutive members of one type, as `uint64_t first, second;` in C."""
    return [(name, kind) for name in names.split()]


def declare_functions(library: Any, prototypes: Prototypes, name: str, requirement: str) -> None:
    """Set the types of a library's functions. Raises `UnmetRequirementError`, with both texts, if it lacks one."""
    for function, (return_type, arguments) in prototypes.items():
        pointer = getattr(library, function, None)
        if pointer is None:
            raise UnmetRequirementError(f"{name} has no {function}: {requirement} is needed")
        pointer.restype, pointer.argtypes = return_type, arguments
