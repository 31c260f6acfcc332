"""Functions of arrays, chunked arrays, scalars and Python values, with the names and semantics of ``pyarrow.compute``.

>>> import bowstring as bs
>>> prices = bs.array([5, None, 7])
>>> prices.filter(bs.compute.greater(prices, 5)).to_pylist()
[7]

Dictionary-encoded, run-end encoded and extension arrays count as their values, views as strings. A result is a scalar
if all arguments are, a chunked array if one is, else an array. Functions raise `TypeMismatchError` for types that they
don't support. There is no query engine: joins and groups are those of DuckDB or Polars.
"""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)
