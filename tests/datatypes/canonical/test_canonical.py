"""The canonical extension types: registration, values, metadata and malformed metadata."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.datatypes.canonical.uuid import UuidType
from bowstring.datatypes.extension import METADATA_KEY, NAME_KEY, resolve_extension_type, to_storage_field
from bowstring.errors import InvalidArgumentError, InvalidDataError, TypeMismatchError, WouldCopyError

EAST = timezone(timedelta(hours=5, minutes=45))
WEST = timezone(timedelta(hours=-12, minutes=-59))
NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
VARIANT = {"metadata": b"\x01\0\0", "value": b"\x0c\x07"}

VALUES: dict[str, tuple[bs.DataType, list[Any]]] = {
    "uuid": (bs.datatypes.uuid(), [UUID(int=1), None, UUID(int=(1 << 128) - 1)]),
    "json": (bs.datatypes.json_(), ['{"a":1}', None, "[]"]),
    "json view": (bs.datatypes.json_(bs.string_view()), ['"text longer than twelve bytes"', None]),
    "bool8": (bs.datatypes.bool8(), [True, None, False]),
    "opaque": (bs.datatypes.opaque(bs.binary(), "geometry", "PostGIS"), [b"\x01", None]),
    "opaque null": (bs.datatypes.opaque(bs.null(), "varray", "Oracle"), [None, None]),
    "variant": (bs.datatypes.parquet_variant(), [VARIANT, None]),
    "moment": (bs.datatypes.timestamp_with_offset(), [NOON, None, NOON.astimezone(EAST), NOON.astimezone(WEST)]),
    "fixed tensor": (bs.datatypes.fixed_shape_tensor(bs.int16(), (2, 2)), [np.eye(2, dtype=np.int16), None]),
    "variable tensor": (
        bs.datatypes.variable_shape_tensor(bs.float32(), 2, ["x", "y"], [1, 0], [None, 2]),
        [np.ones((2, 3), np.float32), None, np.zeros((2, 0), np.float32)],
    ),
}
EVERY_TYPE = pytest.mark.parametrize("name", VALUES)


def is_equal(left: list[Any], right: list[Any]) -> bool:
    if len(left) != len(right):
        return False
    return all(
        np.array_equal(a, b) and a.dtype == b.dtype if isinstance(a, np.ndarray) and b is not None else a == b
        for a, b in zip(left, right, strict=True)
    )


@EVERY_TYPE
def test_values_are_preserved(name: str) -> None:
    type_, values = VALUES[name]
    array = bs.array(values, type_)
    array.validate(full=True)
    assert is_equal(array.to_pylist(), values)
    assert array.null_count == sum(value is None for value in values)


@EVERY_TYPE
@pytest.mark.parametrize("nested", [False, True])
def test_canonical_types_need_no_registration_in_ipc_and_c_data(name: str, nested: bool) -> None:
    type_, values = VALUES[name]
    column = bs.array(values, type_)
    if nested:
        column = bs.array([values, None], bs.list_(type_))
    batch = bs.record_batch([column], schema=bs.schema([bs.field("x", column.type, metadata={"k": "v"})]))
    sink = io.BytesIO()
    with bs.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    for back in (bs.open_file(sink.getvalue()).read_all(), bs.table(pa.table(batch)), bs.table(batch)):
        field = back.schema.field("x")
        assert field.type == column.type
        assert field.metadata == {b"k": b"v"}
        assert back.column("x").combine_chunks().equals(column)


PYARROW_ARRAYS = {
    "uuid": pa.array([b"0123456789abcdef", None], pa.uuid()),
    "json": pa.array(['{"a":1}', None], pa.json_()),
    "large json": pa.array(["1", None], pa.json_(pa.large_string())),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None, -3], pa.int8())),
    "opaque": pa.ExtensionArray.from_storage(pa.opaque(pa.int8(), 'a "b"', "é"), pa.array([1], pa.int8())),
    "fixed tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int32(), (2, 3), dim_names=["x", "y"], permutation=[1, 0]),
        pa.array([[1, 2, 3, 4, 5, 6]], pa.list_(pa.int32(), 6)),
    ),
}


@pytest.mark.parametrize("name", PYARROW_ARRAYS)
def test_canonical_types_are_exchanged_with_pyarrow(name: str) -> None:
    peer = PYARROW_ARRAYS[name]
    sink = pa.BufferOutputStream()
    table = pa.table({"x": peer})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    by_stream = bs.open_stream(sink.getvalue()).read_all()
    for our_table in (by_stream, bs.table(table)):
        type_ = our_table.schema.field("x").type
        assert isinstance(type_, bs.datatypes.ExtensionType)
        assert type_.extension_name == peer.type.extension_name
        our_table.validate(full=True)
        assert pa.table(our_table).column("x").type == peer.type
        out = io.BytesIO()
        with bs.new_stream(out, our_table.schema) as writer:
            for batch in our_table.to_batches():
                writer.write_batch(batch)
        assert pa.ipc.open_stream(out.getvalue()).read_all().equals(table)
    if name == "fixed tensor":
        assert np.array_equal(by_stream.column("x").combine_chunks().to_numpy(), peer.to_numpy_ndarray())
    else:
        assert by_stream.column("x").to_pylist() == peer.to_pylist()


def test_a_dictionary_of_an_extension_type_is_read() -> None:
    values = pa.array([b"0123456789abcdef"], pa.uuid())
    peer = pa.DictionaryArray.from_arrays(pa.array([0, None, 0], pa.int8()), values)
    array = bs.array(peer)
    assert array.null_count == 1


# Values


def test_uuids_are_built_from_text_and_bytes() -> None:
    text = "00000000-0000-0000-0000-00000000002a"
    assert bs.array([text, UUID(text).bytes], bs.datatypes.uuid()).to_pylist() == [UUID(int=42)] * 2
    for value in ("no uuid", b"short", 3):
        with pytest.raises(TypeMismatchError, match="is not a valid UUID"):
            bs.array([value], bs.datatypes.uuid())


def test_json_is_built_from_objects_and_validated() -> None:
    assert bs.array([{"é": [1, None, True]}, 2.5, "3"], bs.datatypes.json_()).to_pylist() == [
        '{"é":[1,null,true]}',
        "2.5",
        "3",
    ]
    for value in (float("nan"), {1, 2}):
        with pytest.raises(TypeMismatchError, match="converted to JSON"):
            bs.array([value], bs.datatypes.json_())
    for text in ("{", "NaN", "[" * 100_000):
        bad = bs.array(["1", None, text], bs.datatypes.json_())
        bad.validate()
        with pytest.raises(InvalidDataError, match=r"value 2: .* is not valid JSON"):
            bad.validate(full=True)


def test_bool8_shares_the_memory_of_numpy_booleans() -> None:
    values = np.array([True, False, True])
    array = bs.array(values, bs.datatypes.bool8())
    assert np.shares_memory(array.to_numpy(), values)
    assert array.to_numpy().dtype == np.bool_
    odd = bs.array(np.array([2, 0, -1], np.int8), bs.int8()).with_layout(array.layout)
    assert odd.to_pylist() == [True, False, True]
    with pytest.raises(WouldCopyError):
        odd.to_numpy()
    assert odd.to_numpy(zero_copy_only=False).tolist() == [True, False, True]
    with pytest.raises(TypeMismatchError, match="is not a boolean"):
        bs.array([2], bs.datatypes.bool8())


def test_fixed_shape_tensors_share_memory_with_numpy() -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    array = bs.array(values, bs.datatypes.fixed_shape_tensor(bs.float32(), (2, 3)))
    assert np.shares_memory(array.to_numpy(), values)
    assert array.slice(1, 2).to_numpy().tolist() == values[1:3].tolist()
    turned = bs.array(
        values.transpose(0, 2, 1), bs.datatypes.fixed_shape_tensor(bs.float32(), (2, 3), permutation=[1, 0])
    )
    assert np.shares_memory(turned.to_numpy(), values)
    assert turned.to_numpy().shape == (4, 3, 2)
    assert turned[2].tolist() == values[2].T.tolist()
    with pytest.raises(TypeMismatchError, match=r"physical shape \(3, 2\)"):
        bs.array(np.zeros((1, 3, 2), np.float32), array.type)
    with pytest.raises(TypeMismatchError, match="1 dimensions"):
        bs.array([[1.0, 2.0]], array.type)


def test_a_permutation_follows_the_specification() -> None:
    storage_values = np.arange(24).reshape(2, 3, 4)
    type_ = bs.datatypes.fixed_shape_tensor(bs.int64(), (2, 3, 4), permutation=[2, 0, 1])
    flat = bs.array([storage_values.reshape(-1).tolist()], type_.storage_type)
    shown = flat.with_layout(bs.array([], type_).layout)
    assert shown[0].shape == shown.to_numpy().shape[1:] == (4, 2, 3)
    assert bs.array([shown[0]], type_).storage.equals(flat)
    ragged = bs.datatypes.variable_shape_tensor(bs.int64(), 3, permutation=[2, 0, 1])
    assert bs.array([shown[0]], ragged).storage.to_pylist()[0]["shape"] == [2, 3, 4]


@pytest.mark.parametrize(
    "row",
    [
        {"data": [1, 2, 3], "shape": [2, 2]},
        {"data": [], "shape": [-1, 0]},
        {"data": [1], "shape": [None, 1]},
        {"data": None, "shape": [1, 1]},
        {"data": [1, 2], "shape": [2, 1]},
    ],
)
def test_a_variable_shape_tensor_with_a_wrong_shape_is_rejected(row: dict[str, Any]) -> None:
    type_ = bs.datatypes.variable_shape_tensor(bs.int8(), 2, uniform_shape=[1, None])
    bad = bs.array([None, row], type_.storage_type).with_layout(bs.array([], type_).layout)
    with pytest.raises(InvalidDataError, match=r"value 1: arrow\.variable_shape_tensor: a tensor of shape"):
        bad.validate(full=True)
    with pytest.raises(InvalidDataError, match="a tensor of shape"):
        bad.to_pylist()


def test_timestamps_beyond_python_s_precision_keep_their_nanoseconds() -> None:
    moment = bs.datatypes.TimestampWithOffset(np.datetime64("2025-01-01T00:00:00.000000001", "ns"), -420)
    array = bs.array([moment, NOON.astimezone(EAST)], bs.datatypes.timestamp_with_offset("ns"))
    assert array.to_pylist() == [moment, NOON.astimezone(EAST)]
    assert [m.utcoffset() for m in array.to_pylist()[1:]] == [timedelta(hours=5, minutes=45)]
    edge = datetime(1, 1, 1, tzinfo=UTC)
    storage_values = [{"timestamp": edge, "offset_minutes": -60}, {"timestamp": NOON, "offset_minutes": 0}]
    type_ = bs.datatypes.timestamp_with_offset("us")
    assert bs.array(storage_values, type_.storage_type).with_layout(bs.array([], type_).layout).to_pylist() == [
        bs.datatypes.TimestampWithOffset(np.datetime64("0001-01-01", "us"), -60),
        NOON,
    ]


def test_nulls_inside_a_timestamp_follow_the_specification() -> None:
    storage = bs.struct({"timestamp": bs.timestamp("s", "UTC"), "offset_minutes": bs.dictionary(bs.int8(), bs.int16())})
    field = resolve_extension_type(bs.field("x", storage, metadata={NAME_KEY: b"arrow.timestamp_with_offset"}))
    rows = [{"timestamp": None, "offset_minutes": 3}, {"timestamp": NOON, "offset_minutes": None}, None]
    array = bs.array(rows, storage).with_layout(bs.array([], field.type).layout)
    array.validate(full=True)
    assert array.to_pylist() == [None, NOON, None]


def test_a_utc_offset_of_a_day_is_rejected() -> None:
    type_ = bs.datatypes.timestamp_with_offset("s")
    bad = bs.array([{"timestamp": NOON, "offset_minutes": 1440}], type_.storage_type)
    bad = bad.with_layout(bs.array([], type_).layout)
    for use in (lambda: bad.validate(full=True), bad.to_pylist):
        with pytest.raises(InvalidDataError, match="offset of 1440 minutes"):
            use()
    assert "offset of 1440" in repr(bad)


@pytest.mark.parametrize(
    "value", [datetime(2025, 1, 1), "noon", datetime(2025, 1, 1, tzinfo=timezone(timedelta(seconds=1)))]
)
def test_a_timestamp_needs_an_offset_of_whole_minutes(value: Any) -> None:
    with pytest.raises(TypeMismatchError, match="offset"):
        bs.array([value], bs.datatypes.timestamp_with_offset())


# Metadata


@pytest.mark.parametrize(
    ("type_", "serialized"),
    [
        (bs.datatypes.uuid(), b""),
        (bs.datatypes.json_(), b""),
        (bs.datatypes.bool8(), b""),
        (bs.datatypes.parquet_variant(), b""),
        (bs.datatypes.timestamp_with_offset(), b""),
        (bs.datatypes.opaque(bs.null(), "varray", "Oracle"), b'{"type_name":"varray","vendor_name":"Oracle"}'),
        (bs.datatypes.fixed_shape_tensor(bs.int8(), [2, 5]), b'{"shape":[2,5]}'),
        (
            bs.datatypes.fixed_shape_tensor(bs.int8(), [1, 2, 5], ["C", "H", "W"], [2, 0, 1]),
            b'{"shape":[1,2,5],"permutation":[2,0,1],"dim_names":["C","H","W"]}',
        ),
        (bs.datatypes.variable_shape_tensor(bs.int8(), 3), b"{}"),
        (
            bs.datatypes.variable_shape_tensor(bs.int8(), 3, ["H", "W", "C"], uniform_shape=[400, None, 3]),
            b'{"dim_names":["H","W","C"],"uniform_shape":[400,null,3]}',
        ),
    ],
    ids=str,
)
def test_the_metadata_follows_the_specification(type_: Any, serialized: bytes) -> None:
    plain = to_storage_field(bs.field("x", type_))
    assert plain.metadata == {NAME_KEY: type_.extension_name.encode(), METADATA_KEY: serialized}
    assert resolve_extension_type(plain).type == type_


@pytest.mark.parametrize(
    "type_",
    [
        bs.datatypes.fixed_shape_tensor(bs.int8(), []),
        bs.datatypes.opaque(bs.int8(), "", ""),
        bs.datatypes.variable_shape_tensor(bs.int8(), 2),
    ],
    ids=str,
)
def test_pyarrow_accepts_the_metadata_of_simple_types(type_: Any) -> None:
    sink = io.BytesIO()
    with bs.new_stream(sink, bs.schema([bs.field("x", type_)])):
        pass
    peer = pa.ipc.open_stream(sink.getvalue()).schema.field("x").type
    assert peer.extension_name == type_.extension_name


NAIVE = bs.struct({"timestamp": bs.timestamp("s"), "offset_minutes": bs.int16()})
NULLABLE = bs.struct([bs.field("metadata", bs.binary()), ("value", bs.binary())])
FIXED = bs.datatypes.fixed_shape_tensor(bs.int8(), (2, 3)).storage_type
VARIABLE = bs.datatypes.variable_shape_tensor(bs.int8(), 2).storage_type
BYTES = bs.field("metadata", bs.binary(), nullable=False)


@pytest.mark.parametrize(
    ("name", "storage", "serialized", "message"),
    [
        ("uuid", bs.binary(15), b"", "expected fixed_size_binary"),
        ("uuid", bs.binary(16), b"x", "has no parameters"),
        ("bool8", bs.uint8(), b"", "expected int8"),
        ("json", bs.binary(), b"", "expected string"),
        ("json", bs.string(), b"[]", "expected a JSON object"),
        ("json", bs.string(), b"\xff", "is not valid JSON"),
        ("opaque", bs.int8(), b"", "lacks 'type_name' and 'vendor_name'"),
        ("opaque", bs.int8(), b'{"type_name":"a"}', "lacks 'vendor_name'"),
        ("opaque", bs.int8(), b'{"type_name":1,"vendor_name":"b"}', "expected a string as 'type_name'"),
        ("opaque", bs.int8(), b"{" + b" " * (2 << 20) + b"}", "bytes of metadata"),
        ("fixed_shape_tensor", FIXED, b"", "lacks 'shape'"),
        ("fixed_shape_tensor", bs.list_(bs.int8()), b'{"shape":[2,3]}', "fixed-size list"),
        ("fixed_shape_tensor", FIXED, b'{"shape":[2,4]}', "'shape' .* has 8 elements, the storage type 6"),
        ("fixed_shape_tensor", FIXED, b'{"shape":[-2,-3]}', "found -2"),
        ("fixed_shape_tensor", FIXED, b'{"shape":[2.0,3]}', "found 2.0"),
        ("fixed_shape_tensor", FIXED, b'{"shape":[true,6]}', "found True"),
        ("fixed_shape_tensor", FIXED, b'{"shape":6}', "expected an array as 'shape'"),
        ("fixed_shape_tensor", FIXED, b'{"shape":[2,3],"dim_names":["a"]}', "'dim_names' has 1 names"),
        ("fixed_shape_tensor", FIXED, b'{"shape":[2,3],"dim_names":[1,2]}', "expected a string as 'dim_names'"),
        ("fixed_shape_tensor", FIXED, b'{"shape":[2,3],"permutation":[0,0]}', "'permutation'"),
        ("fixed_shape_tensor", FIXED, b'{"shape":[2,3],"permutation":[0,2]}', "'permutation'"),
        ("fixed_shape_tensor", FIXED, b"[" * 100_000, "nested too deeply|is not valid JSON"),
        ("fixed_shape_tensor", FIXED, b'{"shape":[' + b"1," * 100_000 + b"6]}", "up to 64 elements"),
        ("fixed_shape_tensor", FIXED, b'{"shape":[' + b"9" * 5000 + b"]}", "is not valid JSON"),
        ("fixed_shape_tensor", FIXED, b'{"shape":[NaN]}', "is not valid JSON"),
        ("variable_shape_tensor", bs.struct({"data": bs.list_(bs.int8())}), b"", "struct of a list 'data'"),
        ("variable_shape_tensor", VARIABLE, b'{"uniform_shape":[1]}', "'uniform_shape'"),
        ("variable_shape_tensor", VARIABLE, b'{"uniform_shape":[1,"x"]}', "expected sizes"),
        ("variable_shape_tensor", VARIABLE, b'{"dim_names":["x"]}', "'dim_names'"),
        ("timestamp_with_offset", NAIVE, b"", "UTC"),
        ("timestamp_with_offset", bs.timestamp("s", "UTC"), b"", "expected a struct"),
        ("parquet.variant", bs.binary(), b"", "expected a struct"),
        ("parquet.variant", bs.struct([BYTES]), b"", "'value', 'typed_value' or both"),
        ("parquet.variant", NULLABLE, b"", "non-nullable"),
        ("parquet.variant", bs.struct([BYTES, ("value", bs.string())]), b"", "'value' to be binary"),
        ("parquet.variant", bs.struct([BYTES, ("typed_value", bs.float16())]), b"", "not a type of variants"),
        ("parquet.variant", bs.struct([BYTES, ("typed_value", bs.list_(bs.int8()))]), b"", "a non-nullable struct"),
        ("parquet.variant", bs.struct([BYTES, ("value", bs.binary()), ("more", bs.int8())]), b"", "'more'"),
    ],
)  # fmt: skip
def test_malformed_metadata_is_rejected_with_the_field_name(
    name: str, storage: bs.DataType, serialized: bytes, message: str
) -> None:
    field = bs.field("column", storage, metadata={NAME_KEY: f"arrow.{name}".encode(), METADATA_KEY: serialized})
    with pytest.raises(InvalidDataError, match=message):
        resolve_extension_type(field)
    sink = io.BytesIO()
    with bs.new_stream(sink, bs.schema([field])):
        pass
    with pytest.raises(InvalidDataError, match=f"field 'column': (.|\n)*({message})"):
        _ = bs.open_stream(sink.getvalue()).schema.field(0)
    with pytest.raises(InvalidDataError, match="field 'column'"):
        bs.record_batch(CapsuleBatch(field))


class CapsuleBatch:
    """A batch of another library with one field and no rows."""

    def __init__(self, field: bs.Field) -> None:
        self._batch = bs.record_batch([bs.array([], field.type)], schema=bs.schema([field]))

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._batch.__arrow_c_array__()


def test_variants_may_be_shredded_at_every_depth() -> None:
    leaf = bs.struct([("value", bs.binary()), ("typed_value", bs.int64())])
    inner = bs.struct([("typed_value", bs.list_(bs.field("element", leaf, nullable=False)))])
    storage = bs.struct(
        [
            ("typed_value", bs.struct([bs.field("event", inner, nullable=False)])),
            bs.field("metadata", bs.dictionary(bs.int8(), bs.binary()), nullable=False),
        ]
    )
    assert resolve_extension_type(
        bs.field("x", storage, metadata={NAME_KEY: b"arrow.parquet.variant"})
    ).type == bs.datatypes.parquet_variant(storage)


# The registry


@pytest.fixture
def without_uuid() -> Iterator[None]:
    bs.datatypes.unregister_extension_type("arrow.uuid")
    yield
    bs.datatypes.register_extension_type(UuidType)


@pytest.mark.usefixtures("without_uuid")
def test_a_canonical_type_can_be_unregistered() -> None:
    assert bs.array(PYARROW_ARRAYS["uuid"]).type == bs.binary(16)


def test_the_name_of_a_canonical_type_cannot_be_registered() -> None:
    class Mine(bs.datatypes.ExtensionType):
        EXTENSION_NAME = "arrow.json"

    with pytest.raises(InvalidArgumentError, match="taken by JsonType"):
        bs.datatypes.register_extension_type(Mine)


def test_canonical_types_are_imported_on_first_use() -> None:
    program = (
        "import sys, bowstring as bs\n"
        "bs.schema({'x': bs.int8()})\n"
        "def loaded(): return sorted(m.rpartition('.')[2] for m in sys.modules if '.datatypes.canonical.' in m)\n"
        "print(loaded())\n"
        "from bowstring.datatypes.extension import resolve_extension_type\n"
        "field = bs.field('x', bs.binary(16), metadata={'ARROW:extension:name': 'arrow.uuid'})\n"
        "print(resolve_extension_type(field).type)\n"
        "print(loaded())"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert process.stdout.splitlines() == [
        "[]",
        "extension<arrow.uuid[fixed_size_binary[16]]>",
        "['parameters', 'uuid']",
    ]


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_timestamps_with_offset_sort_by_their_instants(unit: Any) -> None:
    # An hour apart each, in another order than the times of day.
    moments = [NOON.astimezone(WEST), None, (NOON - timedelta(hours=1)).astimezone(EAST), NOON + timedelta(hours=1)]
    array = bs.array(moments, bs.datatypes.timestamp_with_offset(unit))
    assert array.sort_indices().to_pylist() == [2, 0, 3, 1]
    assert array.sort_indices("descending", "at_start").to_pylist() == [1, 3, 0, 2]
    assert array[1:].sort_indices().to_pylist() == [1, 2, 0]
    assert array.sort().to_pylist() == [moments[2], moments[0], moments[3], None]
    table = bs.table({"at": array, "row": range(4)}).sort_by([("at", "descending")])
    assert table["row"].to_pylist() == [3, 0, 2, 1]


def test_timestamps_with_offset_are_cast_to_their_instants() -> None:
    moments = [NOON.astimezone(WEST), None, NOON.astimezone(EAST)]
    array = bs.array(moments, bs.datatypes.timestamp_with_offset("s"))
    for part, values in ((array, moments), (array[1:], moments[1:])):
        for type_ in ("timestamp[s, tz=UTC]", "timestamp[ns, tz=Europe/Paris]"):
            cast = part.cast(type_)
            cast.validate(full=True)
            assert cast.type == type_
            assert cast.to_pylist() == values
        assert part.cast("timestamp[us]").to_pylist() == [v and NOON.replace(tzinfo=None) for v in values]
    with pytest.raises(TypeMismatchError, match=r"can't cast .* to string"):
        array.cast("string")


def test_a_timestamp_that_is_null_within_its_struct_is_null_when_sorted_and_cast() -> None:
    storage = bs.struct({"timestamp": bs.timestamp("s", "UTC"), "offset_minutes": bs.int16()})
    field = resolve_extension_type(bs.field("x", storage, metadata={NAME_KEY: b"arrow.timestamp_with_offset"}))
    rows = [{"timestamp": None, "offset_minutes": 3}, {"timestamp": NOON, "offset_minutes": None}, None]
    array = bs.array(rows, storage).cast(field.type)
    assert array.cast(bs.timestamp("s", "UTC")).to_pylist() == [None, NOON, None]
    assert array.sort_indices().to_pylist() == [1, 0, 2]


def test_bytes_of_bool8_other_than_0_and_1_are_true() -> None:
    array = bs.Array.from_buffers(bs.datatypes.bool8(), 4, [None, np.array([0, 1, 2, -1], np.int8)])
    array.validate(full=True)
    truth = [False, True, True, True]
    assert array.to_pylist() == array.cast("bool").to_pylist() == truth
    assert array.to_numpy(zero_copy_only=False).tolist() == truth
    assert not array.equals(bs.array(truth, bs.datatypes.bool8())), "compared by bytes"
