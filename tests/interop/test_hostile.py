"""Invalid structures raise an error of Bowstring and are released."""

from __future__ import annotations

import ctypes
import errno
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.arrays.array import Array, import_array
from bowstring.arrays.chunked_array import import_chunked_array
from bowstring.arrays.record_batch import RecordBatch, import_batch, import_stream
from bowstring.datatypes import c_schema
from bowstring.datatypes.conversion import field
from bowstring.datatypes.schema import import_schema
from bowstring.errors import (
    InvalidArgumentError,
    InvalidDataError,
    LimitError,
    ResourceError,
    TypeMismatchError,
    UnsupportedError,
    UnsupportedTypeError,
)
from bowstring.interop import c_data, c_stream
from bowstring.layouts.registry import layout_of
from bowstring.memory import c_abi
from bowstring.memory.buffer import Buffer
from tests.interop.c_producer import Producer


@pytest.fixture
def producer() -> Producer:
    return Producer()


def assert_rejected(
    producer: Producer, schema: int, array: int, message: str, error: type[Exception] = InvalidDataError
) -> None:
    with pytest.raises(error, match=message):
        import_array(producer.pair(schema, array))


def int_array(producer: Producer, **fields: Any) -> int:
    return producer.array(3, [0, producer.values([1, 2, 3])], **fields)


def test_a_manually_built_array_is_imported(producer: Producer) -> None:
    array = import_array(producer.pair(producer.schema(b"l"), int_array(producer)))
    assert array.to_pylist() == [1, 2, 3]
    assert producer.released == 0
    del array
    assert producer.released == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_buffers": 1}, "has 2 buffers and 0 children, found 1 and 0"),
        ({"n_buffers": 3}, "found 3 and 0"),
        ({"n_buffers": -1}, "found -1 and 0"),
        ({"n_children": 1}, "found 2 and 1"),
        ({"length": -1}, "length -1"),
        ({"length": 1 << 62}, "buffer 1: 4611686018427387904 slots need 36893488147419103232 bytes"),
        ({"length": 1, "offset": (1 << 63) - 1}, "length 1, offset 9223372036854775807"),
        ({"offset": -8}, "offset -8"),
        ({"null_count": -2}, "null count -2"),
        ({"null_count": 4}, "null count 4"),
        ({"null_count": 1}, "1 of 3 slots are null, but there is no validity bitmap"),
        ({"buffers": 0}, "expected 2 buffers.*null pointer"),
        ({"dictionary": 64}, "has an unexpected dictionary"),
    ],
)
def test_fields_that_contradict_the_type_are_rejected_and_released(
    producer: Producer, fields: dict[str, Any], message: str
) -> None:
    assert_rejected(producer, producer.schema(b"l"), int_array(producer, **fields), message)
    assert producer.released == 1


@pytest.mark.parametrize("format", [b"u", b"U", b"+l", b"+L"])
def test_impossible_offsets_are_not_read(producer: Producer, format: bytes) -> None:
    inner = (producer.schema(b"n"),) if format[:1] == b"+" else ()
    child = (producer.array(3, []),) if inner else ()
    buffers = [0, producer.values([0, 0]), *([] if inner else [producer.text(b"x")])]
    array = producer.array(1 << 59, buffers, child)
    assert_rejected(producer, producer.schema(format, inner), array, "buffer 1: 576460752303423488 slots need")
    assert producer.released == 1


@pytest.mark.parametrize("slots", [1 << 59, (1 << 63) - 1])
def test_an_array_without_buffers_may_have_the_maximum_length(producer: Producer, slots: int) -> None:
    array = import_array(producer.pair(producer.schema(b"n"), producer.array(slots, [], null_count=slots)))
    structs = producer.pair(producer.schema(b"+s"), producer.array(slots, [0]))
    for valid in (array, import_array(structs)):
        valid.validate(full=True)
        assert (len(valid), len(valid.slice(slots - 1))) == (slots, 1)
    union = bs.Array.from_buffers(
        bs.dense_union([("n", bs.null())]), 1, [np.zeros(1, np.int8), np.array([5], np.int32)], [array]
    )
    again = import_array(c_data.export_array(union))
    again.validate(full=True)
    assert (len(again.children[0]), again.to_pylist()) == (slots, [None])


