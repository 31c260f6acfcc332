"""A producer of C structures that counts releases, and creates invalid structures for tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bowstring.memory import c_abi


class Producer:
    """Creates structures and capsules of them, and counts the releases of arrays."""

    _producers: ClassVar[list[Producer]] = []
    """All producers: like C code, their callbacks must outlive the structures, whatever the order of the collector."""

    def __init__(self) -> None:
        self._producers.append(self)
        self.released = 0
        self.references: list[Any] = []
        self._release_schema = c_abi.ReleaseFunction(self._released(c_abi.SchemaStruct, c_abi.SCHEMA_RELEASE))
        self._release_array = c_abi.ReleaseFunction(self._released(c_abi.ArrayStruct, c_abi.RELEASE))

    def _released(self, struct: Any, release: int) -> Any:
        def release_callback(address: int) -> None:
            if release == c_abi.RELEASE:
                self.released += 1
            struct.from_address(address)[release] = 0

        return release_callback

    def _row(self, values: Sequence[int]) -> int:
        row = (ctypes.c_int64 * max(len(values), 1))(*values)
        self.references.append(row)
        return ctypes.addressof(row)

    def text(self, text: bytes) -> int:
        buffer = ctypes.create_string_buffer(text)
        self.references.append(buffer)
        return ctypes.addressof(buffer)

    def values(self, values: Any, dtype: Any = np.int64) -> int:
        array = np.array(values, dtype)
        self.references.append(array)
        address: int = array.__array_interface__["data"][0]
        return address

    def schema(self, text: bytes | None, inner: Sequence[int] = (), name: bytes | None = b"", **fields: int) -> int:
        """Create an ArrowSchema and return its address. `fields` override its members."""
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
        } | fields
        return self._row(list(members.values()))

    def array(self, slots: int, addresses: Sequence[int], inner: Sequence[int] = (), **fields: int) -> int:
        """Create an ArrowArray and return its address. `fields` override its members."""
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
        } | fields
        return self._row(list(members.values()))

    def pair(self, schema: int, array: int) -> tuple[object, object]:
        """Return capsules of a schema and an array, without destructors: unconsumed structures are not released."""
        return self.capsule(schema, c_abi.SCHEMA_CAPSULE), self.capsule(array, c_abi.ARRAY_CAPSULE)

    def capsule(self, address: int, name: bytes) -> object:
        capsule_object: object = c_abi._capsule_new(address, name, None)
        return capsule_object


class SchemaCapsule:
    """An object whose `__arrow_c_schema__` returns this capsule."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __arrow_c_schema__(self) -> object:
        return self.capsule
