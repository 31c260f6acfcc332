"""Random Parquet variants and tensors of variable shape: pyarrow sees the same storage."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings, strategies as st

import bowstring as bs

_BYTES = st.sampled_from([bs.binary(), bs.large_binary(), bs.binary_view()])
_LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bs.int8(), st.integers(-128, 127)),
    (bs.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (bs.float64(), st.floats(allow_nan=False)),
    (bs.bool_(), st.booleans()),
    (bs.string(), st.text(st.characters(codec="utf-8"), max_size=5)),
    (bs.date32(), st.dates()),
    (bs.decimal128(9, 2), st.decimals(-1000, 1000, places=2)),
]


@st.composite
def shredded_fields(draw: st.DrawFn, depth: int) -> tuple[list[bs.Field], st.SearchStrategy[dict[str, Any]]]:
    """The fields `value`, `typed_value` or both, and a strategy of their values."""
    fields, values = [], {}
    has_value = draw(st.booleans())
    if has_value:
        fields.append(bs.field("value", draw(_BYTES)))
        values["value"] = st.one_of(st.none(), st.binary(max_size=20))
    if draw(st.booleans()) or not has_value:
        type_, leaf = draw(st.sampled_from(_LEAVES))
        shape = draw(st.sampled_from(["leaf", "list", "object"])) if depth else "leaf"
        if shape != "leaf":
            inner, inner_values = draw(shredded_fields(depth - 1))
            field = bs.field("element", bs.struct(inner), nullable=False)
            if shape == "list":
                type_, leaf = (
                    draw(st.sampled_from([bs.list_(field), bs.large_list(field)])),
                    st.lists(inner_values, max_size=2),
                )
            else:
                type_, leaf = bs.struct([field]), st.fixed_dictionaries({"element": inner_values})
        fields.append(bs.field("typed_value", type_))
        values["typed_value"] = st.one_of(st.none(), leaf)
    return fields, st.fixed_dictionaries(values)


def check_exchange(array: bs.Array, rows: list[Any], storage_rows: list[Any]) -> None:
    """Check that streams and C structures keep an array, in both directions, with pyarrow's values of its storage."""
    array.validate(full=True)
    batch = bs.RecordBatch.from_arrays([array], ["v"])
    sink = io.BytesIO()
    with bs.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    for peer in (pa.ipc.open_stream(sink.getvalue()).read_all(), pa.table(batch)):
        peer.validate(full=True)
        column = pa.concat_arrays(peer["v"].chunks) if peer["v"].chunks else pa.array([], peer["v"].type)
        column = getattr(column, "storage", column)
        assert column.type == pa.array(array.storage).type
        assert column.to_pylist() == storage_rows
        copy = pa.BufferOutputStream()
        with pa.ipc.new_stream(copy, peer.schema) as peer_writer:
            peer_writer.write_table(peer)
        for back in (bs.open_stream(copy.getvalue()).read_all(), bs.table(peer)):
            back.validate(full=True)
            assert back["v"].type == array.type
            np.testing.assert_equal(back["v"].to_pylist(), rows)


@settings(max_examples=80)
@given(data=st.data())
def test_variants_of_any_shredding_are_exchanged_as_structs(data: st.DataObject) -> None:
    fields, values = data.draw(shredded_fields(2))
    metadata = bs.field("metadata", data.draw(_BYTES), nullable=False)
    type_ = bs.datatypes.parquet_variant(bs.struct([metadata, *fields]))
    row = st.builds(lambda rest: {"metadata": b"\1\0\0", **rest}, values)
    rows = data.draw(st.lists(st.one_of(st.none(), row), max_size=4))
    check_exchange(bs.array(rows, type_), rows, rows)


@settings(max_examples=80)
@given(data=st.data())
def test_tensors_of_any_shape_are_exchanged_as_structs(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    permutation = data.draw(st.one_of(st.none(), st.permutations(range(ndim))))
    dtype: np.dtype[Any] = np.dtype(data.draw(st.sampled_from(["i1", "i8", "f4", "f8"])))
    type_ = bs.datatypes.variable_shape_tensor(bs.array(np.zeros(1, dtype)).type, ndim, None, permutation)
    tensors: list[Any] = []
    storage_rows: list[Any] = []
    for shape in data.draw(st.lists(st.one_of(st.none(), st.tuples(*[st.integers(0, 3)] * ndim)), max_size=4)):
        if shape is None:
            tensors.append(None)
            storage_rows.append(None)
            continue
        physical = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
        # Dimension i of the logical tensor is dimension permutation[i] of the physical one.
        tensors.append(physical.transpose(permutation or range(ndim)))
        storage_rows.append({"data": physical.reshape(-1).tolist(), "shape": list(shape)})
    check_exchange(bs.array(tensors, type_), tensors, storage_rows)
