"""Declarations of the structures of C libraries."""

from __future__ import annotations

from typing import Any


def members(kind: Any, names: str) -> list[tuple[str, Any]]:
    """Return the `_fields_` of consecutive members of one type, as `uint64_t first, second;` in C."""
    return [(name, kind) for name in names.split()]
