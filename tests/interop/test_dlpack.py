"""DLPack, the buffer protocol, and NumPy's array protocol."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import BufferExchangeError, TypeMismatchError, UnsupportedError, WouldCopyError
from tests.addresses import address, data_address
from tests.interop.test_lifetime import tracked_array

NUMBERS = [bs.int8(), bs.int16(), bs.int32(), bs.int64(), bs.uint8(), bs.uint16(), bs.uint32(), bs.uint64()]
FORMATS = [*NUMBERS, bs.float16(), bs.float32(), bs.float64()]


# DLPack export


@pytest.mark.parametrize("type_", FORMATS, ids=str)
def test_numbers_are_copied_to_dlpack_unless_copy_is_false(type_: bs.DataType) -> None:
    array = bs.array(range(10), type_).slice(3, 5)
    copied, shared = np.from_dlpack(array), np.from_dlpack(array, copy=False)
    assert copied.tolist() == shared.tolist() == [3, 4, 5, 6, 7]
    assert copied.dtype == shared.dtype == array.to_numpy().dtype
    assert address(shared) == data_address(array) + 3 * shared.itemsize
    assert not shared.flags.writeable
    assert not np.shares_memory(copied, array.to_numpy())
    assert copied.flags.writeable


def keep_in_memory(table: bs.Table, _: Path) -> bs.Table:
    return table


def share_and_attach(table: bs.Table, _: Path) -> bs.Table:
    return bs.attach(bs.share(table))


def write_and_map(table: bs.Table, folder: Path) -> bs.Table:
    with bs.new_file(folder / "table.arrow", table.schema) as writer:
        writer.write(table)
    return bs.open_file(folder / "table.arrow").read_all()


SOURCES: list[Callable[[bs.Table, Path], bs.Table]] = [keep_in_memory, share_and_attach, write_and_map]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}, {"max_version": (1, 0), "copy": None}], ids=str)
def test_writing_to_a_dlpack_copy_does_not_change_the_array(
    source: Callable[[bs.Table, Path], bs.Table], options: dict[str, Any], tmp_path: Path
) -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    table = source(bs.table({"n": [1, 2, 3], "b": [True, False, True], "l": bs.array(values)}), tmp_path)
    before = table.to_pydict()
    for column in table.columns:
        writable = writable_memory(column.chunk(0).__dlpack__(**options))
        writable[:] = b"\xff" * len(writable)
    assert table.to_pydict() == before


def writable_memory(capsule: object) -> memoryview:
    """The memory of the first two elements of a DLPack capsule, writable like for a consumer that ignores the flags."""
    name = "dltensor_versioned" if "_versioned" in repr(capsule) else "dltensor"
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = get_pointer(capsule, name.encode())
    first = 32 if name == "dltensor_versioned" else 0  # version, manager context, deleter, flags
    address = ctypes.c_void_p.from_address(tensor + first).value
    assert address is not None
    return memoryview((ctypes.c_ubyte * 2).from_address(address)).cast("B")


@pytest.mark.parametrize("source", SOURCES)
def test_torch_can_write_to_its_copy(source: Callable[[bs.Table, Path], bs.Table], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="requires PyTorch, which ignores that memory is read-only")
    array = source(bs.table({"n": [1, 2, 3]}), tmp_path)["n"].chunk(0)
    for tensor in (torch.from_dlpack(array), torch.utils.dlpack.from_dlpack(array.__dlpack__())):
        tensor.add_(1)
        assert tensor.tolist() == [2, 3, 4]
    assert array.to_pylist() == [1, 2, 3]


def test_booleans_are_copied_and_flagged_as_copied() -> None:
    array = bs.array([True, False, True])
    consumer = np.from_dlpack(array)
    assert consumer.tolist() == [True, False, True]
    assert consumer.dtype == np.bool_
    with pytest.raises(BufferExchangeError, match="can't be shared"):
        np.from_dlpack(array, copy=False)


def test_fixed_size_lists_and_tensors_of_numbers_have_more_dimensions() -> None:
    lists = bs.array(np.arange(6, dtype=np.float32).reshape(3, 2))
    assert np.from_dlpack(lists).tolist() == [[0, 1], [2, 3], [4, 5]]
    tensors = bs.array(np.arange(12).reshape(3, 2, 2), bs.datatypes.fixed_shape_tensor(bs.int64(), [2, 2]))
    assert np.from_dlpack(tensors).shape == (3, 2, 2)


@pytest.mark.parametrize("shape", [(3, 0, 1), (0, 3), (2, 0), (3, 1, 0, 2), (1, 0, 0), (0, 0, 4), (2, 3, 1)])
@pytest.mark.parametrize("dtype", ["f4", "?"])
def test_every_shape_survives_import_and_export(shape: tuple[int, ...], dtype: str) -> None:
    values = np.ones(shape, dtype)
    for array in (bs.from_dlpack(values), bs.array(values)):
        exported = np.from_dlpack(array)
        assert exported.shape == array.to_numpy(zero_copy_only=False).shape == shape
        assert exported.dtype == values.dtype
        assert (exported == values).all()


def test_booleans_of_two_dimensions_are_copied() -> None:
    values = np.array([[True, False], [False, True], [True, True]])
    lists = bs.array(values)
    assert np.from_dlpack(lists).tolist() == values.tolist()
    assert np.from_dlpack(lists[1:]).tolist() == values[1:].tolist()
    with pytest.raises(BufferExchangeError, match="booleans can't be shared"):
        np.from_dlpack(lists, copy=False)
    for nulls in ([[True, None]], [[True, False], None]):
        with pytest.raises(BufferExchangeError, match="nulls"):
            np.from_dlpack(bs.array(nulls, bs.list_(bs.bool_(), 2)))


def test_an_empty_array_is_exported() -> None:
    assert np.from_dlpack(bs.array([], bs.int16())).shape == (0,)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (bs.array([1, None]), "1 of 2 values are null"),
        (bs.array([True, None]), "1 of 2 values are null"),
        (bs.array(["a"]), "does not support string"),
        (bs.array([0], bs.timestamp("s")), "datetime64"),
        (bs.array([0], bs.duration("s")), "timedelta64"),
        (bs.array([0], bs.date32()), "does not support date32"),
        (bs.array([1], bs.decimal128(3, 0)), "does not support decimal128"),
        (bs.array([b"ab"], bs.binary(2)), "V2"),
        (bs.array([1], bs.dictionary(bs.int8(), bs.int64())), "does not support dictionary"),
    ],
    ids=lambda it: str(getattr(it, "type", it)),
)
def test_types_that_dlpack_does_not_support_are_rejected(array: bs.Array, message: str) -> None:
    with pytest.raises(BufferError, match=message) as caught:
        np.from_dlpack(array)
    assert isinstance(caught.value, BufferExchangeError)
    assert "zero_copy_only" not in str(caught.value), "no option of DLPack"


def test_a_consumer_without_max_version_receives_a_copy() -> None:
    array = bs.array([1, 2])
    with pytest.raises(BufferExchangeError, match="read-only"):
        array.__dlpack__(copy=False)
    for copy in (None, True):
        assert '"dltensor"' in repr(array.__dlpack__(copy=copy))
        assert '"dltensor_versioned"' in repr(array.__dlpack__(max_version=(1, 0), copy=copy))
    assert '"dltensor_versioned"' in repr(array.__dlpack__(max_version=(9, 9), copy=False, dl_device=(1, 0)))


def test_bowstring_arrays_are_imported() -> None:
    array = bs.array([1, 2])
    assert data_address(bs.from_dlpack(array, copy=False)) == data_address(array)
    for copy in (None, True):
        assert data_address(bs.from_dlpack(array, copy)) != data_address(array)


@pytest.mark.parametrize("options", [{"stream": 1}, {"dl_device": (2, 0)}, {"dl_device": (1, 1)}, {"later": 1}])
def test_options_of_other_devices_are_rejected(options: dict[str, Any]) -> None:
    for source in (bs.array([1]), bs.tensors.Tensor.from_numpy(np.eye(2))):
        with pytest.raises(BufferExchangeError, match="DLPack"):
            source.__dlpack__(max_version=(1, 0), **options)


def test_memory_stays_until_the_dlpack_consumer_releases_it() -> None:
    array, alive = tracked_array()
    consumer = np.from_dlpack(array, copy=False)[10:12]
    unconsumed = array.__dlpack__(max_version=(1, 0), copy=False)
    del array
    gc.collect()
    assert consumer.tolist() == [10, 11]
    del consumer
    gc.collect()
    assert alive() is not None
    del unconsumed
    gc.collect()
    assert alive() is None


# DLPack import


class DlpackProducer:
    """Has only DLPack."""

    def __init__(self, values: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.values = values
        self.device = device

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


@pytest.mark.parametrize("type_", FORMATS, ids=str)
def test_numbers_are_imported_without_a_copy(type_: bs.DataType) -> None:
    values = np.arange(5).astype(bs.array([], type_).to_numpy().dtype)
    for array in (bs.from_dlpack(DlpackProducer(values)), bs.array(DlpackProducer(values)), bs.from_dlpack(values)):
        assert array.type == type_
        assert data_address(array) == address(values)
        assert array.to_pylist() == values.tolist()
    assert data_address(bs.from_dlpack(values, copy=True)) != address(values)
    assert data_address(bs.from_dlpack(values, copy=False)) == address(values)


def test_pyarrow_arrays_are_imported() -> None:
    pa_array = pa.array([1, 2, 3])
    assert data_address(bs.from_dlpack(pa_array)) == pa_array.buffers()[1].address


def test_more_dimensions_become_fixed_size_lists_and_strides_are_copied() -> None:
    cube = np.arange(12).reshape(2, 3, 2)
    assert bs.from_dlpack(DlpackProducer(cube)).type == bs.list_(bs.list_(bs.int64(), 2), 3)
    assert bs.from_dlpack(cube.transpose()).to_pylist() == cube.transpose().tolist()
    assert bs.from_dlpack(np.array([True, False])).to_pylist() == [True, False]
    for values in (cube.transpose(), np.arange(4)[::2], np.array([True])):
        with pytest.raises(WouldCopyError):
            bs.from_dlpack(values, copy=False)


class LegacyDlpackProducer(DlpackProducer):
    """A producer older than DLPack 1.0."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return self.values.__dlpack__(stream=stream)


