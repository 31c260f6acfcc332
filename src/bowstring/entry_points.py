"""Transports, connectors and drivers of devices that other packages add, such as `bowstring-networks`.

They declare it as entry points of a group, by the scheme of a URI or the kind of devices, and it is imported on first
use.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from bowstring.errors import MissingExtraError, UnmetRequirementError, format_install_command


class EntryPointGroup:
    """The entry points of a group.

    `extras` has those of `bowstring-networks`, each with the extra that installs it, for the error without them.
    """

    def __init__(self, name: str, extras: Mapping[str, str]) -> None:
        self.name = name
        self.extras = extras

    @cached_property
    def _installed(self) -> dict[str, str]:
        from importlib.metadata import entry_points  # takes 15 ms, which clients of our own transports do not need

        # Of several with a name, the one whose package comes first in `sys.path`, as of modules.
        return {entry_point.name: entry_point.value for entry_point in reversed(entry_points(group=self.name))}

    @property
    def names(self) -> set[str]:
        """The names of all entry points, also of those that are not installed. Imports nothing."""
        return {*self.extras, *self._installed}

    def load(self, name: str) -> Any:
        """Return the object that an entry point names; None without one.

        Raises `MissingExtraError` without `bowstring-networks` if it has the entry point, and `UnmetRequirementError`
        if the object can't be imported.
        """
        value = self._installed.get(name)
        if value is None and name in self.extras:
            command = format_install_command(self.extras[name], "bowstring-networks")
            raise MissingExtraError(f"{name}: bowstring-networks is not installed: {command}")
        try:
            return None if value is None else pkgutil.resolve_name(value)
        except (ImportError, AttributeError, ValueError) as error:
            raise UnmetRequirementError(f"{name}: its entry point can't be imported: {error}") from error
