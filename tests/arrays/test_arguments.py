"""Each argument of the public constructors is honoured or rejected, for every kind of input."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from tests.parameter_ids import parameter_id

VALUES = {"a": [300, 4], "b": ["x", "y"]}


class ArrowStream:
    """Exports only the stream interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table(VALUES).__arrow_c_stream__(requested_schema)


class ArrowArray:
    """Exports only the array interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return pa.record_batch(VALUES).__arrow_c_array__(requested_schema)


NAMED: dict[str, Callable[[], Any]] = {
    "a dictionary": lambda: VALUES,
    "a dictionary of arrays": lambda: {name: bs.array(values) for name, values in VALUES.items()},
    "rows": lambda: [{"a": 300, "b": "x"}, {"a": 4, "b": "y"}],
    "our batch": lambda: bs.record_batch(VALUES),
    "pandas": lambda: pd.DataFrame(VALUES),
    "a pyarrow batch": lambda: pa.record_batch(VALUES),
    "an Arrow array": ArrowArray,
    "our table": lambda: bs.table(VALUES),
    "Polars": lambda: pl.DataFrame(VALUES),
    "a pyarrow table": lambda: pa.table(VALUES),
    "a pyarrow reader": lambda: pa.table(VALUES).to_reader(),
    "an Arrow stream": ArrowStream,
}
STREAMS = ("our table", "Polars", "a pyarrow table", "a pyarrow reader", "an Arrow stream")
UNNAMED: dict[str, Callable[[], Any]] = {
    "lists": lambda: list(VALUES.values()),
    "arrays": lambda: [bs.array(values) for values in VALUES.values()],
    "a tuple": lambda: tuple(map(np.array, VALUES.values())),
}
CONSTRUCTORS: list[Callable[..., Any]] = [bs.table, bs.record_batch]


def cases(kinds: dict[str, Callable[[], Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("construct", "create"),
        [
            pytest.param(construct, create, id=f"{construct.__name__} of {kind}")
            for construct in CONSTRUCTORS
            for kind, create in kinds.items()
            if construct is bs.table or kind not in STREAMS
        ],
    )


@cases(NAMED)
def test_a_schema_selects_named_columns_and_sets_their_types(construct: Any, create: Callable[[], Any]) -> None:
    data = construct(create(), bs.schema({"a": "int64"}, metadata={"k": "v"}))
    assert data.to_pydict() == {"a": [300, 4]}
    assert data.schema.types == ["int64"]
    assert data.schema.metadata[b"k"] == b"v"
    if not isinstance(create(), dict | list):
        assert construct(create(), {"a": "float32"}).column("a").to_pylist() == [300.0, 4.0]
        assert construct(create(), [("b", "large_string"), ("a", "int16")]).schema.types == ["large_string", "int16"]


@cases(NAMED)
def test_a_schema_that_does_not_fit_named_columns_is_rejected(construct: Any, create: Callable[[], Any]) -> None:
    for schema in ({"q": "int8"}, {"a": "int64", "q": "string"}):
        if not isinstance(create(), list):  # missing members of rows are nulls
            with pytest.raises(InvalidArgumentError, match="'q'"):
                construct(create(), schema)
    with pytest.raises(TypeMismatchError):
        construct(create(), {"a": "int8"})


@cases(NAMED)
def test_names_for_named_columns_are_rejected(construct: Any, create: Callable[[], Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="`names` are for a sequence of columns"):
        construct(create(), names=["q", "r"])


@cases({**NAMED, **UNNAMED})
def test_metadata_replaces_that_of_the_schema(construct: Any, create: Callable[[], Any]) -> None:
    names = ["a", "b"] if isinstance(create(), (list, tuple)) and not isinstance(create()[0], dict) else None
    data = construct(create(), names=names, metadata={"k": "v"})
    assert data.schema.metadata[b"k"] == b"v"
    assert data.to_pydict() == VALUES
    schema = bs.schema({"a": "int64", "b": "string"}, metadata={"other": "x"})
    replaced = construct(create(), schema, metadata={"k": "v"}).schema.metadata
    assert replaced.pop(b"k") == b"v"
    assert replaced.keys() <= {b"pandas"}, "the description of index and labels"


@cases(UNNAMED)
def test_a_sequence_of_columns_takes_names_or_a_schema(construct: Any, create: Callable[[], Any]) -> None:
    assert construct(create(), names=["q", "r"]).column_names == ["q", "r"]
    assert construct(create(), {"q": "int64", "r": "string"}).column_names == ["q", "r"]
    with pytest.raises(InvalidArgumentError, match="names"):
        construct(create())
    with pytest.raises(InvalidArgumentError, match="expected `names` or a `schema`, found both"):
        construct(create(), ["q", "r"], {"q": "int64", "r": "string"})
    with pytest.raises(InvalidArgumentError):
        construct(create(), {"q": "int64"})


def test_a_batch_is_not_created_of_a_stream_of_batches() -> None:
    for kind in STREAMS:
        with pytest.raises(TypeMismatchError, match=r"use bowstring\.table"):
            bs.record_batch(NAMED[kind]())


def test_nulls_of_a_column_that_is_not_nullable_are_rejected() -> None:
    schema = bs.schema([bs.field("a", "int64", nullable=False)])
    inputs: list[Any] = [pa.table({"a": [1, None]}), bs.table({"a": [1, None]}), pd.DataFrame({"a": [1.0, None]})]
    inputs += [{"a": [1, None]}, [[1, None]], [{"a": 1}, {"a": None}], [{"a": 1}, {}], [bs.array([1, None])]]
    for data in [*inputs, {"a": bs.table({"a": [1, None]})["a"]}]:
        with pytest.raises(TypeMismatchError, match="null"):
            bs.table(data, schema)


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, None],
        (1, 2, None),
        range(1, 4),
        np.array([1, 2, 3]),
        np.ma.array([1, 2, 3], mask=[False, False, True]),
        pd.Series([1, 2, None]),
        pd.Series([1, 2, None], dtype="Int64"),
        pl.Series([1, 2, None]),
        pa.array([1, 2, None]),
        pa.chunked_array([[1], [2, None]]),
        bs.array([1, 2, None]),
        bs.array([0, 1, 2, None]).slice(1),
        bs.table({"a": [1, 2, None]}).column("a"),
        bs.array([1, 2, None], bs.run_end_encoded(bs.int32(), bs.int64())),
        bs.array([1, 2, None], bs.dictionary(bs.int8(), bs.int64())),
        bs.array([{"a": 1}, {"a": 2}, None]),
        bs.array([[1], [2], None]),
        bs.array(["x", "y", None], bs.string_view()),
        bs.array([None, None, None]),
    ],
    ids=lambda values: f"{type(values).__module__}.{type(values).__name__}",
)
def test_a_mask_marks_nulls_of_any_values(values: Any) -> None:
    expected = bs.array(values).to_pylist()
    masked = bs.array(values, mask=[True, False, False])
    masked.validate(full=True)
    assert masked.to_pylist() == [None, *expected[1:]]
    assert bs.array(values, mask=np.zeros(3, bool)).to_pylist() == expected
    for mask in ([True], [True] * 4, [1, 0, 0], [[True, False, False]], ["x", "y", "z"]):
        with pytest.raises(InvalidArgumentError, match=r"expected a mask of booleans of shape \(3,\)"):
            bs.array(values, mask=mask)  # type: ignore[arg-type]


def test_a_matrix_of_rows_is_not_taken_for_columns() -> None:
    matrix = np.arange(6).reshape(3, 2)
    records = np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])
    for construct in CONSTRUCTORS:
        for values in (matrix, records):
            with pytest.raises(TypeMismatchError, match="found a NumPy array of shape"):
                construct(values, names=["a", "b", "c"])
        assert construct(list(matrix.T), names=["a", "b"]).to_pydict() == {"a": [0, 2, 4], "b": [1, 3, 5]}
        assert construct(bs.array(records)).to_pydict() == {"a": [1], "b": [2.5]}


def test_a_stream_is_not_read_if_its_arguments_are_invalid() -> None:
    reader = pa.table(VALUES).to_reader()
    with pytest.raises(InvalidArgumentError, match="names"):
        bs.table(reader, names=["q", "r"])
    assert bs.table(reader).num_rows == 2


@pytest.mark.parametrize("from_arrays", [bs.Table.from_arrays, bs.RecordBatch.from_arrays])
def test_from_arrays_takes_names_or_a_schema(from_arrays: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="expected `names` or a `schema`, found both"):
        from_arrays([bs.array([1])], ["q"], {"a": "int64"})


def test_a_dictionary_is_not_an_array_of_its_keys() -> None:
    with pytest.raises(TypeMismatchError, match="expected a sequence of values, found"):
        bs.array({"a": 300})
    with pytest.raises(InvalidArgumentError, match="names"):
        bs.table([{"a": 300}], names=["q"])


@pytest.mark.parametrize(
    ("name", "data_type"),
    [
        ("int64", bs.int64()), ("i8", bs.int64()), ("double", bs.float64()), ("float64", bs.float64()),
        ("string", bs.string()), ("utf8", bs.string()), ("bool", bs.bool_()), ("date32", bs.date32()),
        ("timestamp[us]", bs.timestamp("us")), ("timestamp[us, tz=UTC]", bs.timestamp("us", "UTC")),
        ("decimal128(10, 2)", bs.decimal128(10, 2)), ("decimal128(10,2)", bs.decimal128(10, 2)),
        ("fixed_size_binary[4]", bs.binary(4)), ("month_interval", bs.month_interval()), ("null", bs.null()),
    ],
    ids=parameter_id,
)  # fmt: skip
def test_a_type_equals_its_names(name: str, data_type: bs.DataType) -> None:
    assert data_type == name
    assert name == data_type
    assert data_type == bs.datatypes.as_type(name)
    assert data_type != "int31"
    assert data_type != bs.list_(data_type)
    assert {data_type: "x"}[bs.datatypes.as_type(name)] == "x"
    assert {str(data_type): "x"}[data_type] == "x"  # type: ignore[index]
    assert pickle.loads(pickle.dumps(data_type)) == name


def test_types_of_one_name_are_equal_and_others_differ() -> None:
    types = [bs.datatypes.as_type(name) for name in ("int8", "int16", "uint8", "float", "double", "string", "binary")]
    types += [bs.timestamp(unit) for unit in ("s", "ms", "us", "ns")] + [bs.duration("s"), bs.decimal128(5, 2)]
    types += [bs.timestamp("s", "UTC"), bs.decimal64(5, 2), bs.decimal128(5, 1), bs.binary(1), bs.binary(2)]
    assert [types.index(data_type) for data_type in types] == list(range(len(types)))
    assert len(set(types)) == len(types)


def test_public_classes_reject_what_their_functions_convert() -> None:
    for construct, function in (
        (lambda: bs.Schema([("a", "int64")]), "bowstring.schema"),  # type: ignore[arg-type]
        (lambda: bs.Schema(("a",)), "bowstring.schema"),  # type: ignore[arg-type]
        (lambda: bs.Field("a", "int64"), "bowstring.field"),  # type: ignore[arg-type]
        (lambda: bs.Table({"a": [1]}), "bowstring.table"),  # type: ignore[arg-type]
        (lambda: bs.RecordBatch({"a": [1]}), "bowstring.record_batch"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidArgumentError, match=function):
            construct()
    with pytest.raises(InvalidArgumentError, match="name is a string"):
        bs.Field(1, bs.int64())  # type: ignore[arg-type]
    batch = bs.record_batch({"a": [1]})
    with pytest.raises(InvalidArgumentError, match="batch 0 has another schema"):
        bs.Table(bs.schema({"b": "int64"}), [batch])
    with pytest.raises(InvalidArgumentError, match="a schema of 1 fields does not fit 2 columns"):
        bs.RecordBatch(batch.schema, 1, [*batch.columns, *batch.columns])


@pytest.mark.parametrize(
    ("value", "type_", "reason"),
    [
        (300, "int8", ": out of range"),
        (-1, "uint32", ": out of range"),
        (1 << 70, "int64", ": out of range"),
        (10**400, "double", ": out of range"),
        (datetime.max, "timestamp[ns]", ": out of range"),
        ((1, 2, 1 << 70), "month_day_nano_interval", ": out of range"),
        ("a", "int8", ""),
        (1.5, "int64", ": not a whole number"),
        ("x", "float", ""),
        ("a", "month_interval", ""),
        ("x", "date32[day]", ": not a date"),
    ],
    ids=parameter_id,
)
def test_a_value_that_does_not_fit_is_reported_without_text_of_the_interpreter(
    value: Any, type_: str, reason: str
) -> None:
    with pytest.raises(TypeMismatchError) as error:
        bs.array([None, value], type_)
    assert str(error.value).endswith(f" cannot be converted to {type_}{reason}")


def test_errors_name_the_cause_and_not_the_interpreter() -> None:
    with pytest.raises(TypeMismatchError, match=r"value 1: 300 cannot be converted to int8: out of range$"):
        bs.array([1, 300], "int8")
    with pytest.raises(InvalidArgumentError, match=r"found one: write \[table\]"):
        bs.concat_tables(bs.table(VALUES))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"found one: write \[array\]"):
        bs.concat_arrays(bs.array([1]))
    with pytest.raises(InvalidArgumentError, match=r"found one: write \[batch\]"):
        bs.Table.from_batches(bs.record_batch(VALUES))  # type: ignore[arg-type]
    tables: list[Any] = [bs.table(VALUES), bs.record_batch(VALUES)]
    for columns in tables:
        with pytest.raises(InvalidArgumentError, match="add_column: the index of a column"):
            columns.add_column("c", [1, 2])
        with pytest.raises(InvalidArgumentError, match="expected a sequence of values, found None"):
            columns.append_column("c")
        with pytest.raises(InvalidArgumentError, match="expected a sequence of values, found None"):
            columns.set_column(0, "c")
    sink = io.BytesIO()
    with (
        bs.new_file(sink, bs.table(VALUES).schema) as writer,
        pytest.raises(TypeError, match="FileWriter can't be pickled"),
    ):
        pickle.dumps(writer)
    with (
        bs.open_file(sink.getvalue()) as reader,
        pytest.raises(TypeError, match="a FileReader can't be pickled: open it in the other process"),
    ):
        pickle.dumps(reader)


def test_no_rows_with_a_schema_are_an_empty_table() -> None:
    schema = bs.schema({"a": "int64", "b": "string"})
    for construct in CONSTRUCTORS:
        assert construct([], schema).to_pydict() == {"a": [], "b": []}
        assert construct([], schema, metadata={"k": "v"}).schema.metadata == {b"k": b"v"}
        assert construct({"a": [], "b": []}, schema).num_rows == 0


@pytest.mark.parametrize("value", [np.array(5), np.array("2020-01-01", "M8[s]"), np.array("x")])
def test_a_numpy_array_without_dimensions_is_not_a_list(value: Any) -> None:
    for rows in ([value, None], [[1], value]):
        with pytest.raises(TypeMismatchError, match="without dimensions"):
            bs.array(rows)
