"""The `pandas` entry of the schema's custom metadata, which preserves a frame's index, column labels and dtypes.

The format is JSON as specified in pandas' developer guide («Storing pandas DataFrame objects in Apache Parquet format»)
and written by pyarrow.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bowstring.datatypes import types as t
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidDataError
from bowstring.interop.pandas.pandas_api import import_pandas
from bowstring.layouts.type_inference import get_timezone_name

PANDAS_KEY = b"pandas"
_MAX_LABEL_LENGTH = 10_000
"""Maximum length of a multi-level label that is parsed."""


# Writing


def encode_frame_metadata(frame: Any, columns: Sequence[dict[str, Any]], index: Sequence[Any]) -> bytes:
    """Encode the metadata of a frame. `columns` are entries of `describe_column`, `index` has column names or range
    entries.
    """
    labels = frame.columns
    levels = [labels.get_level_values(level) for level in range(labels.nlevels)]
    attributes = frame.attrs
    try:
        json.dumps(attributes)
    except (TypeError, ValueError) as error:
        warnings.warn(f"dropped the frame's attrs, which are not valid JSON: {error}", UserWarning, stacklevel=4)
        attributes = {}
    document = {
        "index_columns": list(index),
        "column_indexes": [_describe_level(level) for level in levels],
        "columns": list(columns),
        "attributes": attributes,
        "creator": {"library": "bowstring", "version": _bowstring_version()},
        "pandas_version": import_pandas().__version__,
    }
    return json.dumps(document).encode()


def _bowstring_version() -> str:
    from importlib import metadata  # takes longer to import than all of this package

    try:
        return metadata.version("bowstring")
    except metadata.PackageNotFoundError:
        return "unknown"


def describe_range(index: Any) -> dict[str, Any]:
    """Describe a range index, which is not stored as a column."""
    return {
        "kind": "range",
        "name": label_to_json(index.name),
        "start": index.start,
        "stop": index.stop,
        "step": index.step,
    }


def describe_column(name: Any, field_name: str, values: Any, type_: t.DataType) -> dict[str, Any]:
    """Describe a column or an index level: its label, field name, pandas dtype and Arrow type."""
    dtype_name, extra = _describe_dtype(values)
    if isinstance(type_, t.Decimal):
        dtype_name, extra = "object", {"precision": type_.precision, "scale": type_.scale}
    return {
        "name": name,
        "field_name": field_name,
        "pandas_type": _pandas_type(type_),
        "numpy_type": dtype_name,
        "metadata": extra,
    }


def _describe_level(level: Any) -> dict[str, Any]:
    dtype_name, extra = _describe_dtype(level)
    pandas_type = import_pandas().api.types.infer_dtype(level, skipna=False)
    if pandas_type == "integer" or pandas_type == "floating" or pandas_type == "boolean":
        pandas_type = dtype_name if dtype_name != "object" else pandas_type
    elif pandas_type == "string" or (pandas_type == "empty" and dtype_name == "str"):
        pandas_type, extra = "unicode", {"encoding": "UTF-8"}
    elif pandas_type.startswith("datetime64"):
        pandas_type = "datetimetz" if getattr(level.dtype, "tz", None) is not None else dtype_name
    name = label_to_json(level.name)
    return {"name": name, "field_name": name, "pandas_type": pandas_type, "numpy_type": dtype_name, "metadata": extra}


def label_to_json(label: Any) -> Any:
    """Convert a label to a JSON value."""
    return label if label is None or isinstance(label, (str, int, float)) else str(label)


def label_to_optional_string(label: Any) -> str | None:
    """Return the string of a label, or None for a missing value (None, NaN, NaT)."""
    return None if label is None or label != label else label_to_string(label)


def label_to_string(label: Any) -> str:
    """Convert a column label to a field name."""
    if isinstance(label, tuple):
        return str(tuple(label_to_string(part) for part in label))
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)


def _describe_dtype(values: Any) -> tuple[str, dict[str, Any] | None]:
    dtype = values.dtype
    if isinstance(dtype, import_pandas().CategoricalDtype):
        codes = getattr(getattr(values, "cat", values), "codes", None)
        return str(getattr(codes, "dtype", "int8")), {
            "num_categories": len(dtype.categories),
            "ordered": bool(dtype.ordered),
        }
    zone = getattr(dtype, "tz", None)
    if zone is not None:
        return f"datetime64[{dtype.unit}]", {"timezone": get_timezone_name(zone)}
    return str(dtype), None


_PANDAS_TYPES: dict[type[t.DataType], Any] = {
    t.Null: "empty",
    t.Bool: "bool",
    t.Int: lambda type_: f"{'' if type_.is_signed else 'u'}int{type_.bit_width}",
    t.FloatingPoint: lambda type_: f"float{type_.bit_width}",
    t.Date: "date",
    t.Time: "time",
    t.Binary: "bytes",
    t.FixedSizeBinary: "bytes",
    t.Utf8: "unicode",
    t.Dictionary: "categorical",
    t.Timestamp: lambda type_: "datetime" if type_.timezone is None else "datetimetz",
    t.Decimal: "decimal",
    t.List: lambda type_: f"list[{_pandas_type(type_.fields[0].type)}]",
}


def _pandas_type(type_: t.DataType) -> str:
    name = _PANDAS_TYPES.get(type(type_), "object")
    return str(name(type_)) if callable(name) else str(name)


# Reading


@dataclass(frozen=True, slots=True)
class FrameMetadata:
    """The parsed metadata: columns and index levels by field name, the index, and the levels of the column labels."""

    columns: dict[str, dict[str, Any]]
    index: tuple[str | dict[str, Any], ...]
    label_levels: tuple[dict[str, Any], ...]
    attributes: dict[Any, Any]


def read_frame_metadata(schema: Schema) -> FrameMetadata | None:
    """Read the pandas metadata of a schema, if any.

    Raises `InvalidDataError` if it is malformed.
    """
    text = schema.metadata.get(PANDAS_KEY) if schema.metadata else None
    if text is None:
        return None
    try:
        return _parse_frame_metadata(json.loads(text))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise InvalidDataError(
            f"the schema's 'pandas' metadata is malformed ({type(error).__name__}: {error}); "
            "to_pandas(ignore_metadata=True) ignores it"
        ) from None


def _parse_frame_metadata(document: Any) -> FrameMetadata:
    index = []
    for entry in document["index_columns"]:
        if isinstance(entry, dict):
            if entry["kind"] != "range":
                raise ValueError(f"unknown index kind {entry['kind']!r}")
            if max(abs(bound) for bound in (entry["start"], entry["stop"], entry["step"])) >= 1 << 62:
                raise ValueError("range bounds exceed 62 bits")
            range(entry["start"], entry["stop"], entry["step"])
        elif not isinstance(entry, str):
            raise TypeError(f"expected the name of an index column, found {entry!r:.50}")
        index.append(entry)
    columns = {}
    for entry in document["columns"]:
        field_name = entry.get("field_name")
        field_name = label_to_string(entry["name"]) if field_name is None else field_name
        if not isinstance(field_name, str) or not isinstance(entry["numpy_type"], str):
            raise TypeError(f"expected strings for the field name and numpy type of column {field_name!r:.50}")
        columns[field_name] = {"name": entry["name"], "numpy_type": entry["numpy_type"]}
    levels = tuple(
        {key: level.get(key) for key in ("name", "pandas_type", "numpy_type", "metadata")}
        for level in document.get("column_indexes") or ()
    )
    attributes = document.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise TypeError("expected the attributes to be an object")
    return FrameMetadata(columns, tuple(index), levels, attributes)


def restore_labels(names: Sequence[str], frame_metadata: FrameMetadata | None) -> Any:
    """Restore the column labels of a frame from the field names and the metadata, if any."""
    pd = import_pandas()
    if frame_metadata is None:
        return pd.Index(names)
    labels = [frame_metadata.columns[name]["name"] if name in frame_metadata.columns else name for name in names]
    levels = frame_metadata.label_levels
    if len(levels) > 1:
        tuples = [_parse_tuple_label(str(label), len(levels)) for label in labels]
        level_labels = [[label[i] for label in tuples] for i in range(len(levels))]
        index_levels = [
            _restore_level(level_values, level) for level_values, level in zip(level_labels, levels, strict=True)
        ]
        return pd.MultiIndex.from_arrays(index_levels, names=[level["name"] for level in levels])
    level = levels[0] if levels else {}
    return _restore_level(labels, level).rename(level.get("name"))


def _parse_tuple_label(text: str, num_levels: int) -> tuple[Any, ...]:
    """Parse the text of a multi-level label. Raises `InvalidDataError` if it is not a tuple of that length."""
    try:
        label = ast.literal_eval(text) if len(text) <= _MAX_LABEL_LENGTH else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        label = None
    if not isinstance(label, tuple) or len(label) != num_levels:
        raise InvalidDataError(
            f"expected a column label of {num_levels} levels, as in the metadata, found {text!r:.80}"
        )
    return label


def _restore_level(names: Sequence[Any], level: dict[str, Any]) -> Any:
    """Convert labels to the dtype in the metadata, or leave them unchanged if that fails."""
    pd = import_pandas()
    labels = pd.Index(names)
    pandas_type, dtype = level.get("pandas_type"), level.get("numpy_type")
    try:
        if pandas_type == "datetimetz":
            zone = (level.get("metadata") or {}).get("timezone")
            timestamps = pd.to_datetime(labels, utc=True).tz_convert(zone)
            return timestamps.as_unit(str(dtype)[len("datetime64[") : -1])
        if pandas_type == "bytes":
            return pd.Index([name.encode() for name in names], dtype=object)
        if isinstance(dtype, str) and dtype not in ("object", "str"):
            return labels.astype(dtype)
        if pandas_type == "integer":  # Python integers
            return labels.astype("int64").astype(object)
        if dtype == "object" and pandas_type not in ("unicode", "string") and not str(pandas_type).startswith("mixed"):
            return labels.astype(object)
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError):
        return labels
    return labels
