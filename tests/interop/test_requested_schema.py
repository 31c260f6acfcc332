"""A consumer may request another representation of the same values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import TypeMismatchError
from bowstring.memory import c_abi
from tests.interop.layouts import LAYOUTS
from tests.interop.samples import LONG, nested, plain

TEXTS = ["", None, "é", LONG]
FULFILLED_REQUESTS: list[tuple[bs.Array, pa.DataType]] = [
    *((bs.array(TEXTS, own), requested) for own in (bs.string(), bs.large_string(), bs.string_view())
      for requested in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))),
    (bs.array([b"ab", None], bs.binary()), pa.large_binary()),
    (bs.array([b"ab", None], bs.binary(2)), pa.binary_view()),
    (bs.array(TEXTS, bs.dictionary(bs.int32(), bs.string())), pa.string()),
    (bs.array(TEXTS, bs.dictionary(bs.int32(), bs.string())), pa.dictionary(pa.int8(), pa.large_string())),
    (bs.array([1, 1, None], bs.run_end_encoded(bs.int16(), bs.int32())), pa.int64()),
    (bs.array([1, 1, None], bs.int64()), pa.run_end_encoded(pa.int32(), pa.int64())),
    (bs.array([1, None, 100], bs.int64()), pa.uint8()),
    (bs.array([1.5, None], bs.float32()), pa.float64()),
    (bs.array([Decimal("1.25"), None]), pa.decimal256(20, 4)),
    (bs.array([0, None, 86_400_000], bs.timestamp("ms", "UTC")), pa.timestamp("s", "UTC")),
    (bs.array([1, None], bs.duration("s")), pa.duration("ns")),
    (bs.array([None, None], bs.null()), pa.list_(pa.int8())),
    (bs.array([b"0123456789abcdef"], bs.datatypes.uuid()), pa.binary(16)),
    (bs.array([{"s": "a"}, None], bs.struct({"s": bs.string()})), pa.struct([("s", pa.string_view())])),
    (bs.array([["a"], None, ["b", None]]), pa.list_(pa.large_string())),
    (bs.array([["a"], None, ["b", None]]), pa.large_list(pa.string())),
    (bs.array([["a"], None, ["b", None]], bs.list_view(bs.string())), pa.list_(pa.string())),
    (bs.array([[1, 2], None], bs.list_(bs.int8(), 2)), pa.large_list_view(pa.int16())),
    (bs.array([[1, 2], None]), pa.list_(pa.int64(), 2)),
]  # fmt: skip
IGNORED_REQUESTS: list[tuple[bs.Array, pa.DataType]] = [
    (bs.array([1, 300], bs.int64()), pa.int8()),
    (bs.array([-1], bs.int64()), pa.uint64()),
    (bs.array([1.1], bs.float64()), pa.float32()),
    (bs.array([1], bs.int64()), pa.float64()),
    (bs.array([1], bs.int64()), pa.string()),
    (bs.array(["1"]), pa.int64()),
    (bs.array([b"a"]), pa.string()),
    (bs.array(["a"]), pa.binary()),
    (bs.array([True]), pa.int8()),
    (bs.array([Decimal("1.25")]), pa.decimal128(5, 1)),
    (bs.array([Decimal("100.00")]), pa.decimal128(4, 3)),
    (bs.array([1_500], bs.timestamp("ms")), pa.timestamp("s")),
    (bs.array([0], bs.timestamp("ms")), pa.timestamp("ms", "UTC")),
    (bs.array([list(range(3))]), pa.list_(pa.field("item", pa.int64(), nullable=False))),
    (bs.array([[1]]), pa.list_(pa.string())),
    (bs.array([[1], [1, 2]]), pa.list_(pa.int64(), 2)),
    (bs.array(range(200)), pa.dictionary(pa.int8(), pa.int64())),
    (bs.array([1]), bs.datatypes.uuid()),
]  # fmt: skip


def request_ids(pairs: list[tuple[bs.Array, Any]]) -> list[str]:
    return [f"{array.type} as {requested}" for array, requested in pairs]


@pytest.mark.parametrize(("array", "requested"), FULFILLED_REQUESTS, ids=request_ids(FULFILLED_REQUESTS))
def test_a_requested_layout_of_the_same_values_is_exported(array: bs.Array, requested: pa.DataType) -> None:
    pa_array = pa.Array._import_from_c_capsule(*array.__arrow_c_array__(requested.__arrow_c_schema__()))
    pa_array.validate(full=True)
    assert pa_array.type.equals(requested)
    expected = [v.bytes if hasattr(v, "bytes") else v for v in array.to_pylist()]
    assert pa_array.to_pylist() == expected


@pytest.mark.parametrize(("array", "requested"), IGNORED_REQUESTS, ids=request_ids(IGNORED_REQUESTS))
def test_a_request_that_would_change_values_is_ignored(array: bs.Array, requested: Any) -> None:
    capsules = array.__arrow_c_array__(requested.__arrow_c_schema__())
    assert bs.array(ArrayCapsules(capsules)) == array
    device = array.__arrow_c_device_array__(requested.__arrow_c_schema__())
    assert bs.array(ArrayCapsules(device)) == array


class ArrayCapsules:
    """Has capsules of an array."""

    def __init__(self, capsules: tuple[object, object]) -> None:
        self.capsules = capsules

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.capsules


@pytest.mark.parametrize("name", plain() | nested())
def test_a_request_for_the_same_type_copies_nothing(name: str) -> None:
    exported = bs.array((plain() | nested())[name])
    schema, array = exported.__arrow_c_array__(exported.__arrow_c_schema__())
    again = bs.array(ArrayCapsules((schema, array)))
    assert again == exported
    assert addresses(again) == addresses(exported)


def addresses(array: bs.Array) -> set[int]:
    own = {b.address for b in array.own_buffers if b is not None and b.size}
    return own.union(*map(addresses, array.children))


def test_requests_apply_to_each_column() -> None:
    table = bs.concat_tables([bs.table({"s": ["a", None], "n": [1, 2]}), bs.table({"s": ["b"], "n": [1000]})])
    table = table.replace_schema_metadata({"k": "v"})
    requested = pa.schema([("s", pa.string_view()), ("n", pa.int8())])
    for source in (table, table.to_batches()[0]):
        reader = pa.RecordBatchReader.from_stream(source, schema=requested)
        assert reader.schema.field("s").type == pa.string_view()
        assert reader.schema.metadata == {b"k": b"v"}
        assert reader.read_all().to_pydict() == source.to_pydict()
    # 1000, in the second batch, does not fit int8, so no batch is converted
    assert pa.RecordBatchReader.from_stream(table, schema=requested).schema.field("n").type == pa.int64()
    batch = pa.record_batch(table.to_batches()[0], schema=requested)
    assert batch.schema.types == requested.types


def test_requests_apply_to_all_chunks() -> None:
    column = bs.concat_tables([bs.table({"n": [1]}), bs.table({"n": [1000]})])["n"]
    small, wide = (pa.chunked_array(column, type=kind) for kind in (pa.int64(), pa.int16()))
    assert (small.type, wide.type) == (pa.int64(), pa.int16())
    capsule = column.__arrow_c_stream__(bs.int8().__arrow_c_schema__())
    assert pa.ChunkedArray._import_from_c_capsule(capsule).type == pa.int64()
    empty = bs.ChunkedArray([], bs.int64()).__arrow_c_stream__(bs.int8().__arrow_c_schema__())
    assert pa.ChunkedArray._import_from_c_capsule(empty).type == pa.int8()


def test_an_empty_table_is_exported_with_the_requested_types() -> None:
    table = bs.Table(bs.schema([("s", bs.string()), ("n", bs.int64())]), [])
    requested = pa.schema([("s", pa.large_string()), ("n", pa.string())])
    assert pa.RecordBatchReader.from_stream(table, schema=requested).schema.types == [pa.large_string(), pa.int64()]


@pytest.mark.parametrize("requested", [[("b", pa.int64())], [], [("a", pa.int64()), ("b", pa.int64())]])
def test_a_request_for_other_columns_is_an_error(requested: list[Any]) -> None:
    request = pa.schema(requested)
    batch = bs.record_batch({"a": [1]})
    with pytest.raises(TypeMismatchError, match="columns"):
        batch.__arrow_c_array__(request.__arrow_c_schema__())
    with pytest.raises(TypeMismatchError, match="columns"):
        bs.table(batch).__arrow_c_stream__(request.__arrow_c_schema__())
    with pytest.raises(TypeMismatchError, match="struct of fields"):
        bs.array([{"a": 1}]).__arrow_c_array__(pa.struct(requested).__arrow_c_schema__())


@pytest.mark.parametrize("wrong", [1, "schema", bs.table({"a": [1]}).__arrow_c_stream__()])
def test_a_request_that_is_not_a_schema_is_an_error(wrong: object) -> None:
    with pytest.raises(TypeMismatchError, match="arrow_schema"):
        bs.array([1]).__arrow_c_array__(wrong)


@pytest.mark.parametrize("name", LAYOUTS)
def test_whatever_is_requested_the_values_stay_the_same(name: str) -> None:
    for array in (LAYOUTS[name], LAYOUTS[name].slice(1)):
        expected = array.to_pylist()
        for other in LAYOUTS.values():
            try:
                capsules = array.__arrow_c_array__(other.type.__arrow_c_schema__())
            except TypeMismatchError:
                assert "struct" in str(array.type)
                continue
            back = bs.array(ArrayCapsules(capsules))
            back.validate(full=True)
            assert back.type in (array.type, other.type)
            assert back.to_pylist() == expected


def test_run_ends_that_are_too_large_for_the_requested_ones_stay_as_they_are() -> None:
    array = bs.repeat("x", 70_000).run_end_encode()
    capsules = array.__arrow_c_array__(bs.run_end_encoded("int16", "string").__arrow_c_schema__())
    assert bs.array(ArrayCapsules(capsules)).type == array.type


def test_text_that_is_too_large_for_the_requested_offsets_stays_as_it_is() -> None:
    size = (1 << 31) + 1  # of zeros, which take no memory until they are read
    offsets = np.array([0, size // 2, size], np.int64)
    array = bs.Array.from_buffers("large_string", 2, [None, offsets, np.zeros(size, np.uint8)])
    capsules = array.__arrow_c_array__(bs.string().__arrow_c_schema__())
    assert bs.array(ArrayCapsules(capsules)).type == bs.large_string()


def test_a_requested_schema_is_not_released() -> None:
    request = bs.string_view().__arrow_c_schema__()
    for _ in range(2):
        bs.array(["a"]).__arrow_c_array__(request)
    assert c_abi.capsule_pointer(request, c_abi.SCHEMA_CAPSULE)
