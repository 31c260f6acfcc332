"""Arrays that were not validated: every method raises an error about the data, or none."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import InvalidDataError, TypeMismatchError, UnsupportedTypeError
from bowstring.layouts.registry import layout_of
from bowstring.memory import Buffer
from tests.ipc.samples import batch

MUTATIONS_PER_COLUMN = 40
STRINGS_AND_NUMBERS = {"i": bs.int32(), "s": bs.string()}
WHOLE = batch()
COLUMNS: dict[str, bs.Array] = {
    **{name: WHOLE.column(name) for name in WHOLE.schema.names},
    "large list": bs.array([["a"], None, ["b", "c"]], bs.large_list(bs.string())),
    "large binary": bs.array([b"x", None, b"yy"], bs.large_binary()),
    "fixed binary": bs.array([b"ab", None, b"cd"], bs.binary(2)),
    "list of dictionary": bs.array([["u"], ["v", None], None], bs.list_(bs.dictionary(bs.int8(), bs.string()))),
    "dictionary of lists": bs.array([[1], [2], [1]], bs.list_(bs.int8())).dictionary_encode(),
    "runs of dictionary": bs.array(
        ["a", "a", "b"], bs.run_end_encoded(bs.int32(), bs.dictionary(bs.int8(), bs.string()))
    ),
    "runs of views": bs.array(
        ["a string of more than twelve bytes"] * 3, bs.run_end_encoded(bs.int32(), bs.string_view())
    ),
    "list of dense unions": bs.array([[1, "s"], [2], []], bs.list_(bs.dense_union(STRINGS_AND_NUMBERS))),
    "list views of sparse unions": bs.array([[1, "s"], [2], []], bs.list_view(bs.sparse_union(STRINGS_AND_NUMBERS))),
    "struct of dictionary": bs.array(
        [{"p": "u"}, None, {"p": "v"}], bs.struct({"p": bs.dictionary(bs.int8(), bs.string())})
    ),
}


def one_batch(array: bs.Array) -> bs.RecordBatch:
    return bs.RecordBatch(bs.schema({"a": array.type}), len(array), [array])


def write_with_statistics(array: bs.Array) -> bytes:
    sink = io.BytesIO()
    with bs.new_file(sink, bs.schema({"a": array.type})) as writer:
        writer.enable_statistics(distinct=True)
        writer.write(one_batch(array))
    return sink.getvalue()


METHODS: dict[str, Callable[[bs.Array], Any]] = {
    "to_pylist": lambda a: a.to_pylist(),
    "values": lambda a: [a[index] for index in range(len(a))],
    "to_numpy": lambda a: a.to_numpy(zero_copy_only=False),
    "take": lambda a: a.take(list(range(len(a)))[::-1]),
    "filter": lambda a: a.filter([True] * len(a)),
    "slice": lambda a: a.slice(1).to_pylist(),
    "every other slot": lambda a: a[::2],
    "compact": lambda a: a.compact(),
    "nbytes": lambda a: a.nbytes,
    "fields": lambda a: [a.field(index) for index in range(len(a.type.fields))],
    "repr": repr,
    "is_null": lambda a: (a.is_null(), a.is_valid()),
    "drop_null": lambda a: a.drop_null(),
    "unique": lambda a: a.unique(),
    "sort_indices": lambda a: a.sort_indices(),
    "equals": lambda a: a.equals(a.slice(0)),
    "concat_arrays": lambda a: bs.concat_arrays([a, a]),
    "dictionary_encode": lambda a: a.dictionary_encode().to_pylist(),
    "dictionary_decode": lambda a: a.dictionary_decode(),
    "run_end_encode": lambda a: a.run_end_encode().to_pylist(),
    "run_end_decode": lambda a: a.run_end_decode(),
    "cast": lambda a: a.cast(bs.large_string()),
    "to_pandas": lambda a: a.to_pandas(),
    "rows": lambda a: one_batch(a).to_pylist(),
    "write": write_with_statistics,
    "export": lambda a: a.__arrow_c_array__(),
    "validate": lambda a: a.validate(full=True),
}


def mutate(array: bs.Array, rng: random.Random) -> bs.Array:
    """Return the array with one change of a length, a null count or a buffer, at any depth."""
    children, dictionary, length = list(array.children), array.dictionary, array.length
    buffers, null_count = list(array.own_buffers), array.known_null_count
    nested = [*children, *([] if dictionary is None else [dictionary])]
    if nested and rng.random() < 0.6:
        index = rng.randrange(len(nested))
        changed = mutate(bs.Array.from_array_data(nested[index]), rng)
        if index < len(children):
            children[index] = changed
        else:
            dictionary = changed
    elif (kind := rng.choice(("length", "nulls", "size", "bytes", "bytes"))) == "length":
        length = max(0, length + rng.choice((-3, -1, 1, 5)))
    elif kind == "nulls":
        null_count = rng.choice((-1, 0, 1, length))
    elif buffers:
        index = rng.randrange(len(buffers))
        raw = bytearray(b"" if buffers[index] is None else buffers[index].to_bytes())  # type: ignore[union-attr]
        if kind == "size":
            raw = raw[: rng.randrange(len(raw) + 1)]
        elif raw:
            raw[rng.randrange(len(raw))] = rng.choice((0, 1, 2, 8, 127, 128, 255, rng.randrange(256)))
        buffers[index] = Buffer.of(bytes(raw)) if raw or index else None
    return bs.Array(array.layout, length, tuple(buffers), tuple(children), dictionary, null_count)


def find_type_errors(array: bs.Array) -> set[str]:
    """Return the methods that the type does not support."""
    names = set()
    for name, method in METHODS.items():
        try:
            method(array)
        except (TypeMismatchError, UnsupportedTypeError):
            names.add(name)
    return names


@pytest.mark.parametrize("name", COLUMNS)
def test_methods_of_malformed_arrays_raise_only_errors_about_the_data(name: str) -> None:
    array, rng, invalid = COLUMNS[name], random.Random(name), 0
    unsupported = find_type_errors(array)
    for _ in range(MUTATIONS_PER_COLUMN):
        mutated = mutate(array, rng)
        for method_name in rng.sample(list(METHODS), 9):
            try:
                METHODS[method_name](mutated)
            except InvalidDataError:
                invalid += 1
            except (TypeMismatchError, UnsupportedTypeError) as error:
                if method_name not in unsupported and "is not valid UTF-8" not in str(error):  # of a cast of bytes
                    raise
    assert invalid or name == "null"


def new_array(type_: bs.DataType, length: int, buffers: Any, children: Any = ()) -> bs.Array:
    return bs.Array(layout_of(type_), length, tuple(b if b is None else Buffer.of(b) for b in buffers), tuple(children))


@pytest.mark.parametrize("method", ["to_pylist", "take", "compact", "unique", "concat_arrays", "fields", "write"])
def test_a_sparse_union_with_a_short_child_names_the_child(method: str) -> None:
    children = [bs.array([1, 2, 3], bs.int32()), bs.array(["s"])]
    unions = new_array(bs.sparse_union(STRINGS_AND_NUMBERS), 3, [b"\0\1\0"], children)
    with pytest.raises(InvalidDataError, match="child 's' has 1 values, the sparse union has 3"):
        METHODS[method](unions)


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (new_array(bs.int32(), 3, [None, bytes(11)]), "the data buffer has 11 bytes, 3 slots need 12"),
        (new_array(bs.string_view(), 3, [None, bytes(47)]), "the views buffer has 47 bytes, 3 slots need 48"),
        (
            new_array(
                bs.dense_union(STRINGS_AND_NUMBERS),
                3,
                [bytes(2), bytes(12)],
                [bs.array([1, 2, 3], bs.int32()), bs.array(["s"])],
            ),
            "the type ids buffer has 2 bytes, 3 slots need 3",
        ),
    ],
    ids=["numbers", "views", "type ids"],
)
def test_compacting_an_array_with_a_short_buffer_names_the_buffer(array: bs.Array, problem: str) -> None:
    for method in ("compact", "nbytes", "write"):
        with pytest.raises(InvalidDataError, match=problem):
            METHODS[method](array)


def test_casting_malformed_data_is_not_an_error_of_the_cast() -> None:
    words = new_array(bs.string(), 2, [None, np.array([0, 5, 2], np.int32), b"abcde"])
    for type_ in (bs.large_string(), bs.binary(), bs.int64()):
        with pytest.raises(InvalidDataError, match=r"offsets\[2\] = 2 is less than offsets\[1\] = 5"):
            words.cast(type_)
    with pytest.raises(TypeMismatchError, match="can't cast"):
        bs.array([b"\xff"], bs.binary()).cast(bs.string())


def test_lengths_of_null_views_take_no_memory_in_pandas() -> None:
    pd = pytest.importorskip("pandas")
    count = 10_000
    views, valid = np.zeros((count, 4), np.int32), np.zeros(count, bool)
    views[1:-1] = (1 << 31) - 1  # under nulls: lengths of 2 GiB, in data buffers that do not exist
    valid[[0, -1]] = True
    array = new_array(bs.string_view(), count, [np.packbits(valid, bitorder="little"), views.tobytes()])
    array.validate(full=True)
    assert array.to_pylist() == ["", *[None] * (count - 2), ""]
    series = array.to_pandas()
    assert series.iloc[[0, -1]].tolist() == ["", ""]
    assert pd.isna(series).sum() == count - 2
    assert pa.default_memory_pool().max_memory() < 1 << 40  # pandas uses pyarrow's, which allocates without touching
