"""Names of data types: pyarrow's aliases, and the `str` of types without children."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches

from bowstring.datatypes import non_nested
from bowstring.datatypes.base import DataType
from bowstring.datatypes.non_nested import SIMPLE_TYPES, Decimal, FixedSizeBinary, FloatingPoint, Int, Timestamp
from bowstring.errors import InvalidArgumentError

_ALIASES: dict[str, DataType] = {
    **{str(t): t for t in SIMPLE_TYPES},
    **{f"{'i' if t.is_signed else 'u'}{t.bit_width // 8}": t for t in SIMPLE_TYPES if isinstance(t, Int)},
    **{f"f{t.bit_width // 8}": t for t in SIMPLE_TYPES if isinstance(t, FloatingPoint)},
    **{f"float{t.bit_width}": t for t in SIMPLE_TYPES if isinstance(t, FloatingPoint)},
    **{f"date{t.bit_width}": t for t in SIMPLE_TYPES if isinstance(t, non_nested.Date)},
    **dict.fromkeys(("boolean", "bool_"), non_nested.Bool()),
    **dict.fromkeys(("str", "utf8"), non_nested.Utf8()),
    **dict.fromkeys(("large_str", "large_utf8"), non_nested.LargeUtf8()),
    "utf8_view": non_nested.Utf8View(),
}
_PARAMETERS: tuple[tuple[str, Callable[[re.Match[str]], DataType]], ...] = (
    (r"timestamp\[(s|ms|us|ns), tz=(.+)\]", lambda match: Timestamp(match[1], match[2])),  # type: ignore[arg-type]
    (r"decimal(32|64|128|256)\((\d+), *(-?\d+)\)", lambda match: Decimal(int(match[2]), int(match[3]), int(match[1]))),
    (r"fixed_size_binary\[(\d+)\]", lambda match: FixedSizeBinary(int(match[1]))),
)


def parse_alias(name: str) -> DataType:
    """Return the data type of a name such as "int64", "float32", "timestamp[us, tz=UTC]" or "decimal128(10, 2)".

    Raises `InvalidArgumentError` for any other name.
    """
    data_type = _ALIASES.get(name)
    if data_type is not None:
        return data_type
    for pattern, create_type in _PARAMETERS:
        match = re.fullmatch(pattern, name)
        if match is not None:
            return create_type(match)
    closest = get_close_matches(name, _ALIASES, 1)
    hint = f"; did you mean {closest[0]!r}?" if closest else ""
    raise InvalidArgumentError(f"{name!r:.100} is not the name of a data type without children, such as 'int64'{hint}")
