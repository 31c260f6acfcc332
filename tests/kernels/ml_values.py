"""The types in which Spark stores vectors and matrices."""

from __future__ import annotations

import bowstring as bs

_INDICES, _VALUES = (bs.list_(bs.field("element", element, False)) for element in (bs.int32(), bs.float64()))
VECTOR_TYPE = bs.struct(
    [
        bs.field("type", bs.int8(), False),
        bs.field("size", bs.int32()),
        bs.field("indices", _INDICES),
        bs.field("values", _VALUES),
    ]
)
MATRIX_TYPE = bs.struct(
    [
        bs.field("type", bs.int8(), False),
        bs.field("numRows", bs.int32(), False),
        bs.field("numCols", bs.int32(), False),
        bs.field("colPtrs", _INDICES),
        bs.field("rowIndices", _INDICES),
        bs.field("values", _VALUES),
        bs.field("isTransposed", bs.bool_(), False),
    ]
)
