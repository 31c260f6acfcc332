"""The dataframe interchange protocol, for libraries that still require it."""

from __future__ import annotations

import warnings
from typing import Any

import narwhals
import narwhals.stable.v1
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.interchange
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, TypeMismatchError, WouldCopyError
from bowstring.interop.dataframe_protocol import DtypeKind, InterchangeFrame
from tests.interop.layouts import LAYOUTS

KNOWN = ["bool", "int8", "int64", "uint16", "float32", "float64", "string", "large_string", "timestamp_us",
         "zoned_ns", "string_view", "dictionary", "run_end_encoded"]  # fmt: skip


class NoCapsules:
    """Has only the interchange protocol."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        return self.table.__dataframe__(nan_as_null, allow_copy)


@pytest.mark.parametrize("cut", [slice(None), slice(1, None), slice(0, 0)], ids=str)
@pytest.mark.parametrize("name", KNOWN)
def test_pyarrow_imports_a_column_through_the_protocol(name: str, cut: slice) -> None:
    table = bs.table({"a": LAYOUTS[name][cut]})
    pa_table = pyarrow.interchange.from_dataframe(NoCapsules(table))
    expected = table["a"].to_pylist()
    shown = [v if v is None or name != "bool" else bool(v) for v in pa_table["a"].to_pylist()]
    assert shown == expected


def test_several_batches_are_several_chunks() -> None:
    kind = bs.dictionary(bs.int8(), bs.string())
    parts = [
        bs.table({"n": [1, None], "c": bs.array(["x", "y"], kind)}),
        bs.table({"n": [3], "c": bs.array(["z"], kind)}),
    ]
    table = bs.concat_tables(parts)
    frame = table.__dataframe__()
    assert (frame.num_columns(), frame.num_rows(), frame.num_chunks()) == (2, 3, 2)
    assert [chunk.num_rows() for chunk in frame.get_chunks()] == [2, 1]
    assert [chunk.num_rows() for chunk in frame.get_chunks(4)] == [1, 1, 1]
    assert pyarrow.interchange.from_dataframe(NoCapsules(table.select(["n"])))["n"].to_pylist() == [1, None, 3]
    column = frame.get_column_by_name("c")
    assert column.describe_categorical["categories"].size() == 3
    assert [part.size() for part in column.get_chunks(2)] == [2, 1]
    with pytest.raises(InvalidArgumentError, match="multiple"):
        list(frame.get_chunks(3))
    with pytest.raises(WouldCopyError, match="2 chunks"):
        table.__dataframe__(allow_copy=False).get_column(0)


def test_columns_have_the_attributes_of_the_protocol() -> None:
    frame = bs.table({"n": [1, None], "s": ["a", "b"], "b": [True, False]}).__dataframe__()
    assert frame.column_names() == ["n", "s", "b"]
    numbers, text, bits = frame.get_columns()
    assert numbers.dtype == (DtypeKind.INT, 64, "l", "=")
    assert text.dtype == (DtypeKind.STRING, 8, "u", "=")
    assert bits.dtype == (DtypeKind.BOOL, 8, "b", "=")
    assert (numbers.describe_null, text.describe_null) == ((3, 0), (0, None))
    assert (numbers.null_count, numbers.offset, numbers.num_chunks()) == (1, 0, 1)
    assert frame.select_columns([2]).select_columns_by_name(["b"]).column_names() == ["b"]
    with pytest.raises(TypeMismatchError, match="no categories"):
        _ = numbers.describe_categorical


def test_memory_is_shared_if_the_protocol_supports_the_layout() -> None:
    values = np.arange(3)
    buffers = bs.table({"a": values}).__dataframe__(allow_copy=False).get_column(0).get_buffers()
    assert buffers["data"][0].ptr == values.__array_interface__["data"][0]
    assert buffers["data"][0].bufsize == 24
    assert buffers["data"][0].__dlpack_device__() == (1, None)
    assert buffers["validity"] is None
    for name in ("bool", "string_view", "run_end_encoded"):
        frame = bs.table({"a": LAYOUTS[name]}).__dataframe__(allow_copy=False)
        with pytest.raises(WouldCopyError):
            frame.get_column(0).get_buffers()


@pytest.mark.parametrize("name", ["list", "decimal128", "binary", "time_us", "duration_s", "struct", "null", "map"])
def test_a_type_that_the_protocol_does_not_support_is_an_error_on_access(name: str) -> None:
    frame = bs.table({"a": LAYOUTS[name], "n": range(len(LAYOUTS[name]))}).__dataframe__()
    assert frame.get_column(1).size() == len(LAYOUTS[name])
    with pytest.raises(TypeMismatchError, match="interchange protocol does not support"):
        frame.get_column(0)


def test_nan_is_a_value() -> None:
    with pytest.raises(InvalidArgumentError, match="NaN"):
        bs.table({"a": [1]}).__dataframe__(nan_as_null=True)


def test_pandas_imports_tables_through_capsules_and_the_protocol() -> None:
    table = bs.table({"n": [1, None], "s": ["a", None], "t": bs.array([0, 1], bs.timestamp("us"))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas 3 warns that the protocol is deprecated
        by_capsules = pd.api.interchange.from_dataframe(table)
        by_protocol = pd.api.interchange.from_dataframe(NoCapsules(table))
    pd.testing.assert_frame_equal(by_capsules, table.to_pandas())
    pd.testing.assert_frame_equal(by_protocol, table.to_pandas(), check_dtype=False)


def test_editing_a_pandas_frame_from_the_protocol_does_not_change_the_table() -> None:
    table = bs.attach(bs.share(bs.table({"n": [1, 2, 3], "f": [0.5, 1.5, 2.5]})))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pd.errors.Pandas4Warning)
        frame = pd.api.interchange.from_dataframe(NoCapsules(table))
    frame.loc[0, "n"] = 9
    assert frame["n"].tolist() == [9, 2, 3]
    assert table["n"].to_pylist() == [1, 2, 3]


def test_narwhals_imports_tables_through_capsules() -> None:
    table = bs.table({"n": [1, 2, None], "s": ["a", "b", None]})
    for backend in ("polars", "pyarrow"):
        frame = narwhals.from_arrow(table, backend=backend)
        assert frame.filter(narwhals.col("n") > 1).to_dict(as_series=False) == {"n": [2], "s": ["b"]}


def test_narwhals_selects_columns_through_the_protocol_like_plotly() -> None:
    table = bs.table({"n": [1, 2], "l": [[1], [2]], "s": ["a", None]})
    frame: Any = narwhals.stable.v1.from_native(table, eager_or_interchange_only=True)
    assert frame.select("n", "s").to_arrow().to_pydict() == {"n": [1, 2], "s": ["a", None]}
    assert frame.columns == ["n", "l", "s"]


def test_the_protocol_frame_exports_capsules() -> None:
    table = bs.table({"l": [[1], None]})
    assert isinstance(table.__dataframe__(), InterchangeFrame)
    assert pa.table(table.__dataframe__()).to_pydict() == {"l": [[1], None]}
    assert bs.table(bs.record_batch({"a": [1]}).__dataframe__()).to_pydict() == {"a": [1]}
