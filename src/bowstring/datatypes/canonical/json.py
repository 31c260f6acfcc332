"""«JSON» of the canonical extension types.

>>> import bowstring as bs
>>> bs.array([{"a": [1, None]}, "3"], bs.datatypes.json_()).to_pylist()
['{"a":[1,null]}', '3']
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from bowstring.datatypes.canonical.parameters import check_storage_type, parse_json, parse_parameters
from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.extension import ExtensionType, register_extension_type
from bowstring.datatypes.types import DataType, LargeUtf8, Utf8, Utf8View
from bowstring.errors import TypeMismatchError


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class JsonType(ExtensionType):
    """JSON text (RFC 8259). Values are strings; other Python objects are serialized to JSON."""

    EXTENSION_NAME: ClassVar[str] = "arrow.json"

    def __post_init__(self) -> None:
        check_storage_type(self.EXTENSION_NAME, self.storage_type, Utf8(), LargeUtf8(), Utf8View())

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> Self:
        """Return the type. Metadata is empty or a JSON object, whose members are ignored."""
        parse_parameters(cls.EXTENSION_NAME, serialized)
        return cls(storage_type)

    def encode(self, value: Any) -> Any:
        """Return a string unchanged, anything else as JSON. Raises `TypeMismatchError` if that is not possible."""
        if isinstance(value, str):
            return value
        try:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeMismatchError(f"{value!r:.60} can't be converted to JSON: {error}") from None

    def check_storage_value(self, value: Any) -> None:
        """Raise `InvalidDataError` if the text is not valid JSON."""
        parse_json(f"{value!r:.60}", value)


def json_(storage_type: TypeLike | None = None) -> JsonType:
    """JSON text, stored as `utf8()` (default), `large_utf8()` or `string_view()`.

    >>> bs.array(['{"a": 1}'], bs.datatypes.json_()).type
    DataType(extension<arrow.json[string]>)
    """
    return JsonType(Utf8() if storage_type is None else as_type(storage_type))
