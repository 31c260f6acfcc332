"""Every worked example of the columnar specification with its bytes; tests are named after the examples' headings.

Bytes that the specification leaves unspecified are not compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.layouts.base import BufferRole
from bowstring.layouts.registry import layout_of
from bowstring.memory import bitmap


def int32(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def bits(text: str) -> bytes:
    """Return a byte from its bits in the specification's order: bit 7 first."""
    return bytes([int(text, 2)])


def pad(content: bytes) -> bytes:
    """Pad bytes to 64 as in the specification's tables; only the padding of bitmaps is specified."""
    return content + b"\xaa" * (-len(content) % 64)


def pad_bits(text: str) -> bytes:
    return bits(text) + bytes(63)


def buffer_bytes(array: bs.Array, index: int) -> bytes:
    buffer_ = array.own_buffers[index]
    assert buffer_ is not None
    return buffer_.to_bytes()


def check_values(array: bs.Array, values: list[Any]) -> bs.Array:
    """Return the array after checking that it is valid and has these values."""
    array.validate(full=True)
    assert array.to_pylist() == values
    return array


def test_validity_bitmaps_have_the_bytes_of_the_specification() -> None:
    values = [0, 1, None, 2, None, 3]
    array = bs.array(values)
    assert buffer_bytes(array, 0) == bits("00101011")
    assert bitmap.unpack(bs.memory.Buffer.of(bits("00101011")), 0, 6).tolist() == [
        value is not None for value in values
    ]
    assert [array.is_valid(j) for j in range(6)] == [bool(0b00101011 & (1 << (j % 8))) for j in range(6)]


def test_an_int32_array_has_the_bytes_of_the_specification() -> None:
    values = [1, None, 2, 4, 8]
    built = check_values(bs.array(values, bs.int32()), values)
    assert (built.length, built.null_count) == (5, 1)
    assert buffer_bytes(built, 0) == bits("00011101")
    data = buffer_bytes(built, 1)
    assert data[:4] + data[8:] == int32(1, 2, 4, 8)
    from_buffers = bs.Array.from_buffers(
        bs.int32(), 5, [pad_bits("00011101"), pad(int32(1, -77, 2, 4, 8))], null_count=1
    )
    assert check_values(from_buffers, values).equals(built)


def test_a_non_null_int32_array_has_the_bytes_of_the_specification() -> None:
    values = [1, 2, 3, 4, 8]
    data = pad(int32(*values))
    with_bitmap = bs.Array.from_buffers(bs.int32(), 5, [pad_bits("00011111"), data], null_count=0)
    elided = bs.Array.from_buffers(bs.int32(), 5, [None, data], null_count=0)
    assert check_values(with_bitmap, values).equals(check_values(elided, values))
    built = bs.array(values, bs.int32())
    assert built.own_buffers[0] is None
    assert buffer_bytes(built, 1) == int32(*values)


def test_a_var_binary_array_has_the_bytes_of_the_specification() -> None:
    values = [b"joe", None, None, b"mark"]
    built = check_values(bs.array(values, bs.binary()), values)
    assert built.null_count == 2
    assert buffer_bytes(built, 0) == bits("00001001")
    assert buffer_bytes(built, 1) == int32(0, 3, 3, 3, 7)
    assert buffer_bytes(built, 2) == b"joemark"
    buffers = [pad_bits("00001001"), pad(int32(0, 3, 3, 3, 7)), pad(b"joemark")]
    assert check_values(bs.Array.from_buffers(bs.binary(), 4, buffers, null_count=2), values).equals(built)


def test_variable_size_binary_views_have_the_bytes_of_the_specification() -> None:
    short, long = b"twelve bytes", b"thirteen byte"
    built = check_values(bs.array([short, long, b"ab"], bs.binary_view()), [short, long, b"ab"])
    views = buffer_bytes(built, 1)
    assert views[:16] == int32(12) + short
    assert views[16:32] == int32(13) + b"thir" + int32(0, 0)
    assert views[32:] == int32(2) + b"ab" + bytes(10)
    assert buffer_bytes(built, 2) == long
    second = bs.Array.from_buffers(bs.binary_view(), 1, [None, int32(13) + b"thir" + int32(1, 3), b"", b"..." + long])
    check_values(second, [long])


