"""Arrays with far more values than bytes: validation takes linear time in bytes, and materialising has a limit."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import TypeMismatchError
from bowstring.layouts import expansion_limits
from bowstring.layouts.binary_view import VIEW
from bowstring.layouts.registry import layout_of

HUGE = 1 << 62
MANY = 1 << 20


def new_array(
    type_: bs.DataType, length: int, buffers: Any = (), children: Any = (), dictionary: Any = None
) -> bs.Array:
    buffers_ = tuple(None if b is None else bs.memory.Buffer.of(b) for b in buffers)
    return bs.Array(layout_of(type_), length, buffers_, tuple(children), dictionary)


def overlapping_views(character: bytes, type_: bs.DataType, size: int = MANY, step: int = 1) -> bs.Array:
    """Return as many values of `size` bytes, each `step` characters further in one buffer than the one before."""
    views = np.zeros(MANY, VIEW)
    views["length"] = size
    views["prefix"] = np.void((character * 4)[:4])
    views["offset"] = np.arange(MANY) * (step * len(character))
    return new_array(type_, MANY, [None, views, character * (size // len(character) + MANY * step)])


NULLS = new_array(bs.null(), HUGE)
NO_BYTES = bs.array([], bs.int8())
BYTES = bs.array(np.zeros(MANY, np.int8))
EXPANDING: dict[str, bs.Array] = {
    "nulls": NULLS,
    "structs of nothing": new_array(bs.struct([]), HUGE, [None]),
    "structs of nulls": new_array(bs.struct({"a": bs.null()}), HUGE, [None], [NULLS]),
    "empty lists": new_array(bs.list_(bs.int8(), 0), HUGE, [None], [NO_BYTES]),
    "empty byte strings": new_array(bs.binary(0), HUGE, [None, b""]),
    "a list of nulls": new_array(bs.large_list(bs.null()), 1, [None, np.array([0, HUGE])], [NULLS]),
    "lists of nulls of one size": new_array(bs.list_(bs.null(), (1 << 31) - 1), 4, [None], [NULLS]),
    "one run": new_array(
        bs.run_end_encoded(bs.int64(), bs.int8()), HUGE, [], [bs.array([HUGE]), bs.array([1], bs.int8())]
    ),
    "lists that share a child": new_array(
        bs.list_view(bs.int8()), MANY, [None, np.zeros(MANY, np.int32), np.full(MANY, MANY, np.int32)], [BYTES]
    ),
    "views that share a text": overlapping_views("é".encode(), bs.string_view()),
    "views that share bytes": overlapping_views(bytes(1), bs.binary_view()),
}
SHARING_BYTES = {name: array for name, array in EXPANDING.items() if "share" in name}

every_expanding = pytest.mark.parametrize("name", EXPANDING)


@pytest.fixture(autouse=True)
def _limited_memory() -> Iterator[None]:
    """Make excessive allocations fail at once instead of slowing the machine down."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as statm:
        resident_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (resident_bytes + (1 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@every_expanding
def test_expanding_arrays_are_valid_and_cheap_to_validate(name: str) -> None:
    EXPANDING[name].validate(full=True)


@every_expanding
def test_materialising_expanding_arrays_is_rejected(name: str) -> None:
    array = EXPANDING[name]
    attempts: list[Callable[[], object]] = [array.to_pylist, lambda: list(array)]
    if name == "lists that share a child":
        assert {row.base is None for row in array.to_numpy(zero_copy_only=False)} == {False}
    else:
        attempts.append(lambda: array.to_numpy(zero_copy_only=False))
    for attempt in attempts:
        with pytest.raises(bs.errors.LimitError, match="exceeds the limit of"):
            attempt()


@every_expanding
def test_expanding_arrays_have_a_repr_and_slices(name: str) -> None:
    array = EXPANDING[name]
    assert repr(array).startswith("<bowstring.Array")
    assert array.slice(array.length - 1).length == 1
    assert array.nbytes < 1 << 26
    array.slice(1).compact().validate()


@pytest.mark.parametrize("name", sorted(set(EXPANDING) - set(SHARING_BYTES)))
def test_arrays_without_bytes_are_compared_without_materialising(name: str) -> None:
    array = EXPANDING[name]
    assert array.equals(array.slice(0))


@pytest.mark.parametrize("name", SHARING_BYTES)
def test_arrays_that_share_bytes_are_compared_or_rejected(name: str) -> None:
    array = SHARING_BYTES[name]
    with pytest.raises(bs.errors.LimitError):
        array.equals(array.slice(0))
    assert array.slice(0, 2).equals(array.slice(2, 2))


def column(array: bs.Array) -> bs.ChunkedArray:
    return bs.ChunkedArray([array, array.slice(0, 1)], array.type)


def table(array: bs.Array) -> bs.Table:
    schema = bs.schema({"a": array.type})
    return bs.Table(schema, [bs.RecordBatch(schema, len(array), [array])])


def file_bytes(array: bs.Array, distinct: bool) -> bytes:
    sink = io.BytesIO()
    with bs.new_file(sink, table(array).schema) as writer:
        writer.enable_statistics(distinct=distinct)
        writer.write(table(array))
    return sink.getvalue()


METHODS: dict[str, Callable[[bs.Array], Any]] = {
    "statistics": lambda a: file_bytes(a, False),
    "statistics with distinct values": lambda a: file_bytes(a, True),
    "to_pandas": lambda a: a.to_pandas(),
    "to_pandas of a table": lambda a: table(a).to_pandas(),
    "to_pandas of chunks": lambda a: column(a).to_pandas(copy=False),
    "every other slot": lambda a: a[::2],
    "backwards": lambda a: column(a)[::-1],
    "take": lambda a: a.take([0, len(a) - 1]),
    "take of chunks": lambda a: column(a).take([0, len(a)]),
    "combine_chunks": lambda a: column(a).combine_chunks(),
    "to_numpy": lambda a: column(a).to_numpy(),
    "unique": lambda a: column(a).unique(),
    "sort_by": lambda a: table(a).sort_by("a"),
    "filter": lambda a: a.filter(new_array(bs.null(), len(a))),
    "cast": lambda a: a.cast(bs.string()),
    "dictionary_encode": lambda a: a.dictionary_encode(),
    "run_end_encode": lambda a: column(a).run_end_encode(),
    "pickle": lambda a: pickle.loads(pickle.dumps(table(a))),
    "html": lambda a: table(a)._repr_html_(),
    "stream": lambda a: pickle.dumps(bs.table(bs.open_stream(stream_bytes(a)).read_all())),
    "three of them": lambda a: repr(bs.ChunkedArray([a, a, a], a.type)),
    "three tables": lambda a: repr(bs.concat_tables([table(a)] * 3)),
    "one array of three": lambda a: bs.concat_arrays([a, a, a]),
}


def stream_bytes(array: bs.Array) -> bytes:
    sink = io.BytesIO()
    with bs.new_stream(sink, table(array).schema) as writer:
        writer.write(table(array))
    return sink.getvalue()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [name for name in EXPANDING if name not in SHARING_BYTES or "views" in name])
def test_lengths_beyond_memory_raise_only_bowstring_errors(name: str, method: str) -> None:
    with suppress(bs.BowstringError):
        METHODS[method](EXPANDING[name])


def test_the_distinct_values_of_structs_without_fields_are_counted() -> None:
    rows = bs.array([{}, None, {}], bs.struct([]))
    statistics = bs.open_file(file_bytes(rows, True)).statistics
    assert statistics is not None
    counts = statistics.columns[0].distinct_counts
    assert counts is not None
    assert counts.tolist() == [1]


def test_the_limit_can_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    nulls = bs.Array(layout_of(bs.null()), 1000, ())
    assert nulls.to_pylist() == [None] * 1000
    monkeypatch.setattr(expansion_limits, "MAX_VALUES", 999)
    with pytest.raises(bs.errors.LimitError, match="materializing 1000 values from 0 exceeds the limit of 999"):
        nulls.to_pylist()
    assert len(bs.array(range(1000)).to_pylist()) == 1000, "values in memory are never beyond the limit"
    views = overlapping_views(b"x", bs.string_view(), 20, 0).slice(0, 10).cast(bs.string()).cast(bs.string_view())
    assert views.to_pylist() == ["x" * 20] * 10
    shared = overlapping_views(b"x", bs.string_view(), 1000, 0)
    with pytest.raises(bs.errors.LimitError, match=f"copying {1000 * MANY} bytes out of {16 * MANY + 1000} exceeds"):
        shared.cast(bs.large_string())
    monkeypatch.setattr(expansion_limits, "MAX_BYTES", 1000 * MANY - 1)
    with pytest.raises(bs.errors.LimitError, match=f"the limit of {1000 * MANY - 1} "):
        shared.cast(bs.large_string())
    words = bs.array(["x" * 100] * 10, bs.string_view()).take([0] * 1000)
    monkeypatch.setattr(expansion_limits, "MAX_BYTES", 0)
    assert words.to_pylist() == ["x" * 100] * 1000
    assert words.cast(bs.string()).to_pylist() == words.to_pylist(), "up to eight bytes per byte are within the limit"


SHARED_VIEWS = {
    "text": overlapping_views("é".encode(), bs.string_view(), step=0),
    "bytes": overlapping_views(bytes(1), bs.binary_view(), step=0),
}


@pytest.mark.parametrize("name", SHARED_VIEWS)
def test_values_of_equal_views_are_read_once(name: str) -> None:
    views = SHARED_VIEWS[name]
    value = views[0]
    values = views.to_pylist()
    assert values[0] == value
    assert len(set(map(id, values))) == 1
    assert len(set(map(id, views.to_numpy(zero_copy_only=False)))) == 1
    assert views.equals(views.take(np.arange(MANY)[::-1]))
    assert not views.equals(bs.concat_arrays([views.slice(1), bs.array([value[:-1]], views.type)]))
    assert views.unique().to_pylist() == views.dictionary_encode().dictionary.to_pylist() == [value]  # type: ignore[union-attr]
    assert views.sort_indices().to_numpy()[-1] == MANY - 1
    assert bs.open_file(file_bytes(views, True)).statistics.columns[0].distinct_counts.tolist() == [1]  # type: ignore[union-attr]
    assert bs.table({"views": views}).filter([("views", ">=", value)]).num_rows == MANY
    assert bs.table({"views": views}).filter([("views", "in", [value])]).num_rows == MANY
    other_type = bs.binary_view() if name == "text" else bs.string_view()
    assert views.cast(other_type).nbytes == views.nbytes
    for target in (bs.large_string(), bs.large_binary(), bs.binary(MANY)):
        with pytest.raises(bs.errors.LimitError, match="exceeds the limit of"):
            views.cast(target)


def test_shared_views_with_nulls_and_empty_values_are_read() -> None:
    text = "a text of more than twelve bytes, " * 10
    words = bs.array([text, None, "", text + "b", "short"], bs.string_view())
    views = words.take([0, 1, 2, 3, 4, 0, 2, 1, 3] * 100)
    expected = [text, None, "", text + "b", "short", text, "", None, text + "b"] * 100
    assert views.to_pylist() == expected
    assert views.equals(bs.array(expected, bs.string_view()))
    assert bs.array(expected, bs.string_view()).equals(views)
    assert not views.equals(bs.array([*expected[:-1], text + "c"], bs.string_view()))
    without_empty = words.take([0, 1, 3] * 100)
    statistics = bs.open_file(file_bytes(without_empty, True)).statistics.columns[0]  # type: ignore[union-attr]
    assert statistics.minima is not None
    assert statistics.minima.to_pylist() == [text[:64]], "null slots do not count as empty values"
    assert bs.table({"a": without_empty}).filter([("a", "<=", text)]).num_rows == 100
    assert views.unique().to_pylist() == words.to_pylist()
    assert views.sort().to_pylist() == bs.array(expected).sort().to_pylist()
    assert views.sort("descending").to_pylist() == bs.array(expected).sort("descending").to_pylist()


@pytest.mark.parametrize(("word_bytes", "is_allowed"), [(100, True), (200, False)])
def test_many_rows_of_a_small_dictionary_are_decoded_if_their_words_are_short(
    monkeypatch: pytest.MonkeyPatch, word_bytes: int, is_allowed: bool
) -> None:
    monkeypatch.setattr(expansion_limits, "MAX_BYTES", 100 * MANY // 8)
    word = "x" * word_bytes
    words = new_array(bs.dictionary(bs.int8(), bs.string()), MANY, [None, bytes(MANY)], dictionary=bs.array([word]))
    if is_allowed:
        assert words.dictionary_decode().slice(MANY - 1).to_pylist() == [word]
        return
    with pytest.raises(bs.errors.LimitError, match="exceeds the limit of"):
        words.dictionary_decode()


WIDE = bs.array([bytes(100_000)], bs.binary(100_000))


@pytest.mark.parametrize(
    "expand",
    [
        lambda: new_array(
            bs.run_end_encoded(bs.int64(), WIDE.type), MANY, [], [bs.array([MANY]), WIDE]
        ).run_end_decode(),
        lambda: new_array(bs.run_end_encoded(bs.int64(), WIDE.type), MANY, [], [bs.array([MANY]), WIDE]).to_numpy(
            zero_copy_only=False
        ),
        lambda: new_array(
            bs.dictionary(bs.int8(), WIDE.type), MANY, [None, bytes(MANY)], dictionary=WIDE
        ).dictionary_decode(),
        lambda: new_array(bs.dictionary(bs.int8(), WIDE.type), MANY, [None, bytes(MANY)], dictionary=WIDE).to_numpy(
            zero_copy_only=False
        ),
        lambda: new_array(
            bs.list_view(WIDE.type), MANY, [None, np.zeros(MANY, np.int32), np.ones(MANY, np.int32)], [WIDE]
        ).take(np.arange(MANY)),
        lambda: WIDE.take(np.zeros(MANY, np.int64)),
    ],
    ids=["run-end decode", "runs to NumPy", "dictionary decode", "dictionary to NumPy", "list views", "take"],
)
def test_wide_values_are_limited_by_their_bytes(expand: Callable[[], object]) -> None:
    with pytest.raises(bs.errors.LimitError, match="exceeds the limit of"):
        expand()


def test_wide_values_that_share_memory_stay_readable() -> None:
    runs = new_array(bs.run_end_encoded(bs.int64(), WIDE.type), MANY, [], [bs.array([MANY]), WIDE])
    words = new_array(bs.dictionary(bs.int8(), WIDE.type), MANY, [None, bytes(MANY)], dictionary=WIDE)
    for array in (runs, words):
        values = array.to_pylist()
        assert values[0] is values[-1]
        assert array.equals(array.slice(0))


def test_dictionary_values_are_shared_not_copied() -> None:
    word = "x" * MANY
    array = new_array(
        bs.dictionary(bs.int8(), bs.string()), MANY, [None, np.zeros(MANY, np.int8)], (), bs.array([word])
    )
    values = array.to_pylist()
    assert values[0] is values[-1]
    assert array.equals(array.slice(0))
    shown = array.to_numpy(zero_copy_only=False)
    assert shown[0] is shown[-1]
    with pytest.raises(bs.errors.LimitError):
        array.dictionary_decode()


def test_one_value_of_a_large_dictionary_does_not_decode_all() -> None:
    dictionary = new_array(bs.null(), HUGE)
    array = new_array(bs.dictionary(bs.int64(), bs.null()), 2, [None, np.array([5, HUGE - 1])], (), dictionary)
    array.validate(full=True)
    assert array.to_pylist() == [None, None]
    assert bs.concat_arrays([array, array]).length == 4


def test_lengths_beyond_63_bits_are_unsupported() -> None:
    with pytest.raises(bs.errors.UnsupportedError, match=r"2\*\*63"):
        bs.concat_arrays([EXPANDING["empty byte strings"]] * 2)


@pytest.mark.parametrize(("before", "behind"), [(b"", b"\xff"), (b"\xc3", b"")], ids=["behind", "before"])
def test_unreferenced_bytes_are_not_checked(before: bytes, behind: bytes) -> None:
    text = "é".encode()
    data = before * (1 << 24) + text + behind * (1 << 24)
    at = data.index(text)
    array = new_array(bs.string(), 1, [None, np.array([at, at + 2], np.int32), data])
    array.validate(full=True)
    null = new_array(bs.string(), 2, [b"\2", np.array([0, len(data), len(data)], np.int32), data])
    null.validate(full=True)
    assert null.to_pylist() == [None, ""]


def test_validation_of_invalid_text_fails_at_once() -> None:
    data = b"\xff" * (1 << 24)
    array = new_array(bs.string(), 1 << 24, [None, np.arange((1 << 24) + 1, dtype=np.int32), data])
    with pytest.raises(bs.errors.InvalidDataError, match=r"values\[0\] is not valid UTF-8"):
        array.validate(full=True)


@pytest.mark.parametrize("of", [bs.null(), bs.int64(), bs.struct({"a": bs.string()})], ids=str)
def test_an_empty_array_of_enormous_lists_takes_no_memory(of: bs.DataType) -> None:
    enormous = bs.list_(of, (1 << 31) - 1)
    empty = bs.array([], enormous)
    assert bs.concat_arrays([empty, empty]).to_pylist() == []
    assert bs.table({"a": empty}).slice(0, 0).combine_chunks().num_rows == 0


def test_a_null_among_enormous_lists_is_rejected() -> None:
    with pytest.raises(bs.errors.LimitError, match="values"):
        bs.array([None], bs.list_(bs.null(), (1 << 31) - 1))


def test_an_empty_array_of_enormous_byte_strings_takes_no_memory() -> None:
    enormous = bs.binary((1 << 31) - 1)
    empty = bs.array([], enormous)
    empty.validate(full=True)
    assert bs.concat_arrays([empty, empty]).to_pylist() == []
    assert bs.array([[], None], bs.list_(enormous)).to_pylist() == [[], None]
    with pytest.raises(TypeMismatchError, match=r"value 0: b'x' .* not a byte string of 134217728 bytes"):
        bs.array([b"x"] * 1000, bs.binary(1 << 27))


MANY_NULLS = new_array(bs.null(), expansion_limits.MAX_VALUES)
NO_FIELDS = new_array(bs.struct([]), expansion_limits.MAX_VALUES // 8 + 1, [None])


@pytest.mark.parametrize(
    "convert",
    [
        lambda: bs.ChunkedArray([MANY_NULLS] * 40, bs.null()).to_pylist(),
        lambda: bs.ChunkedArray([MANY_NULLS] * 40, bs.null()).to_numpy(),
        table(MANY_NULLS).to_pylist,
        table(MANY_NULLS).to_batches()[0].to_pylist,
        lambda: bs.concat_tables([table(MANY_NULLS.slice(0, 1 << 23))] * 4).to_pylist(),
        lambda: bs.RecordBatch(bs.schema([]), 1 << 40, []).to_pylist(),
        NO_FIELDS.to_pylist,
        lambda: new_array(bs.list_(bs.int8(), 0), NO_FIELDS.length, [None], [NO_BYTES]).to_pylist(),
    ],
    ids=["chunks", "to NumPy", "table", "batch", "rows of batches", "rows of nothing", "structs", "lists"],
)  # fmt: skip
def test_python_objects_of_values_without_memory_are_limited(convert: Callable[[], object]) -> None:
    with pytest.raises(bs.errors.LimitError, match="exceeds the limit of"):
        convert()


def test_rows_and_containers_that_have_memory_are_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion_limits, "MAX_VALUES", 100)
    flags = bs.array([True, False] * 500)
    assert len(bs.table({"a": flags}).to_pylist()) == 1000
    assert len(bs.array([{"a": True}] * 1000, bs.struct({"a": bs.bool_()})).to_pylist()) == 1000
    assert len(bs.array([[True]] * 1000, bs.list_(bs.bool_(), 1)).to_pylist()) == 1000
    assert len(bs.ChunkedArray([flags] * 50, flags.type).to_pylist()) == 50_000
