"""Arguments that pyarrow accepts: names in second place, its scalars and columns, NA of pandas, nulls as indices."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, TypeMismatchError

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

CODED = bs.array(["a", "b", None]).dictionary_encode()


@pytest.mark.parametrize("create", [bs.table, bs.record_batch, pa.table, pa.record_batch])
def test_the_second_argument_is_the_names_or_a_schema(create: Any) -> None:
    library = pa if create in (pa.table, pa.record_batch) else bs
    columns = [library.array([1]), library.array([2])]
    assert create(columns, ["a", "b"]).to_pydict() == {"a": [1], "b": [2]}
    assert create(columns, names=["a", "b"]).to_pydict() == {"a": [1], "b": [2]}
    assert create(columns, library.schema([("c", "int64"), ("d", "int64")])).schema.names == ["c", "d"]
    assert create(columns, None, library.schema([("c", "int64"), ("d", "int64")])).schema.names == ["c", "d"]
    with pytest.raises(ValueError, match="names"):
        create({"a": [1]}, ["b"])


@pytest.mark.parametrize("schema", [{"a": "int8"}, [("a", "int8")], [bs.field("a", "int8")], pa.schema({"a": "int8"})])
def test_anything_like_a_schema_may_be_in_the_place_of_the_names(schema: Any) -> None:
    assert bs.table([[1]], schema).schema == bs.schema({"a": "int8"})
    assert bs.record_batch({"a": [1], "b": [2]}, schema).schema == bs.schema({"a": "int8"})


@pytest.mark.parametrize(
    "column",
    [pa.chunked_array([[1], [2, None]]), bs.chunked_array([[1], [2, None]]), pd.Series([1, 2, None], dtype="Int64")],
    ids=["pyarrow", "bowstring", "pandas"],
)
def test_a_column_of_a_library_is_a_chunked_array(column: Any) -> None:
    chunked = bs.chunked_array(column)
    assert chunked.to_pylist() == [1, 2, None]
    assert chunked.num_chunks == (1 if isinstance(column, pd.Series) else 2)
    assert bs.chunked_array(column, "string").to_pylist() == ["1", "2", None]


def test_an_array_is_the_only_chunk() -> None:
    for array in (bs.array([1, None]), pa.array([1, None])):
        assert bs.chunked_array(array).equals(bs.chunked_array([[1, None]]))


@pytest.mark.parametrize(
    "value",
    [pa.scalar(5, pa.int8()), pa.scalar(None, pa.string()), pa.scalar({"a": [1]}), pa.scalar(1, pa.timestamp("ns"))],
)
def test_a_scalar_of_pyarrow_keeps_its_type(value: Any) -> None:
    scalar = bs.scalar(value)
    assert pa.array(scalar.to_array())[0] == value
    assert scalar.type == bs.datatypes.as_type(value.type)


def test_a_scalar_is_cast_to_the_type() -> None:
    assert bs.scalar(pa.scalar(5), "int8").type == bs.int8()
    assert bs.scalar(bs.scalar(5, "int8")).type == bs.int8()


def test_missing_values_of_pandas_are_null() -> None:
    assert bs.array([pd.NA, 1]).to_pylist() == [None, 1]
    assert bs.array([pd.NaT, pd.Timestamp(0)], "timestamp[ns]").null_count == 1
    assert bs.array([[pd.NA], [1]]).to_pylist() == [[None], [1]]
    assert bs.array([{"a": pd.NA}, {"a": 1}]).to_pylist() == [{"a": None}, {"a": 1}]
    assert bs.array(["a", pd.NA], "string").to_pylist() == ["a", None]
    assert bs.array([pa.scalar(1), bs.scalar(2), None]).to_pylist() == [1, 2, None]
    with pytest.raises(TypeMismatchError, match="object"):
        bs.array([object()])


@pytest.mark.parametrize(
    ("value", "type_"), [(pd.Timedelta(1, "ns"), "duration[us]"), (pd.Timestamp(1), "timestamp[us]")], ids=str
)
def test_a_value_of_pandas_with_nanoseconds_is_rejected_by_a_coarser_type(value: object, type_: str) -> None:
    with pytest.raises(bs.errors.TypeMismatchError, match="finer than the unit us"):
        bs.array([value], type_)
    assert bs.array([value], type_.replace("us", "ns")).cast("int64").to_pylist() == [1]


@pytest.mark.parametrize(
    "indices",
    [
        [2, None, 0],
        bs.array([2, None, 0], "uint8"),
        pa.array([2, None, 0]),
        bs.chunked_array([[2], [None, 0]]),
        bs.array([2, None, 0]).dictionary_encode(),
    ],
    ids=["list", "array", "pyarrow", "chunked", "dictionary"],
)
def test_null_as_an_index_takes_null(indices: Any) -> None:
    assert CODED.take([0, None]).to_pylist() == ["a", None]
    column = bs.chunked_array([["a"], ["b", "c"]])
    assert column.take(indices).to_pylist() == ["c", None, "a"]
    batch = bs.record_batch({"a": ["a", "b", "c"], "n": [1, 2, 3]}).with_metadata({"key": "value"})
    rows = {"a": ["c", None, "a"], "n": [3, None, 1]}
    assert batch.take(indices).to_pydict() == rows
    assert batch.take(indices).custom_metadata == {b"key": b"value"}
    assert bs.table(batch).take(indices).to_pydict() == rows
    if not isinstance(indices, bs.ChunkedArray):
        taken = batch["a"].take(indices)
        assert taken.to_pylist() == ["c", None, "a"]
        taken.validate(full=True)


def test_of_an_empty_array_only_null_can_be_taken() -> None:
    for empty in (bs.array([], "int8"), bs.chunked_array([], "int8"), bs.table({"a": bs.array([], "int8")})):
        assert len(empty.take([None, None])) == 2
        with pytest.raises(InvalidArgumentError, match="out of range"):
            empty.take([None, 0])


def test_an_index_out_of_range_is_an_error_beside_null() -> None:
    with pytest.raises(InvalidArgumentError, match="index 3 is out of range"):
        bs.array([1, 2, 3]).take([None, 3])
    with pytest.raises(InvalidArgumentError, match="integers"):
        bs.array([1, 2, 3]).take(["a"])  # type: ignore[list-item]
    with pytest.raises(TypeMismatchError):
        bs.array([1, 2, 3]).take([None, "a"])  # type: ignore[list-item]
    assert bs.array(np.arange(3)).take(np.array([2])).to_pylist() == [2]


def test_schemas_are_unified_by_request() -> None:
    one, other = bs.table({"a": [1], "n": [None]}), bs.table({"b": ["x"], "n": [2]})
    options: tuple[Literal["default", "permissive"], ...] = ("default", "permissive")
    for promote in options:
        united = bs.concat_tables([one, other], promote_options=promote)
        assert united.to_pydict() == {"a": [1, None], "n": [None, 2], "b": [None, "x"]}
    narrow, wide = bs.table({"a": bs.array([1], "int8")}), bs.table({"a": bs.array([2], "int32")})
    assert bs.concat_tables([narrow, wide], promote_options="permissive").schema == wide.schema
    with pytest.raises(TypeMismatchError, match="'a' has type int8, and int32"):
        bs.concat_tables([narrow, wide], promote_options="default")
    with pytest.raises(InvalidArgumentError, match="another schema"):
        bs.concat_tables([narrow, wide])
    with pytest.raises(InvalidArgumentError, match="promote_options"):
        bs.concat_tables([narrow, wide], promote_options="all")  # type: ignore[arg-type]
