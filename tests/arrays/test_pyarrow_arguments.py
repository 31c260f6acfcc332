"""Arguments that pyarrow accepts: names in second place, its scalars and columns, NA of pandas, nulls as indices."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, NotFoundError, TypeMismatchError

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


def test_scalars_of_both_libraries_are_values_of_filters_and_fill_null() -> None:
    table = bs.table({"n": [1, 2, None], "s": ["a", "b", None]})
    for library in (bs, pa):
        assert table.filter([("n", ">", library.scalar(1))])["n"].to_pylist() == [2]
        assert table.filter([("s", "in", [library.scalar("a"), "b"])])["n"].to_pylist() == [1, 2]
        assert table.filter([("s", "in", library.scalar(["a"]))])["n"].to_pylist() == [1]
        for column in (table["n"], table["n"].chunk(0)):
            assert column.fill_null(library.scalar(7)).to_pylist() == [1, 2, 7]
            assert column.fill_null(library.scalar(None, library.int64())).to_pylist() == [1, 2, None]
        with pytest.raises(bs.errors.InvalidArgumentError, match="never true"):
            table.filter([("n", ">", library.scalar(None, library.int64()))])


def test_scalars_determine_the_type_of_their_array() -> None:
    moment = bs.scalar(1, bs.timestamp("ns"))
    for values in ([None, moment], (moment, None), np.array([moment, None], object)):
        array = bs.array(values)
        assert array.type == moment.type
        assert array.null_count == 1
    assert bs.array([pa.scalar(1, pa.int8()), pa.scalar(2, pa.int64())]).type == bs.int8()
    with pytest.raises(TypeMismatchError, match="value 1"):
        bs.array([pa.scalar(1, pa.int8()), pa.scalar(200, pa.int64())])


def test_nan_is_null_only_with_from_pandas() -> None:
    nan = float("nan")
    for values in ([1.0, nan], (1.0, nan), np.array([1.0, nan]), np.array([1.0, nan], object), iter([1.0, nan])):
        assert bs.array(values, from_pandas=True).to_pylist() == [1.0, None]
    assert bs.array([1.0, nan, 3.0], mask=[True, False, False], from_pandas=True).to_pylist() == [None, None, 3.0]
    masked = bs.array(np.array([1.0, nan, 3.0]), mask=np.array([True, False, False]), from_pandas=True)
    assert masked.to_pylist() == [None, None, 3.0]
    assert bs.array([1.0, nan], bs.int8(), from_pandas=True).to_pylist() == [1, None]
    assert bs.array(np.array([1.0, nan]), bs.int8(), from_pandas=True).to_pylist() == [1, None]
    assert bs.array(pd.Series([1.0, None])).null_count == 1
    assert bs.array(pd.Series([1.0, None]), from_pandas=False).null_count == 0
    assert bs.array([1.0, nan]).null_count == 0


def test_size_limits_what_is_read_and_unsafe_values_are_truncated() -> None:
    numbers = iter(range(100))
    assert bs.array(numbers, size=2).to_pylist() == [0, 1]
    assert next(numbers) == 2
    assert bs.array(np.arange(5), size=2).to_pylist() == [0, 1]
    assert bs.array([1], size=5).to_pylist() == [1]
    for series in (pd.Series([7, 8, 9], index=[2.0, 0.0, 1.0]), pd.Index([7, 8, 9]), pd.array([7, 8, 9])):
        assert bs.array(series, size=2).to_pylist() == [7, 8]
    for values in ([1.5, 300.0], np.array([1.5, 300.0]), bs.array([1.5, 300.0]), iter([1.5, 300.0])):
        assert bs.array(values, bs.int16(), safe=False).to_pylist() == [1, 300]
    assert bs.array([1.5, None], bs.int16(), mask=[False, False], safe=False).to_pylist() == [1, None]
    with pytest.raises(bs.errors.InvalidArgumentError, match="size"):
        bs.array([1], size=-1)
    not_sequences: list[Any] = [5, "abc", b"abc", {"a": 1}]
    for value in not_sequences:
        with pytest.raises(TypeMismatchError, match="expected a sequence of values"):
            bs.array(value, size=2)


def test_scalars_have_the_type_of_the_first_that_is_not_of_nulls() -> None:
    for scalar in (bs.scalar, pa.scalar):
        values = [None, scalar(None), scalar(None), scalar(1, "int8"), scalar(2, "int8")]
        assert bs.array(values).type == "int8"
        assert bs.array(values).to_pylist() == [None, None, None, 1, 2]
        assert bs.array([scalar(None), 5]).to_pylist() == [None, 5]
        assert bs.array([scalar(None)]).type == "null"


def test_nan_is_null_in_matrices_of_pandas() -> None:
    matrix = np.array([[1.0, float("nan")], [2.0, 3.0]])
    assert bs.array(matrix, from_pandas=True).to_pylist() == [[1.0, None], [2.0, 3.0]]
    masked = np.ma.MaskedArray([1.0, float("nan"), 3.0, 4.0], mask=[True, False, False, False])
    mask = [False, False, False, True]
    assert bs.array(masked, from_pandas=True, mask=mask).to_pylist() == [None, None, 3.0, None]


def test_whole_numbers_under_nulls_convert() -> None:
    masked = np.ma.MaskedArray([1.0, float("nan")], mask=[False, True])
    assert bs.array(masked, bs.int64()).to_pylist() == [1, None]
    assert bs.array(np.array([1.0, float("inf")]), bs.uint8(), mask=[False, True]).to_pylist() == [1, None]
    assert bs.array(np.array([2.0**63]), bs.uint64()).to_pylist() == [1 << 63]


@pytest.mark.parametrize("unit", ["drop", "emit_null"])
def test_the_null_of_a_mask_drops_its_slot_or_makes_it_null(unit: Any) -> None:
    expected = [1] if unit == "drop" else [1, None]
    table = bs.concat_tables([bs.table({"n": [1]}), bs.table({"n": [2, 3]})])
    masks: list[Any] = [[True, False, None], bs.array([True, False, None]), bs.chunked_array([[True], [False, None]])]
    for mask in masks:
        for rows in (table, table.combine_chunks().to_batches()[0]):
            assert rows.filter(mask, null_selection_behavior=unit).column("n").to_pylist() == expected
            assert rows.column("n").filter(mask, null_selection_behavior=unit).to_pylist() == expected
    assert table.filter(np.array([True, False, True]), null_selection_behavior=unit)["n"].to_pylist() == [1, 3]
    with pytest.raises(bs.errors.InvalidArgumentError, match="'drop' or 'emit_null', found 'keep'"):
        table.filter([True] * 3, null_selection_behavior="keep")  # type: ignore[arg-type]
    with pytest.raises(bs.errors.InvalidArgumentError, match="does not fit"):
        table.filter([True], null_selection_behavior=unit)


def test_operators_give_what_pyarrow_s_give() -> None:
    array = bs.array([1, None, 3])
    assert (2 - array).to_pylist() == [1, None, -1]
    assert (bs.scalar(2) ** array).to_pylist() == [2, None, 8]
    assert ((array << 1) | 1).to_pylist() == [3, None, 7]
    assert abs(-array).equals(array)
    assert isinstance(bs.scalar(2) * 3, bs.Scalar)
    assert (2 * bs.scalar(3)).as_py() == 6
    assert (np.array([1, 2]) + bs.array([1, 2])).tolist() == [2, 4]  # NumPy's
    numbers = pa.array([5, 6, None])
    for total in (array + numbers, numbers + array, array + pa.chunked_array([[5], [6, None]])):
        assert isinstance(total, bs.Array)
        assert total.to_pylist() == [6, None, None]
    for total in (bs.scalar(1) + numbers, numbers + bs.scalar(1)):
        assert isinstance(total, bs.Array)
        assert total.to_pylist() == [6, 7, None]
    assert (bs.scalar(1) - pa.scalar(2)).as_py() == (pa.scalar(1) - bs.scalar(2)).as_py() == -1
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        bs.array([127], "int8") + bs.array([1], "int8")


def test_scalars_have_the_parts_of_pyarrow_s() -> None:
    null_list, null_struct = bs.scalar(None, bs.list_("int8")), bs.scalar(None, bs.struct({"x": "int8"}))
    assert (list(null_list), len(null_list), null_list.values) == ([], 0, None)
    assert (null_struct["x"], list(null_struct), dict(null_struct)) == (None, ["x"], {"x": None})
    with pytest.raises(IndexError):
        null_list[0]
    with pytest.raises(NotFoundError, match="named 'y'"):
        null_struct["y"]
    with pytest.raises(TypeMismatchError, match="int64 has no elements"):
        list(bs.scalar(5))
    with pytest.raises(AttributeError, match="a scalar of int64 has no attribute 'value'"):
        _ = bs.scalar(5).value
    assert bs.scalar([1, 2, 3])[1:] == [2, 3]
    assert bs.scalar(None, bs.timestamp("s")).value is None
    assert bs.scalar(None, "string").as_buffer() is None
    assert bs.scalar(1, bs.dense_union({"n": "int64"})).value == bs.scalar(1)
    assert bs.scalar("a", bs.run_end_encoded("int32", "string")).value == bs.scalar("a")
    assert bs.scalar(b"0" * 16, bs.uuid()).value == bs.scalar(b"0" * 16, bs.binary(16))


def test_columns_of_other_libraries_keep_their_chunks_in_a_table() -> None:
    column = pa.chunked_array([[1, 2], [3]])
    for table in (bs.table({"a": column}), bs.Table.from_arrays([column], ["a"])):
        assert [len(chunk) for chunk in table["a"].chunks] == [2, 1]
    assert bs.table({"a": column}, schema={"a": "int8"}).schema.types == ["int8"]
