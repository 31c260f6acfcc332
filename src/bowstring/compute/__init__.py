"""The functions, options and expressions of ``pyarrow.compute``, for Bowstring's arrays and tables.

>>> import bowstring as bs
>>> prices = bs.array([5, None, 7])
>>> prices.filter(bs.compute.greater(prices, 5)).to_pylist()
[7]
>>> bs.table({"price": prices}).filter(bs.compute.field("price") > 5).to_pydict()
{'price': [7]}

`bowstring.compute.NAME` is pyarrow's function of that name, also of a version that is newer than Bowstring. Arguments
are passed to it and results come back as Bowstring's arrays, chunked arrays, scalars, batches and tables, over the same
memory. Python values, NumPy arrays and columns of other libraries are arguments, too. Errors are pyarrow's, such as
``pyarrow.ArrowInvalid``, which is a `ValueError`.

pyarrow is imported on first use of a name. Without it, that raises `MissingExtraError`.
"""

from bowstring.compute import bridge

__getattr__, __dir__ = bridge.get_attribute, bridge.list_names