def test_a_missing_data_buffer_is_rejected(producer: Producer) -> None:
    assert_rejected(
        producer, producer.schema(b"l"), producer.array(3, [0, 0]), "buffer 1 is null, but 3 slots need 24 bytes"
    )
    assert producer.released == 1


@pytest.mark.parametrize("address", [8, (1 << 62) - 8, -64, -(1 << 63)])
def test_an_impossible_buffer_address_is_rejected(producer: Producer, address: int) -> None:
    assert_rejected(
        producer,
        producer.schema(b"l"),
        producer.array(3, [0, address]),
        "not valid address|out of range for a memory",
    )
    assert producer.released == 1


@pytest.mark.parametrize("address", [8, 1 << 62, -64, -(1 << 63)])
def test_impossible_addresses_of_offsets_lengths_and_pointers_are_not_read(producer: Producer, address: int) -> None:
    text = producer.text(b"x")
    assert_rejected(producer, producer.schema(b"u"), producer.array(1, [0, address, text]), "not a valid address")
    views = producer.array(1, [0, producer.values([0, 0]), text, address])
    assert_rejected(
        producer, producer.schema(b"vu"), views, "1 lengths of variadic buffers at address .* not a valid address"
    )
    assert_rejected(
        producer,
        producer.schema(b"l"),
        int_array(producer, buffers=address),
        "2 buffers at address .* not a valid address",
    )
    assert producer.released == 3


INVALID_ADDRESSES = (1, 64, (1 << 62) + 1, -1)
SCHEMA_POINTERS = {
    "format": c_abi.FORMAT,
    "name": c_abi.NAME,
    "metadata": c_abi.METADATA,
    "dictionary": c_abi.SCHEMA_DICTIONARY,
}


@pytest.mark.parametrize("address", INVALID_ADDRESSES)
@pytest.mark.parametrize("member", [*SCHEMA_POINTERS, "child"])
def test_impossible_pointers_of_a_schema_are_not_read(producer: Producer, member: str, address: int) -> None:
    schema_address = (
        producer.schema(b"i") if member == "dictionary" else producer.schema(b"+s", [producer.schema(b"l")])
    )
    fields = c_abi.SchemaStruct.from_address(schema_address)
    if member == "child":
        ctypes.c_int64.from_address(fields[c_abi.SCHEMA_CHILDREN]).value = address
    else:
        fields[SCHEMA_POINTERS[member]] = address
    with pytest.raises(InvalidDataError, match="not a valid address"):
        c_schema.import_field(producer.capsule(schema_address, c_abi.SCHEMA_CAPSULE))


@pytest.mark.parametrize("address", INVALID_ADDRESSES)
def test_impossible_pointers_to_children_and_dictionaries_are_not_read(producer: Producer, address: int) -> None:
    pair = producer.schema(b"+s", [producer.schema(b"l"), producer.schema(b"l")])
    message = "not a valid address"
    assert_rejected(producer, pair, producer.array(3, [0], [int_array(producer), address]), rf"\[1\] of 2 .*{message}")
    coded = producer.schema(b"i", dictionary=producer.schema(b"l"))
    codes = [0, producer.values([0, 0, 0], np.int32)]
    assert_rejected(producer, coded, producer.array(3, codes, dictionary=address), message)
    assert producer.released == 2


@pytest.mark.parametrize("text", [b"w:1_0", b"w: 1", b"w:+1", b"d:1_0,2", b"+us:0_0", b"w:", b"d:", b"+us:,"])
def test_numbers_in_a_format_have_only_digits(producer: Producer, text: bytes) -> None:
    inner = [producer.schema(b"l")] if text.startswith(b"+") else []
    with pytest.raises(InvalidDataError, match="is not valid"):
        c_schema.import_field(producer.capsule(producer.schema(text, inner), c_abi.SCHEMA_CAPSULE))


