"""Pickling arrays: only their own slots, and with protocol 5 out-of-band buffers without a copy."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import BowstringError, InvalidDataError
from tests.addresses import address

WORDS = bs.array(["a", "b", "a", None] * 250)
ARRAY = bs.array(np.arange(1000))
TABLE = bs.table({"n": ARRAY, "s": WORDS, "d": WORDS.dictionary_encode(), "l": [[1, 2], []] * 500})
OBJECTS: dict[str, Any] = {
    "array": ARRAY,
    "chunked array": bs.concat_tables([TABLE, TABLE])["d"],
    "batch": TABLE.to_batches()[0],
    "table": TABLE,
    "buffer": ARRAY.own_buffers[1],
    "tensor": bs.tensors.Tensor.from_numpy(np.arange(600.0).reshape(20, 30).T, dim_names=["x", "y"]),
    "sparse tensor": bs.tensors.SparseCOOTensor.from_dense_numpy(np.eye(100)),
}


def pickle_out_of_band(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    buffers: list[pickle.PickleBuffer] = []
    return pickle.dumps(value, protocol=5, buffer_callback=buffers.append), buffers


@pytest.mark.parametrize("name", OBJECTS)
def test_out_of_band_buffers_are_not_copied(name: str) -> None:
    value = OBJECTS[name]
    pickled, buffers = pickle_out_of_band(value)
    assert len(pickled) < 1000
    assert sum(buffer.raw().nbytes for buffer in buffers) > 1000
    assert all(buffer.raw().readonly for buffer in buffers) or name == "sparse tensor"
    assert pickle.loads(pickled, buffers=buffers) == value
    elsewhere = [bytearray(buffer.raw()) for buffer in buffers]
    assert pickle.loads(pickled, buffers=elsewhere) == value


def test_arrays_and_their_copies_have_the_same_memory() -> None:
    pickled, buffers = pickle_out_of_band(TABLE)
    assert address(np.frombuffer(buffers[0].raw(), np.uint8)) == address(ARRAY.to_numpy())
    copy = pickle.loads(pickled, buffers=buffers)
    assert address(copy["n"].chunk(0).to_numpy()) == address(ARRAY.to_numpy())
    assert not copy["n"].chunk(0).to_numpy().flags.writeable


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", OBJECTS)
def test_pickles_without_a_callback_contain_all_data(name: str, protocol: int) -> None:
    value = OBJECTS[name]
    assert pickle.loads(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_slice_is_pickled_without_other_slots(protocol: int) -> None:
    for part in (ARRAY.slice(10, 5), TABLE.slice(10, 5), TABLE["l"].slice(10, 5)):
        assert len(pickle.dumps(part, protocol)) < 2000
    _, buffers = pickle_out_of_band(ARRAY.slice(10, 5))
    assert [buffer.raw().nbytes for buffer in buffers] == [40]


def test_mapped_arrays_are_pickled(tmp_path: Path) -> None:
    bs.tensors.write_tensor(OBJECTS["tensor"], tmp_path / "tensor")
    with bs.new_file(tmp_path / "table.arrow", TABLE.schema) as writer:
        writer.write(TABLE)
    mapped = (bs.tensors.read_tensor(tmp_path / "tensor"), bs.open_file(tmp_path / "table.arrow").read_all())
    for value in (*mapped, bs.attach(bs.share(TABLE))):
        for protocol in (4, 5):
            assert pickle.loads(pickle.dumps(value, protocol)) == value
        pickled, buffers = pickle_out_of_band(value)
        assert pickle.loads(pickled, buffers=buffers) == value


@pytest.mark.parametrize("name", ["array", "table", "chunked array", "tensor"])
def test_buffers_that_are_too_short_are_rejected(name: str) -> None:
    pickled, buffers = pickle_out_of_band(OBJECTS[name])
    with pytest.raises(InvalidDataError):
        pickle.loads(pickled, buffers=[buffer.raw()[:1] for buffer in buffers])


def test_validation_finds_invalid_values_in_unpickled_buffers() -> None:
    pickled, buffers = pickle_out_of_band(WORDS)
    for byte in (b"\x7f", b"\xff"):
        with pytest.raises(BowstringError):
            pickle.loads(pickled, buffers=[byte * buffer.raw().nbytes for buffer in buffers]).validate(full=True)
