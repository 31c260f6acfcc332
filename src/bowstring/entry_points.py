"""Additions of optional sub-packages and other packages, by the scheme of a URI.

They declare it as entry points of a group, named by the scheme, and it is imported when a URI has this scheme.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from bowstring.errors import UnmetRequirementError


class EntryPointGroup:
    """The entry points of a group.

    `own` has Bowstring's, as pyproject.toml declares them: a source checkout has no metadata, or another
    version's. Other packages can't replace them.
    """

    def __init__(self, name: str, own: Mapping[str, str]) -> None:
        self.name = name
        self.own = own

    @cached_property
    def _installed(self) -> dict[str, str]:
        from importlib.metadata import entry_points  # takes 15 ms, which clients of our own transports do not need

        return {entry_point.name: entry_point.value for entry_point in entry_points(group=self.name)}

    @property
    def schemes(self) -> set[str]:
        """The schemes of all entry points. Imports nothing."""
        return {*self.own, *self._installed}

    def load(self, scheme: str) -> Any:
        """Return the object that the entry point of a scheme names; None without one.

        Raises `UnmetRequirementError` if it can't be imported.
        """
        value = self.own.get(scheme) or self._installed.get(scheme)
        try:
            return None if value is None else pkgutil.resolve_name(value)
        except (ImportError, AttributeError, ValueError) as error:
            raise UnmetRequirementError(f"{scheme}: its entry point can't be imported: {error}") from error