def test_a_list_int8_array_has_the_bytes_of_the_specification() -> None:
    values = [[12, -7, 25], None, [0, -127, 127, 50], []]
    built = check_values(bs.array(values, bs.list_(bs.int8())), values)
    assert (built.length, built.null_count) == (4, 1)
    assert buffer_bytes(built, 0) == bits("00001101")
    assert buffer_bytes(built, 1) == int32(0, 3, 3, 7, 7)
    (child,) = built.children
    assert (child.length, child.null_count, child.own_buffers[0]) == (7, 0, None)
    assert buffer_bytes(child, 1) == np.array([12, -7, 25, 0, -127, 127, 50], np.int8).tobytes()
    buffers = [pad_bits("00001101"), pad(int32(0, 3, 3, 7, 7))]
    assert check_values(bs.Array.from_buffers(built.type, 4, buffers, [child], null_count=1), values).equals(built)


def test_a_list_list_int8_array_has_the_bytes_of_the_specification() -> None:
    values = [[[1, 2], [3, 4]], [[5, 6, 7], None, [8]], [[9, 10]]]
    built = check_values(bs.array(values, bs.list_(bs.list_(bs.int8()))), values)
    assert (built.length, built.null_count, built.own_buffers[0]) == (3, 0, None)
    assert buffer_bytes(built, 1) == int32(0, 2, 5, 6)
    (inner,) = built.children
    assert (inner.length, inner.null_count) == (6, 1)
    assert buffer_bytes(inner, 0) == bits("00110111")
    assert buffer_bytes(inner, 1) == int32(0, 2, 4, 7, 7, 8, 10)
    (numbers,) = inner.children
    assert (numbers.length, numbers.null_count, numbers.own_buffers[0]) == (10, 0, None)
    assert buffer_bytes(numbers, 1) == bytes(range(1, 11))


def test_a_list_view_int8_array_has_the_bytes_of_the_specification() -> None:
    values = [[12, -7, 25], None, [0, -127, 127, 50], []]
    child = bs.array([12, -7, 25, 0, -127, 127, 50], bs.int8())
    buffers = [pad_bits("00001101"), pad(int32(0, 7, 3, 0)), pad(int32(3, 0, 4, 0))]
    from_buffers = check_values(
        bs.Array.from_buffers(bs.list_view(bs.int8()), 4, buffers, [child], null_count=1), values
    )
    built = check_values(bs.array(values, from_buffers.type), values)
    assert buffer_bytes(built, 0) == bits("00001101")
    assert buffer_bytes(built, 2) == int32(3, 0, 4, 0)
    assert buffer_bytes(built.children[0], 1) == buffer_bytes(child, 1)
    assert built.equals(from_buffers)


def test_a_list_view_int8_array_out_of_order_and_shared_has_the_values_of_the_specification() -> None:
    values = [[12, -7, 25], None, [0, -127, 127, 50], [], [50, 12]]
    child = bs.array([0, -127, 127, 50, 12, -7, 25], bs.int8())
    buffers = [pad_bits("00011101"), pad(int32(4, 7, 0, 0, 3)), pad(int32(3, 0, 4, 0, 2))]
    from_buffers = check_values(
        bs.Array.from_buffers(bs.list_view(bs.int8()), 5, buffers, [child], null_count=1), values
    )
    assert from_buffers.equals(bs.array(values, from_buffers.type))


def test_a_fixed_size_list_byte_4_array_has_the_bytes_of_the_specification() -> None:
    values = [[192, 168, 0, 12], None, [192, 168, 0, 25], [192, 168, 0, 1]]
    built = check_values(bs.array(values, bs.list_(bs.uint8(), 4)), values)
    assert (built.length, built.null_count) == (4, 1)
    assert buffer_bytes(built, 0) == bits("00001101")
    (child,) = built.children
    assert child.length == 16
    data = buffer_bytes(child, 1)
    assert data[:4] + data[8:] == bytes([192, 168, 0, 12, 192, 168, 0, 25, 192, 168, 0, 1])
    child = bs.array(np.array([192, 168, 0, 12, 9, 9, 9, 9, 192, 168, 0, 25, 192, 168, 0, 1], np.uint8))
    from_buffers = bs.Array.from_buffers(built.type, 4, [pad_bits("00001101")], [child], null_count=1)
    assert check_values(from_buffers, values).equals(built)


PERSON = bs.struct({"name": bs.binary(), "age": bs.int32()})


def people() -> bs.Array:
    """Return the example's array of Struct<VarBinary, Int32> with 'alice' masked."""
    names = [pad_bits("00001101"), pad(int32(0, 3, 3, 8, 12)), pad(b"joealicemark")]
    ages = [pad_bits("00001011"), pad(int32(1, 2, -77, 4))]
    children = [
        bs.Array.from_buffers(bs.binary(), 4, names, null_count=1),
        bs.Array.from_buffers(bs.int32(), 4, ages, null_count=1),
    ]
    return bs.Array.from_buffers(PERSON, 4, [pad_bits("00001011")], children, null_count=1)


