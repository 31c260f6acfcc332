"""The first difference between two schemas, for error messages."""

from __future__ import annotations

from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema


def describe_schema_difference(
    expected: Schema, actual: Schema, check_metadata: bool = False
) -> tuple[str, str] | None:
    """Return the first difference between the fields of two schemas, as the texts of both; None if there is none."""
    if len(expected) != len(actual):
        return f"{len(expected)} columns", str(len(actual))
    for index, (left, right) in enumerate(zip(expected, actual, strict=True)):
        if left != right:
            texts = [str(left), str(right)]
            if texts[0] == texts[1]:  # a difference that a type's text omits, such as the names of a map's fields
                texts = [f"{field} (with {', '.join(_list_nested_fields(field))})" for field in (left, right)]
            return f"column {index} as {texts[0]!r}", repr(texts[1])
        if check_metadata and not left.equals(right, check_metadata=True):
            return f"column {index} ({left.name!r}) with metadata {left.pairs}", str(right.pairs)
    return None


def _list_nested_fields(field: Field) -> list[str]:
    """The nested fields of a field, at all depths, as text."""
    return [text for child in field.type.fields for text in (str(child), *_list_nested_fields(child))]
