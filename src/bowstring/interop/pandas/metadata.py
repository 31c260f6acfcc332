"""The schema's custom metadata under the key `pandas`, by which a frame keeps its index, its column labels and its
dtypes on the way through Arrow: JSON as pandas' developer guide («Storing pandas DataFrame objects in Apache Parquet
format») states it and pyarrow writes it.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from bowstring.arrays.type_inference import timezone_name
from bowstring.datatypes import types as t
from bowstring.datatypes.field import Schema
from bowstring.errors import InvalidDataError
from bowstring.interop.pandas.library import pandas

KEY = b"pandas"
_MAX_LABEL = 10_000
"""The longest text of a label of several levels that is taken apart."""


# What is written


def described(frame: Any, columns: Sequence[dict[str, Any]], index: Sequence[Any]) -> bytes:
    """The metadata of a frame: `columns` as `column_entry` describes them, `index` the name of a column or a range."""
    labels = frame.columns
    levels = [labels.get_level_values(number) for number in range(labels.nlevels)]
    attributes = frame.attrs
    try:
        json.dumps(attributes)
    except (TypeError, ValueError) as error:
        warnings.warn(f"the frame's attrs are left out: {error}", UserWarning, stacklevel=4)
        attributes = {}
    said = {
        "index_columns": list(index),
        "column_indexes": [_level_entry(level) for level in levels],
        "columns": list(columns),
        "attributes": attributes,
        "creator": {"library": "bowstring", "version": _version()},
        "pandas_version": pandas().__version__,
    }
    return json.dumps(said).encode()


def _version() -> str:
    try:
        return metadata.version("bowstring")
    except metadata.PackageNotFoundError:
        return "unknown"


def range_entry(index: Any) -> dict[str, Any]:
    """The entry of an index that is a range, which takes no column."""
    return {"kind": "range", "name": plain(index.name), "start": index.start, "stop": index.stop, "step": index.step}


def column_entry(name: Any, field_name: str, values: Any, type_: t.DataType) -> dict[str, Any]:
    """The entry of a column or of a level of the index, whose `values` have a dtype and whose Arrow type is given."""
    shown, extra = _dtype_of(values)
    if isinstance(type_, t.Decimal):
        shown, extra = "object", {"precision": type_.precision, "scale": type_.scale}
    return {
        "name": name,
        "field_name": field_name,
        "pandas_type": _logical(type_),
        "numpy_type": shown,
        "metadata": extra,
    }


def _level_entry(level: Any) -> dict[str, Any]:
    shown, extra = _dtype_of(level)
    kind = pandas().api.types.infer_dtype(level, skipna=False)
    if kind == "integer" or kind == "floating" or kind == "boolean":
        kind = shown if shown != "object" else kind
    elif kind == "string" or (kind == "empty" and shown == "str"):
        kind, extra = "unicode", {"encoding": "UTF-8"}
    elif kind.startswith("datetime64"):
        kind = "datetimetz" if getattr(level.dtype, "tz", None) is not None else shown
    name = plain(level.name)
    return {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": shown, "metadata": extra}


def plain(name: Any) -> Any:
    """A name as JSON can say it."""
    return name if name is None or isinstance(name, (str, int, float)) else str(name)


def name_of(label: Any) -> str | None:
    """A label as the metadata has it: None where it is one of pandas' missing values, which differ from themselves."""
    return None if label is None or label != label else label_text(label)


def label_text(name: Any) -> str:
    """A label of a column as the name of a field."""
    if isinstance(name, tuple):
        return str(tuple(label_text(part) for part in name))
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _dtype_of(values: Any) -> tuple[str, dict[str, Any] | None]:
    dtype = values.dtype
    if isinstance(dtype, pandas().CategoricalDtype):
        codes = getattr(getattr(values, "cat", values), "codes", None)
        return str(getattr(codes, "dtype", "int8")), {
            "num_categories": len(dtype.categories),
            "ordered": bool(dtype.ordered),
        }
    zone = getattr(dtype, "tz", None)
    if zone is not None:
        return f"datetime64[{dtype.unit}]", {"timezone": timezone_name(zone)}
    return str(dtype), None


_LOGICAL: dict[type[t.DataType], Any] = {
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
    t.List: lambda type_: f"list[{_logical(type_.fields[0].type)}]",
}