@pytest.mark.parametrize(("copy", "is_shared"), [(None, True), (False, True), (True, False)])
def test_producers_older_than_dlpack_1_are_supported(copy: bool | None, is_shared: bool) -> None:
    values = np.arange(3)
    assert (data_address(bs.from_dlpack(LegacyDlpackProducer(values), copy)) == address(values)) == is_shared


@pytest.mark.parametrize(("device", "name"), [((2, 1), "CUDA:1"), ((8, 0), "METAL:0"), ((99, 0), "unknown type 99")])
def test_memory_of_another_device_is_rejected_by_name(device: tuple[int, int], name: str) -> None:
    for take in (bs.from_dlpack, bs.array, bs.tensors.Tensor.from_numpy):
        with pytest.raises(UnsupportedError, match=name):
            take(DlpackProducer(np.arange(3), device))


class FailingDlpackProducer:
    """A producer that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __dlpack__(self, **options: Any) -> Any:
        raise self.error


class InvalidDlpackProducer(DlpackProducer):
    """A producer that returns an object that is not a capsule."""

    def __dlpack__(self, **options: Any) -> Any:
        return 7


@pytest.mark.parametrize(
    "source",
    [
        FailingDlpackProducer(RuntimeError("requires grad")),
        InvalidDlpackProducer(None),
        np.array([1j]).astype(object),
        7,
    ],
)
def test_unsupported_tensors_are_an_error(source: Any) -> None:
    with pytest.raises(BufferExchangeError):
        bs.from_dlpack(source)


@pytest.mark.parametrize("values", [np.array([1j]), np.array(1)])
def test_elements_without_a_data_type_are_an_error(values: Any) -> None:
    with pytest.raises(TypeMismatchError):
        bs.from_dlpack(values)


# The buffer protocol


@pytest.mark.parametrize(
    "array",
    [
        *(bs.array([1, 2, 3], type_).slice(1) for type_ in FORMATS),
        bs.array([(1, 2, 3)], bs.month_day_nano_interval()),
        bs.array([], bs.int8()),
    ],
    ids=lambda array: f"{array.type}[{len(array)}]",
)
def test_a_view_shows_the_slots(array: bs.Array) -> None:
    view = array.__buffer__(0)
    assert view.readonly
    assert view.tobytes() == array.to_numpy().tobytes()
    assert np.asarray(view).dtype == array.to_numpy().dtype


@pytest.mark.parametrize(
    "array",
    [
        bs.array([1, None]),
        bs.array(["a"]),
        bs.array([0], bs.timestamp("s")),
        bs.array([True]),
        bs.array([0], bs.date32()),
        bs.array([b"abc"], bs.binary(3)),
    ],
    ids=lambda array: str(array.type),
)
def test_a_view_with_different_values_is_rejected(array: bs.Array) -> None:
    with pytest.raises(BufferError):
        array.__buffer__(0)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 688 requires Python 3.12")
def test_arrays_and_buffers_support_the_buffer_protocol() -> None:
    array = bs.array([1, 2, 3], bs.int32())
    assert memoryview(array).tolist() == [1, 2, 3]  # type: ignore[arg-type,unused-ignore]
    assert memoryview(array.own_buffers[1]).nbytes == 12  # type: ignore[arg-type,unused-ignore]
    assert np.asarray(bs.array([0], bs.timestamp("s"))).dtype == "M8[s]"


def test_bytes_of_a_buffer_are_a_copy() -> None:
    buffer = bs.array([1, 2], bs.int16()).own_buffers[1]
    assert buffer is not None
    assert bytes(buffer) == b"\1\0\2\0"


# NumPy


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (bs.array([1, None]), np.float32, [1.0, np.nan]),
        (bs.array([1.5, None]), np.float64, [1.5, np.nan]),
        (bs.array([1.5, None]), np.complex64, [1.5 + 0j, complex(np.nan, 0)]),
        (bs.array([True, None]), np.float64, [1.0, np.nan]),
        (bs.array([0, None], bs.timestamp("s")), "M8[ms]", [np.datetime64(0, "ms"), np.datetime64("NaT", "ms")]),
        (bs.array([2**62 + 1, None]), object, [2**62 + 1, None]),
    ],
    ids=str,
)
def test_nulls_become_the_null_value_of_the_dtype(array: bs.Array, dtype: Any, expected: list[Any]) -> None:
    for source in (array, bs.ChunkedArray([array.slice(0, 1), array.slice(1)], array.type)):
        np.testing.assert_array_equal(np.asarray(source, dtype), np.array(expected, dtype))


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (bs.array([1, None]), np.int64),
        (bs.array([1.5, None]), np.bool_),
        (bs.array([True, None]), np.bool_),
        (bs.array(["a", None]), "U4"),
        (bs.array(["1", None]), np.int8),
        (bs.array([0, None], bs.timestamp("s")), np.int64),
        (bs.array([0, None], bs.duration("s")), "M8[s]"),
        (bs.array([1.5, None], bs.dictionary(bs.int8(), bs.float64())), np.int8),
        (bs.array([None, 1, 1], bs.run_end_encoded(bs.int16(), bs.int64())), np.int8),
    ],
    ids=str,
)
def test_a_null_never_becomes_a_value(array: bs.Array, dtype: Any) -> None:
    for source in (array, bs.ChunkedArray([array], array.type), bs.table({"a": array})):
        with pytest.raises(TypeMismatchError, match="null"):
            np.asarray(source, dtype)


def test_without_nulls_any_numpy_dtype_is_accepted() -> None:
    assert np.asarray(bs.array(["1", "22"]), "U4").tolist() == ["1", "22"]
    assert np.asarray(bs.array([1.5, 2.5]), np.int8).tolist() == [1, 2]


def test_copy_false_never_copies() -> None:
    array = bs.array([1, 2, 3])
    column = bs.ChunkedArray([array], array.type)
    for source in (array, column):
        assert address(np.array(source, copy=False)) == data_address(array)
        assert address(np.asarray(source)) == data_address(array)
        assert address(np.array(source)) != data_address(array)
        assert np.array(source).flags.writeable
    two = bs.ChunkedArray([array, array], array.type)
    sources: list[Any] = [two, bs.array(["a"]), bs.array([1, None]), bs.table({"a": [1]}), bs.record_batch({"a": [1]})]
    for refusing in sources:
        with pytest.raises(ValueError, match="cop"):
            np.array(refusing, copy=False)


def test_a_table_is_an_array_of_rows_and_columns() -> None:
    table = bs.concat_tables([bs.table({"a": [1, 2], "b": [0.5, None]}), bs.table({"a": [3], "b": [1.0]})])
    np.testing.assert_array_equal(np.asarray(table), [[1, 0.5], [2, np.nan], [3, 1]])
    assert np.asarray(table.select(["a"])).dtype == np.int64
    assert np.asarray(table.select(["a"]), np.int8).dtype == np.int8
    assert np.asarray(table.to_batches()[0].select(["a"])).tolist() == [[1], [2]]
    mixed = bs.table({"s": ["x", None], "n": [1, 2], "t": bs.array([0, 1], bs.timestamp("s"))})
    assert np.asarray(mixed).dtype == object
    assert np.asarray(mixed)[:, :2].tolist() == [["x", 1], [None, 2]]
    lists = bs.table({"l": bs.array([[1, 2], [3, 4]], bs.list_(bs.int8(), 2)), "n": [5, 6]})
    assert np.asarray(lists).tolist() == [[[1, 2], 5], [[3, 4], 6]]
    assert np.asarray(bs.table({"a": [1]}).select([])).shape == (1, 0)