@pytest.mark.parametrize("format", [b"l", b"u", b"b", b"w:3", b"tdD", b"d:5,2"])
def test_empty_buffers_may_be_null(producer: Producer, format: bytes) -> None:
    buffers = [0, 0, 0] if format == b"u" else [0, 0]
    array = import_array(producer.pair(producer.schema(format), producer.array(0, buffers)))
    array.validate(full=True)
    assert array.to_pylist() == []
    assert len(pa.array(array)) == 0


def test_a_negative_last_offset_is_rejected(producer: Producer) -> None:
    offsets = producer.values([0, -5], np.int32)
    assert_rejected(
        producer, producer.schema(b"u"), producer.array(1, [0, offsets, producer.text(b"x")]), "is negative"
    )
    assert producer.released == 1


def test_offsets_beyond_the_data_are_found_by_full_validation(producer: Producer) -> None:
    offsets = producer.values([0, 900, 1], np.int32)
    array = import_array(producer.pair(producer.schema(b"u"), producer.array(2, [0, offsets, producer.text(b"x")])))
    with pytest.raises(InvalidDataError):
        array.validate(full=True)


def test_a_child_that_is_too_short_is_rejected(producer: Producer) -> None:
    schema = producer.schema(b"+s", [producer.schema(b"l", name=b"a")])
    assert_rejected(
        producer, schema, producer.array(4, [0], [int_array(producer)]), "child 'a' has 3 values, the struct has 4"
    )
    assert producer.released == 1


def test_an_error_names_the_child(producer: Producer) -> None:
    schema = producer.schema(b"+s", [producer.schema(b"+s", [producer.schema(b"l", name=b"b")], name=b"a")])
    inner = producer.array(3, [0], [int_array(producer, n_buffers=1)])
    assert_rejected(producer, schema, producer.array(3, [0], [inner]), "a: b: int64 has 2 buffers")


@pytest.mark.parametrize("children", [0, 8])
def test_null_pointers_to_children_are_rejected(producer: Producer, children: int) -> None:
    schema = producer.schema(b"+s", [producer.schema(b"l")])
    row = children and producer._row([0])
    assert_rejected(producer, schema, producer.array(3, [0], [1], children=row), "null pointer")
    assert producer.released == 1


def test_a_released_child_is_rejected(producer: Producer) -> None:
    schema = producer.schema(b"+s", [producer.schema(b"l", name=b"a")])
    assert_rejected(
        producer, schema, producer.array(3, [0], [int_array(producer, release=0)]), "a: the structure is released"
    )


def test_a_missing_dictionary_is_rejected(producer: Producer) -> None:
    schema = producer.schema(b"l", dictionary=producer.schema(b"u"))
    assert_rejected(producer, schema, int_array(producer), "has no dictionary")
    assert producer.released == 1


def test_variadic_buffers_need_their_lengths(producer: Producer) -> None:
    views = producer.values([0, 0])
    schema = producer.schema(b"vu")
    assert_rejected(producer, schema, producer.array(1, [0, views]), "at least 3 buffers")
    assert_rejected(producer, schema, producer.array(1, [0, views, views, 0]), "expected 1 lengths.*null pointer")
    negative = producer.values([-4])
    assert_rejected(producer, schema, producer.array(1, [0, views, views, negative]), "variadic buffer 0 of -4 bytes")
    without_address = producer.array(1, [0, views, 0, producer.values([5])])
    assert_rejected(producer, schema, without_address, "variadic buffer 0 of 5 bytes is at address 0x0")
    many = producer.array(1, [0, views, 0], n_buffers=1 << 40)
    assert_rejected(producer, schema, many, "limit of 1048576", LimitError)
    assert producer.released == 5


