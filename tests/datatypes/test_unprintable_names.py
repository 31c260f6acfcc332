"""Names from files are shown without the characters that a terminal would obey."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import bowstring as bs

NAME = "a\x1b[31m\u202e\n"
SHOWN = "a\\x1b[31m\\u202e\\n"
FIELD = bs.field(NAME, "int8")
SCHEMA = bs.schema([FIELD], metadata={NAME: NAME})
NESTED = bs.struct([FIELD])
ZONED = bs.timestamp("s", NAME)
OBJECTS = {
    "field": FIELD,
    "schema": SCHEMA,
    "struct": NESTED,
    "list": bs.list_(FIELD),
    "map": bs.map_("string", FIELD),
    "union": bs.dense_union([FIELD]),
    "table": bs.table([[1]], SCHEMA),
    "nested table": bs.table([[{NAME: 1}]], {"s": NESTED}),
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("show", [repr, str])
def test_names_are_escaped(name: str, show: Callable[[object], str]) -> None:
    shown = show(OBJECTS[name])
    assert "a\\x1b[31m" in shown or name == "map"
    assert all(line.isprintable() for line in shown.split("\n"))


def test_time_zones_and_metadata_are_escaped() -> None:
    assert SHOWN in repr(ZONED)
    assert SHOWN in str(bs.field("a", ZONED))
    assert all(line.isprintable() for line in SCHEMA.to_string().split("\n"))


def test_names_in_errors_are_escaped() -> None:
    calls: list[Callable[[], object]] = [
        lambda: bs.concat_tables([bs.table([[1]], SCHEMA), bs.table({"b": [1]})]),
        lambda: bs.table({"a": bs.array([1], ZONED)}).cast({"a": "int8", NAME: "int8"}),
        lambda: bs.array([1], ZONED).cast("string"),
        lambda: bs.table([[1]], SCHEMA)["b"],
        lambda: bs.array([1], ZONED).cast(bs.list_("int8")),
    ]
    for call in calls:
        with pytest.raises(bs.BowstringError) as error:
            call()
        assert all(line.isprintable() for line in str(error.value).split("\n")), str(error.value)
    assert str(bs.errors.NotFoundError("one\ntwo\x1b")) == "one\ntwo\\x1b"
    assert str(bs.errors.MissingFileError("one\x07")) == "one\\x07"
    assert str(bs.errors.InvalidDataError()) == ""


def test_an_error_suggests_the_most_similar_name() -> None:
    with pytest.raises(bs.errors.NotFoundError, match="did you mean 'delay'"):
        bs.table({"delay": [1], "b": [2]})["dela"]
    with pytest.raises(bs.errors.NotFoundError, match="did you mean 'delay'"):
        bs.table({"delay": [1]}).filter([("dealy", ">", 1)])
    with pytest.raises(bs.errors.NotFoundError, match="did you mean 'city'"):
        bs.array([{"city": 1}]).field("ctiy")
    with pytest.raises(bs.errors.NotFoundError) as error:
        bs.table({"delay": [1]})["x"]
    assert "did you mean" not in str(error.value)


def test_an_error_in_a_value_names_its_column() -> None:
    for data in ({"n": [1, "x"]}, [{"n": 1}, {"n": "x"}]):
        for create in (bs.table, bs.record_batch):
            with pytest.raises(bs.errors.TypeMismatchError, match=r"'n': values of int and str"):
                create(data)
    with pytest.raises(bs.errors.TypeMismatchError, match="column 'b': value 1: 'x'"):
        bs.table([[1], [2, "x"]], {"a": "int8", "b": "int8"})
    with pytest.raises(bs.errors.TypeMismatchError, match="column 'b': values of int and str"):
        bs.table([[1], [2, "x"]], ["a", "b"])


def test_a_repr_counts_in_words_and_separates_thousands() -> None:
    table = bs.table({"n": range(12_345)})
    assert repr(table).startswith("<bowstring.Table 12,345 rows × 1 column in 1 batch>")
    assert repr(table["n"]).startswith("<bowstring.ChunkedArray int64[12,345] in 1 chunk>")
    assert repr(table["n"].chunk(0)).startswith("<bowstring.Array int64[12,345]>")
    assert repr(table.to_reader()) == "<bowstring.RecordBatchReader: 1 column>"
