"""Questions about types: the answers are pyarrow's."""

from __future__ import annotations

import pytest

import bowstring as bs
from bowstring.datatypes import uuid

pa = pytest.importorskip("pyarrow")

QUESTIONS = sorted(name for name in dir(pa.types) if name.startswith("is_") and not name.endswith("_value"))
INT8 = bs.field("a", "int8")
PLAIN = (
    "null bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 date32 date64 string "
    "large_string string_view binary large_binary binary_view month_day_nano_interval"
)
TYPES = [
    *(getattr(bs, name)() for name in PLAIN.split()),
    *(function(5, 2) for function in (bs.decimal32, bs.decimal64, bs.decimal128, bs.decimal256)),
    *(bs.time32("s"), bs.time64("us"), bs.timestamp("us"), bs.timestamp("ns", "UTC"), bs.duration("s"), bs.binary(3)),
    *(function("int8") for function in (bs.list_, bs.large_list, bs.list_view, bs.large_list_view)),
    *(bs.list_("int8", 3), bs.map_("string", "int8"), bs.struct({"a": "int8"}), bs.dense_union([INT8])),
    *(bs.sparse_union([INT8]), bs.dictionary("int8", "string"), bs.run_end_encoded("int32", "string"), uuid()),
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_pyarrows(question: str) -> None:
    function = getattr(bs.types, question)
    for type_ in TYPES:
        foreign = pa.field(bs.field("", type_)).type
        assert function(type_) == function(foreign) == getattr(pa.types, question)(foreign), type_


def test_a_type_may_be_given_by_its_name() -> None:
    assert bs.types.is_integer("int8")
    assert not bs.types.is_integer("string")


@pytest.mark.parametrize("question", QUESTIONS)
def test_help_shows_the_name_of_the_question(question: str) -> None:
    function = getattr(bs.types, question)
    assert function.__name__ == question or question in ("is_unicode", "is_large_unicode"), "the same as is_string"
    assert function.__doc__.startswith("Whether ")