def test_an_array_of_views_without_data_buffers_is_imported(producer: Producer) -> None:
    views = producer.values(np.frombuffer(b"\x02\0\0\0hi" + bytes(10), np.int64))
    array = import_array(producer.pair(producer.schema(b"vu"), producer.array(1, [0, views, 0])))
    assert array.to_pylist() == ["hi"]


@pytest.mark.parametrize(
    ("format", "error", "message"),
    [
        (b"", UnsupportedError, "unknown format ''"),
        (b"nonsense", UnsupportedError, "format 'nonsense'"),
        (b"tsx:", UnsupportedError, "tsx"),
        (b"d:99,1", InvalidDataError, "precision"),
        (b"d:x", InvalidDataError, "is not valid"),
        (b"w:-4", InvalidDataError, "is not valid"),
        (b"+l", InvalidDataError, "expected 1 children, found 0"),
        (b"+w:3", InvalidDataError, "expected 1 children, found 0"),
        (b"+ud:0", InvalidDataError, "is not valid"),
        (b"+r", InvalidDataError, "expected 2 children"),
        (b"\xff\xfe", UnsupportedError, "unknown format"),
        (None, InvalidDataError, "format is a null pointer"),
    ],
)
def test_invalid_formats_are_rejected(
    producer: Producer, format: bytes | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        c_schema.import_field(producer.capsule(producer.schema(format), c_abi.SCHEMA_CAPSULE))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_children": -1}, "has -1 children"),
        ({"n_children": 1}, "expected 1 children.*null pointer"),
        ({"n_children": 1 << 40, "children": 64}, "limit of 1048576"),
    ],
)
def test_schemas_with_impossible_children_are_rejected(
    producer: Producer, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidDataError, match=message):
        c_schema.import_field(producer.capsule(producer.schema(b"+s", **fields), c_abi.SCHEMA_CAPSULE))


@pytest.mark.parametrize(
    ("text", "dictionary", "message"),
    [
        (b"_pli128", None, "field 'outer': field 'inner': unknown format '_pli128'"),
        (b"u", b"u", "field 'outer': field 'inner': dictionary indices must be integers, found string"),
    ],
)
def test_the_field_of_an_invalid_schema_is_named(
    producer: Producer, text: bytes, dictionary: bytes | None, message: str
) -> None:
    inner = producer.schema(text, name=b"inner", dictionary=producer.schema(dictionary) if dictionary else 0)
    schema = producer.schema(b"+s", [producer.schema(b"+l", [inner], name=b"outer")])
    with pytest.raises(InvalidDataError, match=f"^{message}$"):
        c_schema.import_field(producer.capsule(schema, c_abi.SCHEMA_CAPSULE))


def test_the_depth_of_a_schema_is_limited(producer: Producer) -> None:
    schema = producer.schema(b"i")
    for _ in range(70):
        schema = producer.schema(b"+l", [schema])
    with pytest.raises(LimitError, match="nested more than 64 levels"):
        c_schema.import_field(producer.capsule(schema, c_abi.SCHEMA_CAPSULE))


@pytest.mark.parametrize("text", [b"+l", b"+s", b"+m", b"+vl", b"+w:2", b"+ud:0", b"+r", "dictionary"])
def test_a_schema_that_is_its_own_child_or_dictionary_is_an_error(producer: Producer, text: bytes | str) -> None:
    children = {b"+r": [0, 0], "dictionary": []}.get(text, [0])
    schema = producer.schema(text if isinstance(text, bytes) else b"i", children)
    fields = c_abi.SchemaStruct.from_address(schema)
    for index in range(len(children)):
        ctypes.c_int64.from_address(fields[c_abi.SCHEMA_CHILDREN] + 8 * index).value = schema
    if text == "dictionary":
        fields[c_abi.SCHEMA_DICTIONARY] = schema
    with pytest.raises(LimitError, match="nested"):
        c_schema.import_field(producer.capsule(schema, c_abi.SCHEMA_CAPSULE))