def _logical(type_: t.DataType) -> str:
    found = _LOGICAL.get(type(type_), "object")
    return str(found(type_)) if callable(found) else str(found)


# What is read


@dataclass(frozen=True, slots=True)
class Description:
    """What the metadata says: columns and levels of the index by their field's name, the index, labels' levels."""

    columns: dict[str, dict[str, Any]]
    index: tuple[str | dict[str, Any], ...]
    levels: tuple[dict[str, Any], ...]
    attributes: dict[Any, Any]


def read(schema: Schema) -> Description | None:
    """What a schema's metadata says of the frame it was; None where it says nothing.

    Raises `InvalidDataError` where it is not as it should be.
    """
    text = schema.metadata.get(KEY) if schema.metadata else None
    if text is None:
        return None
    try:
        said = json.loads(text)
        return _checked(said)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise InvalidDataError(
            f"the schema's metadata 'pandas' is not as pandas states it ({type(error).__name__}: {error}); "
            "to_pandas(ignore_metadata=True) goes without"
        ) from None


def _checked(said: Any) -> Description:
    index = []
    for entry in said["index_columns"]:
        if isinstance(entry, dict):
            if entry["kind"] != "range":
                raise ValueError(f"an index of kind {entry['kind']!r}")
            if max(abs(bound) for bound in (entry["start"], entry["stop"], entry["step"])) >= 1 << 62:
                raise ValueError("a range beyond 62 bits")
            range(entry["start"], entry["stop"], entry["step"])
        elif not isinstance(entry, str):
            raise TypeError(f"an index column is {entry!r:.50}")
        index.append(entry)
    columns = {}
    for entry in said["columns"]:
        field_name = entry.get("field_name")
        field_name = label_text(entry["name"]) if field_name is None else field_name
        if not isinstance(field_name, str) or not isinstance(entry["numpy_type"], str):
            raise TypeError(f"the entry of column {field_name!r:.50} has no text where it should")
        columns[field_name] = {"name": entry["name"], "numpy_type": entry["numpy_type"]}
    levels = tuple(
        {key: level.get(key) for key in ("name", "pandas_type", "numpy_type", "metadata")}
        for level in said.get("column_indexes") or ()
    )
    attributes = said.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise TypeError("the attributes are no object")
    return Description(columns, tuple(index), levels, attributes)


def labels(names: Sequence[str], description: Description | None) -> Any:
    """The labels of columns with these field names, as pandas' index of columns."""
    pd = pandas()
    if description is None:
        return pd.Index(names)
    own = [description.columns.get(name, {}).get("name") for name in names]
    shown = [
        name if said is None and name not in description.columns else said
        for name, said in zip(names, own, strict=True)
    ]
    levels = description.levels
    if len(levels) > 1:
        tuples = [_apart(str(name), len(levels)) for name in shown]
        columns = [[one[number] for one in tuples] for number in range(len(levels))]
        parts = [_level(part, level) for part, level in zip(columns, levels, strict=True)]
        return pd.MultiIndex.from_arrays(parts, names=[level["name"] for level in levels])
    level = levels[0] if levels else {}
    return _level(shown, level).rename(level.get("name"))


def _apart(text: str, size: int) -> tuple[Any, ...]:
    """A label of several levels; raises `InvalidDataError` where the text spells none."""
    try:
        found = ast.literal_eval(text) if len(text) <= _MAX_LABEL else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, tuple) or len(found) != size:
        raise InvalidDataError(f"the column name {text!r:.80} is no label of {size} levels, but the metadata says so")
    return found


def _level(names: Sequence[Any], level: dict[str, Any]) -> Any:
    """Labels of the dtype that they had, where that can be found; else as they are."""
    pd = pandas()
    made = pd.Index(names)
    kind, dtype = level.get("pandas_type"), level.get("numpy_type")
    try:
        if kind == "datetimetz":
            zone = (level.get("metadata") or {}).get("timezone")
            moments = pd.to_datetime(made, utc=True).tz_convert(zone)
            return moments.as_unit(str(dtype)[len("datetime64[") : -1])
        if kind == "bytes":
            return pd.Index([name.encode() for name in names], dtype=object)
        if isinstance(dtype, str) and dtype not in ("object", "str"):
            return made.astype(dtype)
        if dtype == "object" and kind not in ("unicode", "string") and not str(kind).startswith("mixed"):
            return made.astype(object)
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError):
        return made
    return made