def test_a_struct_var_binary_int32_array_has_the_bytes_of_the_specification() -> None:
    values = [{"name": b"joe", "age": 1}, {"name": None, "age": 2}, None, {"name": b"mark", "age": 4}]
    from_buffers = check_values(people(), values)
    built = check_values(bs.array(values, PERSON), values)
    assert (built.length, built.null_count) == (4, 1)
    assert buffer_bytes(built, 0) == bits("00001011")
    assert buffer_bytes(built.children[1], 0) == bits("00001011")
    assert built.equals(from_buffers)


def test_a_null_struct_hides_the_values_of_its_children() -> None:
    array = people()
    names, ages = array.children
    assert array.to_pylist()[2] is None
    assert names.to_pylist() == [b"joe", None, b"alice", b"mark"]
    assert ages.to_pylist() == [1, 2, None, 4]
    assert [array.is_valid(j) and names.is_valid(j) for j in range(4)] == [True, False, False, True]


def test_a_dense_union_has_the_bytes_of_the_specification() -> None:
    type_ = bs.dense_union([("f", bs.float32()), ("i", bs.int32())])
    values = [np.float32(1.2).item(), None, np.float32(3.4).item(), 5]
    built = check_values(bs.array(values, type_), values)
    assert (built.length, built.null_count) == (4, 0)
    assert buffer_bytes(built, 0) == bytes([0, 0, 0, 1])
    assert buffer_bytes(built, 1) == int32(0, 1, 2, 0)
    floats, ints = built.children
    assert (floats.length, floats.null_count, ints.length, ints.null_count) == (3, 1, 1, 0)
    assert buffer_bytes(floats, 0) == bits("00000101")
    assert buffer_bytes(floats, 1)[:4] + buffer_bytes(floats, 1)[8:] == np.array([1.2, 3.4], "<f4").tobytes()
    assert ints.own_buffers[0] is None
    assert buffer_bytes(ints, 1) == int32(5)
    buffers = [pad(bytes([0, 0, 0, 1])), pad(int32(0, 1, 2, 0))]
    assert check_values(bs.Array.from_buffers(type_, 4, buffers, [floats, ints], null_count=0), values).equals(built)


def test_a_sparse_union_has_the_bytes_of_the_specification() -> None:
    type_ = bs.sparse_union([("i", bs.int32()), ("f", bs.float32()), ("s", bs.binary())])
    values = [5, np.float32(1.2).item(), b"joe", np.float32(3.4).item(), 4, b"mark"]
    built = check_values(bs.array(values, type_), values)
    assert (built.length, built.null_count) == (6, 0)
    assert buffer_bytes(built, 0) == bytes([0, 1, 2, 1, 0, 2])
    assert [(child.length, child.null_count) for child in built.children] == [(6, 4)] * 3
    ints, floats, strings = built.children
    assert buffer_bytes(ints, 0) == bits("00010001")
    assert buffer_bytes(ints, 1)[:4] + buffer_bytes(ints, 1)[16:20] == int32(5, 4)
    assert buffer_bytes(floats, 0) == bits("00001010")
    assert buffer_bytes(floats, 1)[4:8] + buffer_bytes(floats, 1)[12:16] == np.array([1.2, 3.4], "<f4").tobytes()
    assert buffer_bytes(strings, 0) == bits("00100100")
    assert buffer_bytes(strings, 1) == int32(0, 0, 0, 3, 3, 3, 7)
    assert buffer_bytes(strings, 2) == b"joemark"


def test_a_sparse_union_ignores_unselected_values() -> None:
    type_ = bs.sparse_union([("i", bs.int32()), ("s", bs.binary())])
    children = [bs.array([5, 77], bs.int32()), bs.array([b"hidden", b"joe"])]
    from_buffers = bs.Array.from_buffers(type_, 2, [bytes([0, 1])], children)
    assert check_values(from_buffers, [5, b"joe"]).equals(bs.array([5, b"joe"], type_))


def test_a_null_array_has_no_buffers() -> None:
    array = check_values(bs.array([None, None, None], bs.null()), [None] * 3)
    assert (array.own_buffers, array.children, array.null_count) == ((), (), 3)


def test_a_dictionary_encoded_array_has_the_bytes_of_the_specification() -> None:
    type_ = bs.dictionary(bs.int32(), bs.binary())
    values = [b"foo", b"bar", b"foo", b"bar", None, b"baz"]
    built = check_values(bs.array(values, type_), values)
    data = buffer_bytes(built, 1)
    assert data[:16] + data[20:] == int32(0, 1, 0, 1, 2)
    assert buffer_bytes(built, 0) == bits("00101111")
    assert built.dictionary is not None
    assert check_values(built.dictionary, [b"foo", b"bar", b"baz"]).type == bs.binary()


