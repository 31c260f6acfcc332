"""The methods shared by record batches and tables: adding, removing and renaming columns, without copying."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import numpy as np

from bowstring.datatypes.field import Field, Schema, check_name, coerce_field
from bowstring.errors import NotFoundError, UsageError, WouldCopyError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Values, object_array

if TYPE_CHECKING:
    from bowstring.arrays.chunked_array import ChunkedArray
    from bowstring.interop.pandas.to_pandas import ToPandasOptions


class ColumnContainer(ABC):
    """ColumnContainer of one length, with a schema."""

    __slots__ = ()

    num_rows: int

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The names and types of the columns."""

    @abstractmethod
    def select(self, keys: str | int | Iterable[str | int]) -> Self:
        """Select columns by name or index, in this order; nothing is copied."""

    @property
    @abstractmethod
    def columns(self) -> Sequence[Array | ChunkedArray]:
        """All columns."""

    def __iter__(self) -> Iterator[Array | ChunkedArray]:
        """The columns, in order."""
        return iter(self.columns)

    def __contains__(self, name: object) -> bool:
        """Whether there is a column of this name."""
        return isinstance(name, str) and name in self.schema

    def to_pandas(self, **options: Unpack[ToPandasOptions]) -> Any:
        """The columns as a pandas frame (`bowstring.interop.pandas.to_pandas`, where the options are).

        Index, labels and dtypes are restored where the schema's metadata describes them. The frame has memory of its
        own and can be edited; with `copy=False` or `zero_copy_only=True` it shares memory column by column, as by
        `Array.to_pandas`. Raises `MissingExtraError` if pandas is not installed,
        `InvalidDataError` for metadata that is not as it should be.
        """
        from bowstring.interop.pandas.to_pandas import to_frame

        return to_frame(self.schema, self.columns, self.num_rows, options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        """The values in a NumPy array of shape (rows, columns), copied, of the type that NumPy finds for all columns
        (Python objects where there is none), or of `dtype`; nulls as in `Array.__array__`.

        Raises `WouldCopyError` with `copy=False`: columns lie apart.
        """
        if copy is False:
            raise WouldCopyError("columns do not make one NumPy array without copying")
        parts = [np.asarray(column, dtype) for column in self.columns]
        parts = [
            part if part.ndim == 1 else object_array(column.to_pylist())
            for part, column in zip(parts, self.columns, strict=True)
        ]
        out = np.empty((self.num_rows, len(parts)), np.dtype(dtype) if dtype is not None else _common(parts))
        for index, part in enumerate(parts):
            out[:, index] = part
        return out

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        """The columns by the dataframe interchange protocol, which some plotting tools use; everything else uses
        `__arrow_c_stream__` (`bowstring.interop.dataframe_protocol`).
        """
        from bowstring.interop.dataframe_protocol import InterchangeFrame

        return InterchangeFrame(cast("Any", self)).__dataframe__(nan_as_null, allow_copy)

    @abstractmethod
    def _with_schema(self, schema: Schema) -> Self:
        """The same columns under a schema of the same types."""

    @abstractmethod
    def _splice_column(self, schema: Schema, index: int, num_dropped: int, column: Array | ChunkedArray) -> Self:
        """The columns with `column` before column `index`, and without the `num_dropped` ones from there on."""

    def rename_columns(self, names: Sequence[str] | Mapping[str, str]) -> Self:
        """Rename all columns by a sequence of names, or some by a mapping from old to new names.

        Raises `UsageError` if there are not as many names as columns, `NotFoundError` for an old name that no
        column or more than one has.
        """
        fields = list(self.schema)
        if isinstance(names, Mapping):
            renamed = {self.schema.index(old): new for old, new in names.items()}
            new_names = [renamed.get(index, f.name) for index, f in enumerate(fields)]
        else:
            new_names = [names] if isinstance(names, str) else list(names)
        if len(new_names) != len(fields):
            raise UsageError(f"rename_columns: {len(new_names)} names for {len(fields)} columns")
        for name in new_names:
            check_name(name)
        new_fields = tuple(f.with_name(name) for f, name in zip(fields, new_names, strict=True))
        return self._with_schema(Schema(new_fields, self.schema.pairs))

    def add_column(self, i: int, field_: str | Field, column: Any) -> Self:
        """With `column` before column `i`. It is an array, a chunked array, or values as `bowstring.array` takes them;
        the field may be another library's.

        Raises `UsageError` if its length or its type does not fit, `NotFoundError` where there is no place `i`.
        """
        count = len(self.schema)
        i = operator.index(i)
        if not -count <= i <= count:
            raise NotFoundError(f"add_column: there is no place {i} among {count} columns")
        return self._add_or_replace(i + count if i < 0 else i, 0, field_, column)

    def append_column(self, field_: str | Field, column: Any) -> Self:
        """Append `column`, like `add_column`."""
        return self._add_or_replace(len(self.schema), 0, field_, column)

    def set_column(self, i: int | str, field_: str | Field, column: Any) -> Self:
        """Replace column `i`, like `add_column`."""
        return self._add_or_replace(self.schema.index(i), 1, field_, column)

    def remove_column(self, i: int | str) -> Self:
        """Remove a column by index or name. Raises `NotFoundError`."""
        index = self.schema.index(i)
        return self.select([other for other in range(len(self.schema)) if other != index])

    def drop_columns(self, columns: str | Sequence[str]) -> Self:
        """Remove columns by name. Raises `NotFoundError`."""
        dropped = set(self.schema.indices(columns))
        return self.select([index for index in range(len(self.schema)) if index not in dropped])

    def _add_or_replace(self, index: int, num_dropped: int, field_: str | Field, column: Any) -> Self:
        from bowstring.arrays.chunked_array import ChunkedArray
        from bowstring.arrays.construction import array

        field_ = coerce_field(field_)
        type_ = field_.type if isinstance(field_, Field) else None
        values = column if isinstance(column, (Array, ChunkedArray)) else array(column, type_)
        if not isinstance(field_, Field):
            check_name(field_)
            field_ = Field(field_, values.type)
        if values.type != field_.type:
            raise UsageError(f"column {field_.name!r} is {values.type}, its field says {field_.type}")
        if len(values) != self.num_rows and (self.schema.fields or self.num_rows):
            raise UsageError(f"column {field_.name!r} has {len(values)} values for {self.num_rows} rows")
        fields = self.schema.fields
        schema = Schema((*fields[:index], field_, *fields[index + num_dropped :]), self.schema.pairs)
        return self._splice_column(schema, index, num_dropped, values)


def _common(parts: Sequence[Values]) -> np.dtype[Any]:
    try:
        return np.result_type(*parts) if parts else np.dtype(np.float64)
    except TypeError:  # such as a date and a number
        return np.dtype(object)
