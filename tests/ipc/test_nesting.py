"""Types of the greatest depth: everything recursive works from the middle of Python's stack."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError
from bowstring.ipc import ReadLimits

DEPTH = 64
"""The depth of types that can be read; a map has two levels, as has a dictionary of lists."""
FRAMES_USED = 500
"""The frames below the call; Python permits 1,000."""

NESTED: dict[str, tuple[Callable[[Any], bs.DataType], Callable[[Any], Any], int]] = {
    "list": (bs.list_, lambda value: [value], DEPTH - 1),
    "list_view": (bs.list_view, lambda value: [value], DEPTH - 1),
    "fixed_size_list": (lambda type_: bs.list_(type_, 1), lambda value: [value], DEPTH - 1),
    "struct": (lambda type_: bs.struct({"a": type_}), lambda value: {"a": value}, DEPTH - 1),
    "map": (lambda type_: bs.map_(bs.int64(), type_), lambda value: [(1, value)], DEPTH // 2 - 1),
    "dictionary": (lambda type_: bs.dictionary(bs.int32(), bs.list_(type_)), lambda value: [value], DEPTH // 2 - 1),
}


class Exported:
    """An array of another library."""

    def __init__(self, array: bs.Array) -> None:
        self.array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.array.__arrow_c_array__(requested_schema)


def call_deep(frames: int, function: Callable[[], object]) -> object:
    """Call a function this many frames further down."""
    return function() if frames <= 0 else call_deep(frames - 1, function)


def count_frames() -> int:
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


def write(table: bs.Table, new: Callable[..., Any]) -> bytes:
    sink = io.BytesIO()
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("kind", NESTED)
def test_all_functions_support_the_greatest_depth_in_the_middle_of_the_stack(kind: str) -> None:
    nest, nest_value, levels = NESTED[kind]

    def make_type() -> bs.DataType:
        type_: bs.DataType = bs.int64()
        for _ in range(levels):
            type_ = nest(type_)
        return type_

    type_, value = make_type(), 7
    for _ in range(levels):
        value = nest_value(value)
    array = bs.array([value, value], type_)
    table = bs.table({"n": array})
    file, stream = write(table, bs.new_file), write(table, bs.new_stream)
    calls: dict[str, Callable[[], object]] = {
        "repr of the type": lambda: repr(type_),
        "comparison": lambda: type_ == make_type(),
        "hash": lambda: hash(type_),
        "pickle": lambda: pickle.loads(pickle.dumps(array)),
        "construction": lambda: bs.array([value, value], type_),
        "write a file": lambda: write(table, bs.new_file),
        "write a stream": lambda: write(table, bs.new_stream),
        "read a file": lambda: bs.open_file(file).read_all().to_pylist(),
        "read a stream": lambda: bs.open_stream(stream).read_all().to_pylist(),
        "read a schema": lambda: bs.ipc.read_schema(stream),
        "validate": lambda: array.validate(full=True),
        "repr": lambda: (repr(array), repr(table), table._repr_html_()),
        "element": lambda: repr(array[0]),
        "equality": lambda: array.equals(bs.concat_arrays([array.slice(0, 1), array.slice(1)])),
        "take": lambda: array.take([1, 0]),
        "cast": lambda: array.cast(type_),
        "C data": lambda: bs.array(Exported(array)),
        "inspect": lambda: repr(bs.inspection.inspect(file)),
        "anatomy": lambda: bs.inspection.build_anatomy(file),
        "recover": lambda: bs.ipc.recover(io.BytesIO(file), io.BytesIO()),
        "concatenate": lambda: bs.ipc.concat_files([file, file], io.BytesIO()),
        "share": lambda: bs.share(table).close(),
    }
    assert sys.getrecursionlimit() == 1000
    for name, call in calls.items():
        try:
            call_deep(FRAMES_USED - count_frames(), call)
        except RecursionError:
            pytest.fail(f"{name} of {kind} at depth {DEPTH}")


def test_the_greatest_depth_is_the_limit_of_reading() -> None:
    assert ReadLimits().max_nesting == DEPTH
    with pytest.raises(InvalidArgumentError, match=r"max_nesting is 1 to 64, not 65"):
        ReadLimits(max_nesting=DEPTH + 1)