def test_a_dictionary_may_have_duplicates_and_nulls() -> None:
    type_ = bs.dictionary(bs.int32(), bs.binary())
    dictionary = bs.array([b"foo", b"bar", b"baz", b"foo", None])
    from_buffers = bs.Array.from_buffers(type_, 6, [None, pad(int32(0, 1, 3, 1, 4, 2))], dictionary=dictionary)
    check_values(from_buffers, [b"foo", b"bar", b"foo", b"bar", None, b"baz"])
    assert from_buffers.null_count == 0, "the null count is that of the indices alone"


def test_a_run_end_encoded_array_has_the_bytes_of_the_specification() -> None:
    type_ = bs.run_end_encoded(bs.int32(), bs.float32())
    values = [1.0, 1.0, 1.0, 1.0, None, None, 2.0]
    built = check_values(bs.array(values, type_), values)
    assert (built.length, built.null_count, built.own_buffers) == (7, 0, ())
    ends, runs = built.children
    assert (ends.length, ends.null_count, ends.own_buffers[0]) == (3, 0, None)
    assert buffer_bytes(ends, 1) == int32(4, 6, 7)
    assert (runs.length, runs.null_count) == (3, 1)
    assert buffer_bytes(runs, 0) == bits("00000101")
    assert buffer_bytes(runs, 1)[:4] + buffer_bytes(runs, 1)[8:] == np.array([1.0, 2.0], "<f4").tobytes()
    from_buffers = bs.Array.from_buffers(
        type_, 7, [], [bs.Array.from_buffers(bs.int32(), 3, [pad_bits("00000111"), int32(4, 6, 7)]), runs]
    )
    assert check_values(from_buffers, values).equals(built)


BUFFER_LISTING = [
    ("Primitive", bs.int32(), ["validity", "data"], False),
    ("Primitive", bs.bool_(), ["validity", "data"], False),
    ("Primitive", bs.binary(4), ["validity", "data"], False),
    ("Primitive", bs.decimal128(9, 2), ["validity", "data"], False),
    ("Variable Binary", bs.string(), ["validity", "offsets", "data"], False),
    ("Variable Binary", bs.large_binary(), ["validity", "offsets", "data"], False),
    ("Variable Binary View", bs.string_view(), ["validity", "views"], True),
    ("List", bs.list_(bs.int8()), ["validity", "offsets"], False),
    ("List", bs.map_(bs.string(), bs.int8()), ["validity", "offsets"], False),
    ("List View", bs.large_list_view(bs.int8()), ["validity", "offsets", "sizes"], False),
    ("Fixed-size List", bs.list_(bs.int8(), 2), ["validity"], False),
    ("Struct", bs.struct({"a": bs.int8()}), ["validity"], False),
    ("Sparse Union", bs.sparse_union({"a": bs.int8()}), ["type ids"], False),
    ("Dense Union", bs.dense_union({"a": bs.int8()}), ["type ids", "offsets"], False),
    ("Null", bs.null(), [], False),
    ("Dictionary-encoded", bs.dictionary(bs.int8(), bs.string()), ["validity", "data"], False),
    ("Run-end encoded", bs.run_end_encoded(bs.int16(), bs.int8()), [], False),
]


@pytest.mark.parametrize(("layout_name", "type_", "roles", "variadic"), BUFFER_LISTING, ids=str)
def test_every_layout_has_the_buffers_of_the_specification_s_listing(
    layout_name: str, type_: bs.DataType, roles: list[str], variadic: bool
) -> None:
    layout = layout_of(type_)
    assert [spec.role.value for spec in layout.buffers] == roles
    assert layout.VARIADIC is variadic
    assert layout.has_validity == ("validity" in roles)


@pytest.mark.parametrize(
    ("type_", "width"),
    [
        (bs.string(), 4),
        (bs.large_string(), 8),
        (bs.list_(bs.int8()), 4),
        (bs.large_list(bs.int8()), 8),
        (bs.list_view(bs.int8()), 4),
        (bs.large_list_view(bs.int8()), 8),
        (bs.dense_union({"a": bs.int8()}), 4),
    ],
    ids=str,
)
def test_offsets_are_signed_and_have_the_width_of_the_type(type_: bs.DataType, width: int) -> None:
    for spec in layout_of(type_).buffers:
        if spec.role in (BufferRole.OFFSETS, BufferRole.SIZES):
            assert spec.dtype == np.dtype(f"<i{width}")