def test_the_number_of_fields_of_a_shared_schema_is_limited(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c_schema, "MAX_FIELDS", 5000)
    schema = producer.schema(b"i")
    for _ in range(60):
        schema = producer.schema(b"+s", [schema, schema])
    with pytest.raises(LimitError, match="more than 5000 fields"):
        c_schema.import_field(producer.capsule(schema, c_abi.SCHEMA_CAPSULE))


def int32s(*integers: int) -> np.ndarray[Any, Any]:
    return np.array(integers, np.int32)


@pytest.mark.parametrize(
    ("integers", "message"),
    [
        ((-1,), "-1 key-value pairs"),
        ((1 << 30,), "key-value pairs"),
        ((1, -7), "a string of -7 bytes"),
        ((1, 1 << 30), "longer"),
    ],
)
def test_metadata_of_impossible_sizes_is_rejected(producer: Producer, integers: tuple[int, ...], message: str) -> None:
    schema = producer.schema(b"i", metadata=producer.values(integers, np.int32))
    with pytest.raises(InvalidDataError, match=message):
        c_schema.import_field(producer.capsule(schema, c_abi.SCHEMA_CAPSULE))


def test_a_name_that_is_not_utf8_is_rejected(producer: Producer) -> None:
    with pytest.raises(InvalidDataError, match="is not valid UTF-8"):
        c_schema.import_field(producer.capsule(producer.schema(b"i", name=b"\xff"), c_abi.SCHEMA_CAPSULE))


def test_a_name_may_be_null(producer: Producer) -> None:
    assert c_schema.import_field(producer.capsule(producer.schema(b"i", name=None), c_abi.SCHEMA_CAPSULE)).name == ""


def test_dictionary_indices_are_integers(producer: Producer) -> None:
    schema = producer.schema(b"u", dictionary=producer.schema(b"u"))
    with pytest.raises(InvalidDataError, match="indices"):
        c_schema.import_field(producer.capsule(schema, c_abi.SCHEMA_CAPSULE))


@pytest.mark.parametrize("source", [object(), 7, None, "text", (1, 2), (1, 2, 3)])
def test_objects_without_capsules_are_an_error(source: object) -> None:
    for take in (
        import_array,
        import_batch,
        import_stream,
        import_schema,
        import_chunked_array,
    ):
        with pytest.raises(TypeMismatchError):
            take(source)


def test_a_capsule_of_another_name_is_rejected() -> None:
    schema, array = pa.array([1]).__arrow_c_array__()
    with pytest.raises(TypeMismatchError, match="arrow_schema"):
        import_schema(array)
    with pytest.raises(TypeMismatchError, match="arrow_array"):
        import_array((schema, schema))


def test_a_capsule_is_consumed_once() -> None:
    pair = pa.array([1, 2]).__arrow_c_array__()
    assert import_array(pair).to_pylist() == [1, 2]
    with pytest.raises(InvalidArgumentError, match="moved or released already"):
        import_array(pair)


def test_only_structs_are_record_batches() -> None:
    with pytest.raises(InvalidDataError, match=r"expected a struct.*found int64"):
        import_batch(pa.array([1]))
    with pytest.raises(InvalidDataError, match=r"expected a struct.*found int64"):
        import_stream(pa.chunked_array([[1]]))


def test_null_rows_of_a_record_batch_are_rejected() -> None:
    with pytest.raises(InvalidDataError, match="1 of 2 rows of a record batch are null"):
        import_batch(pa.array([{"a": 1}, None]))


def test_names_with_a_nul_are_rejected() -> None:
    inner = field("nul\0", bs.int8())
    with pytest.raises(UnsupportedTypeError, match=r"'outer.nul\\x00' contains a NUL character"):
        field("outer", bs.struct([inner])).__arrow_c_schema__()
    with pytest.raises(UnsupportedTypeError, match=r"field 't': .* contains a NUL character"):
        field("t", bs.timestamp("s", "a\0b")).__arrow_c_schema__()


