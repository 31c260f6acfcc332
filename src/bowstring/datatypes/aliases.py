"""The data types of names, such as "int64" and pyarrow's aliases."""

from __future__ import annotations

import re
from collections.abc import Callable

from bowstring.datatypes.field import DataType
from bowstring.datatypes.non_nested import SIMPLE_TYPES, Decimal, FixedSizeBinary, Timestamp
from bowstring.errors import InvalidArgumentError, suggest

_ALIASES: dict[str, DataType] = {name: data_type for data_type in SIMPLE_TYPES for name in data_type.aliases()}
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
    raise InvalidArgumentError(
        f"{name!r:.100} is not the name of a data type without children, such as 'int64'{suggest(name, _ALIASES)}"
    )
