"""C structures made by hand: of producers that count their releases, and break the rules if a test wants them to."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.interop import c_abi


class Producer:
    """Makes structures and capsules over them; counts how often each of its structures is released."""

    def __init__(self) -> None:
        self.released = 0
        self.held: list[Any] = []
        self._release_schema = c_abi.ReleaseFunction(self._released(c_abi.SchemaStruct, c_abi.SCHEMA_RELEASE))
        self._release_array = c_abi.ReleaseFunction(self._released(c_abi.ArrayStruct, c_abi.RELEASE))

    def _released(self, words: Any, release: int) -> Any:
        def called(address: int) -> None:
            if release == c_abi.RELEASE:
                self.released += 1
            words.from_address(address)[release] = 0

        return called

    def _row(self, values: Sequence[int]) -> int:
        row = (ctypes.c_int64 * max(len(values), 1))(*values)
        self.held.append(row)
        return ctypes.addressof(row)

    def text(self, text: bytes) -> int:
        buffer = ctypes.create_string_buffer(text)
        self.held.append(buffer)
        return ctypes.addressof(buffer)

    def values(self, values: Any, dtype: Any = np.int64) -> int:
        array = np.array(values, dtype)
        self.held.append(array)
        address: int = array.__array_interface__["data"][0]
        return address

    def schema(self, text: bytes | None, inner: Sequence[int] = (), name: bytes | None = b"", **words: int) -> int:
        """An ArrowSchema; its address. `words` overrules any member."""
        members = {
            "format": 0 if text is None else self.text(text),
            "name": 0 if name is None else self.text(name),
            "metadata": 0,
            "flags": 2,
            "n_children": len(inner),
            "children": self._row(inner) if inner else 0,
            "dictionary": 0,
            "release": c_abi.function_address(self._release_schema),
            "private_data": 0,
        } | words
        return self._row(list(members.values()))

    def array(self, slots: int, addresses: Sequence[int], inner: Sequence[int] = (), **words: int) -> int:
        """An ArrowArray; its address. `words` overrules any member."""
        members = {
            "length": slots,
            "null_count": 0,
            "offset": 0,
            "n_buffers": len(addresses),
            "n_children": len(inner),
            "buffers": self._row(addresses),
            "children": self._row(inner) if inner else 0,
            "dictionary": 0,
            "release": c_abi.function_address(self._release_array),
            "private_data": 0,
        } | words
        return self._row(list(members.values()))

    def pair(self, schema: int, array: int) -> tuple[object, object]:
        """Capsules over a schema and an array, without destructors: what is not taken is not released."""
        return self.capsule(schema, c_abi.SCHEMA_CAPSULE), self.capsule(array, c_abi.ARRAY_CAPSULE)

    def capsule(self, address: int, name: bytes) -> object:
        made: object = c_abi._capsule_new(address, name, None)
        return made