def test_a_failing_stream_raises_with_the_message_of_the_producer() -> None:
    def batches() -> Any:
        yield pa.record_batch({"a": [1]})
        raise RuntimeError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches())
    _, stream = import_stream(reader)
    assert next(stream).to_pydict() == {"a": [1]}
    with pytest.raises(InvalidDataError, match=r"(?s)failed to return array 1: .*the disk is gone.*EINVAL"):
        next(stream)
    assert list(stream) == []


@pytest.mark.parametrize(
    ("stream_error", "expected_class"),
    [
        (ValueError("no good"), ValueError),
        (MemoryError("none"), MemoryError),
        (OSError(errno.EIO, "bad disk"), OSError),
    ],
)
def test_errors_of_an_exported_stream_reach_the_consumer(
    stream_error: Exception, expected_class: type[Exception]
) -> None:
    exported = import_batch(pa.record_batch({"a": [1]}))

    def batches() -> Any:
        yield exported
        raise stream_error

    reader = pa.RecordBatchReader._import_from_c_capsule(c_data.export_stream(exported.schema, batches()))
    assert reader.read_next_batch().to_pydict() == {"a": [1]}
    with pytest.raises(expected_class, match=str(stream_error.args[-1])):
        reader.read_next_batch()


def test_a_batch_that_does_not_match_its_schema_is_not_exported() -> None:
    exported = import_batch(pa.record_batch({"a": [1, 2], "s": ["x", "yz"]}))
    other = import_batch(pa.record_batch({"a": ["1"], "s": ["x"]}))
    _, stream = import_stream(c_data.export_stream(exported.schema, iter([exported, other])))
    assert next(stream) == exported
    with pytest.raises(InvalidDataError, match=r"column 'a' of a record batch: expected int64.1., found string.1."):
        next(stream)
    _, stream = import_stream(c_data.export_stream(exported.schema, iter([exported.select(["a"])])))
    with pytest.raises(InvalidDataError, match="has 1 columns, the schema has 2"):
        next(stream)
    with pytest.raises(InvalidDataError, match=r"expected int64.3., found int64.2."):
        RecordBatch(exported.schema, 3, exported.columns).__arrow_c_array__()


def test_arrays_with_offsets_beyond_the_data_are_not_exported() -> None:
    offsets = np.array([0, 1, 900], np.int32)
    beyond = Array(layout_of(bs.string()), 2, (None, Buffer.of(offsets), Buffer.of(b"ab")))
    with pytest.raises(InvalidDataError, match="900"):
        c_data.export_array(beyond)


def test_a_memory_error_of_a_stream_is_distinguished() -> None:
    exported = import_batch(pa.record_batch({"a": [1]}))

    def batches() -> Any:
        raise MemoryError("no room")
        yield exported

    _, stream = import_stream(c_data.export_stream(exported.schema, batches()))
    with pytest.raises(ResourceError, match="no room"):
        next(stream)


def test_a_stream_whose_schema_fails_is_released() -> None:
    released = []

    def release(address: int) -> None:
        released.append(address)
        c_abi.StreamStruct.from_address(address)[c_abi.STREAM_RELEASE] = 0

    def fail(address: int, out: int) -> int:
        return errno.EINVAL

    def silent(address: int) -> int:
        return 0

    get, last_error = c_stream._GetFunction(fail), c_stream._ErrorFunction(silent)
    functions = [get, get, last_error, c_abi.ReleaseFunction(release)]
    fields = c_abi.StreamStruct(*map(c_abi.function_address, functions), 0)
    with pytest.raises(InvalidDataError, match=r"no error message.*EINVAL"):
        c_stream.ImportedArrayStream(ctypes.addressof(fields))
    assert len(released) == 1
    assert fields[c_abi.STREAM_RELEASE] == 0
