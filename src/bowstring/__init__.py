"""Bowstring: Arrow in pure Python and NumPy, tables shared between processes, and Spark results published to them.

This package exports the names of everyday use:

- arrays and tables: `array`, `record_batch`, `table`, `concat_arrays`, `concat_tables`, `chunked_array` and
  their classes, `scalar`, `repeat` and `nulls`;
- types: `schema`, `field`, and a function for each type of the columnar format, such as `int32` or `list_`;
- files and streams: `open_file`, `open_stream`, `new_file`, `new_stream`;
- between processes: `share` and `attach` for one table, `serve` and `connect` for tables by name, and `publish`,
  `published`, `open_published` and `unpublish` for tables that outlive their process, `follow_published` for streams of
  them;
- `BowstringError`, the base class of all exceptions.

Everything else is in sub-packages, which are imported on first use: `compute` (sums, comparisons and other functions),
`datasets` (training loops), `datatypes` (type classes, extension types), `errors`, `feather` (whole files),
`inspection`, `ipc` (readers, writers, options, tools for files), `memory`, `sharing` (servers, handles), `spark`,
`tensors` and `types`. Apart from a few names of `pyarrow.ipc`, a name is public in one place.

`import bowstring` loads nothing, not even NumPy.
"""

from bowstring._lazy_exports import attach_lazy_exports

__version__ = "0.1.0"

__getattr__, __dir__ = attach_lazy_exports(__name__)
