"""The description of a data set in parts: a schema, and for each part its rows, bytes and locations.

A description is small. It can be pickled or written as JSON, and `bowstring.connect` opens it in any process.
"""

from __future__ import annotations

import base64
import io
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeVar

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datatypes.base import DataType
from bowstring.datatypes.schema import Schema
from bowstring.display.tables import MAX_HTML_ROWS, to_html_table
from bowstring.errors import BowstringError, InvalidArgumentError, InvalidDataError, check_count, format_count
from bowstring.ipc.api import new_stream, open_stream
from bowstring.kernels.filters import FiltersLike, parse_filters
from bowstring.kernels.list_lengths import NO_LISTS, ListLengthBounds, ListLengths, count_list_levels
from bowstring.sharing.client.connect import connect
from bowstring.sharing.dataset_locations import hide_secrets, sort_by_distance
from bowstring.sharing.uris import parse_scheme

_FORMAT = "bowstring-dataset"
# Of the JSON; readers reject others.
_FORMAT_VERSION = 1
_FieldType = TypeVar("_FieldType")


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class DatasetPart:
    """One part of a data set: its size and where it is.

    >>> with bs.serve({"visits": bs.table({"n": [1, 2]})}) as server:
    ...     part = bs.datasets.DatasetPart(2, 16, (server.uri("visits"),))
    ...     bs.datasets.Dataset("twice", bs.schema({"n": "int64"}), [part, part]).read_all()["n"].to_pylist()
    [1, 2, 1, 2]
    """

    num_rows: int
    nbytes: int
    """The bytes that it occupies: of a part that is only in a local file, the size of the file; 0 if not known."""
    locations: tuple[str, ...]
    """URIs of the same rows, of which `bowstring.connect` uses the nearest that works: of servers, files and objects
    of stores. Only a part without rows may have none.
    """
    host: str | None = None
    """The name of the host whose memory or disk has it, if known."""
    list_lengths: ListLengths = ()
    """The bounds of the lengths of lists, for columns by their index in the part, as far as they were recorded: a
    column is dense if its shortest and longest lists are equal in all parts.
    """

    def __repr__(self) -> str:
        locations = ", ".join(map(hide_secrets, self.locations)) or "no location"
        size = f"{format_count(self.num_rows, 'row')}, {format_count(self.nbytes, 'byte')}"
        return f"<bowstring.datasets.DatasetPart {size} at {locations}>"


class Dataset:
    """A schema and parts, in order; frozen.

    Reading methods connect to the parts, and close the connections. To read repeatedly or batch by batch, open a
    `DatasetReader` with `bowstring.connect`. A slice, as in ``dataset[2:5]``, is the data set of these parts.

    `part_schema` is the schema of the parts. `column_indices` are the columns of them that are read, None for all.
    Raises `NotFoundError` for an index out of range.

    >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
    >>> visits = bs.dataset("visits.arrow")
    >>> same = bs.datasets.Dataset.from_json(visits.to_json())
    >>> same.head(2)["user"].to_pylist()
    [1, 2]
    """

    __slots__ = ("__weakref__", "column_indices", "name", "part_schema", "parts", "schema")

    def __init__(
        self,
        name: str,
        part_schema: Schema,
        parts: Iterable[DatasetPart],
        column_indices: Iterable[int] | None = None,
    ) -> None:
        self.name = name
        self.part_schema = part_schema
        self.parts = tuple(parts)
        self.column_indices = None if column_indices is None else tuple(column_indices)
        self.schema = part_schema if self.column_indices is None else part_schema.select(self.column_indices)
        """The schema of the columns that are read."""

    @property
    def uris(self) -> tuple[str, ...]:
        """The first location of each part that has any."""
        return tuple(part.locations[0] for part in self.parts if part.locations)

    @property
    def num_rows(self) -> int:
        """The rows of all parts."""
        return sum(part.num_rows for part in self.parts)

    @property
    def nbytes(self) -> int:
        """The bytes of all columns of all parts, on all hosts together."""
        return sum(part.nbytes for part in self.parts)

    def select(self, columns: str | int | Iterable[str | int]) -> Dataset:
        """Return the data set of some columns, by name or index, in this order.

        Only these are read from files and stores, and mapped from shared memory; a server on another host sends all.
        Raises as `Table.select`.

        >>> with bs.new_file("visits.arrow", {"user": "int64", "page": "string"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2], "page": ["a", "b"]}))
        >>> bs.dataset("visits.arrow").select("page").read_all().to_pydict()
        {'page': ['a', 'b']}
        """
        selected = self.schema.resolve_indices(columns)
        indices = selected if self.column_indices is None else [self.column_indices[index] for index in selected]
        return Dataset(self.name, self.part_schema, self.parts, indices)

    def with_parts(self, parts: Iterable[DatasetPart]) -> Dataset:
        """Return the data set of other parts, with the same schema and selected columns.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2]}))
        >>> visits = bs.dataset(["visits.arrow", "visits.arrow"])
        >>> visits.with_parts(visits.parts[:1]).num_rows
        2
        """
        return Dataset(self.name, self.part_schema, parts, self.column_indices)

    def __iter__(self) -> Iterator[RecordBatch]:
        """Iterate over the record batches of all parts, as `connect` reads them. Raises as `connect`."""
        with connect(self) as reader:
            yield from reader

    def __getitem__(self, parts: slice) -> Dataset:
        if not isinstance(parts, slice):
            raise InvalidArgumentError(f"expected a slice of parts, such as [2:3], found {parts!r:.80}")
        return self.with_parts(self.parts[parts])

    def read_all(self, filters: FiltersLike | None = None) -> Table:
        """Read all parts into a table, without copying those in shared memory of this host. Raises as `connect`.

        With filters such as ``[("a", ">", 5)]``, read the rows that match, as `Table.filter`; the filters may name
        columns that are not selected.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
        >>> bs.dataset("visits.arrow").read_all([("user", ">", 1)])["user"].to_pylist()
        [2, 3]
        """
        if filters is None or self.column_indices is None:
            with connect(self) as reader:
                return reader.read_all(filters)
        others = set(parse_filters(filters, self.part_schema).column_indices) - set(self.column_indices)
        columns = (*self.column_indices, *sorted(others))
        with connect(Dataset(self.name, self.part_schema, self.parts, columns)) as reader:
            return reader.read_all(filters).select(range(len(self.column_indices)))

    def read_rows(self, start: int, stop: int) -> Table:
        """Read the rows from index `start` to `stop`, as `read_all`; connects only to the parts that have them.

        Raises `InvalidArgumentError` if they are out of range, and as `connect`.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
        >>> bs.dataset(["visits.arrow", "visits.arrow"]).read_rows(2, 5)["user"].to_pylist()
        [3, 1, 2]
        """
        start, stop = check_count("start", start), check_count("stop", stop)
        if not start <= stop <= self.num_rows:
            raise InvalidArgumentError(f"rows {start} to {stop} are out of range for {self.num_rows} rows")
        # The parts of the first and the last row; parts without rows before the first are skipped.
        ends = list(accumulate(part.num_rows for part in self.parts))
        first, last = bisect_right(ends, start), bisect_left(ends, stop)
        if start == stop:
            return Table(self.schema)
        row = ends[first] - self.parts[first].num_rows
        batches = []
        with connect(self[first : last + 1]) as reader:
            for batch in reader:
                if row + batch.num_rows > start:
                    offset = max(start - row, 0)
                    batches.append(batch.slice(offset, min(stop - row, batch.num_rows) - offset))
                row += batch.num_rows
                if row >= stop:
                    break
        return Table(self.schema, batches)

    def read_rank(self, rank: int, world_size: int) -> Table:
        """Read the rows of one of `world_size` ranks, which are adjacent, and differ by at most one row in number.

        A part may be split between ranks; nothing is copied for that. Raises `InvalidArgumentError` unless `rank` is
        below `world_size`, and as `connect`.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2, 3, 4]}))
        >>> visits = bs.dataset("visits.arrow")
        >>> [visits.read_rank(rank, world_size=2)["user"].to_pylist() for rank in range(2)]
        [[1, 2], [3, 4]]
        """
        rank, world_size = check_count("rank", rank), check_count("world_size", world_size)
        if rank >= world_size:
            raise InvalidArgumentError(f"rank: expected an integer below the world_size of {world_size}, found {rank}")
        num_rows = self.num_rows
        return self.read_rows(num_rows * rank // world_size, num_rows * (rank + 1) // world_size)

    def head(self, num_rows: int = 5) -> Table:
        """Read the first rows, or all if there are fewer. Raises as `read_rows`.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
        >>> bs.dataset("visits.arrow").head(2)["user"].to_pylist()
        [1, 2]
        """
        return self.read_rows(0, min(check_count("num_rows", num_rows), self.num_rows))

    def to_pandas(self, **options: Any) -> Any:
        """Read all parts into a pandas data frame, with the options of `Table.to_pandas`. Raises as `connect` and that.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
        >>> bs.dataset("visits.arrow").to_pandas()["user"].max().item()
        3
        """
        return self.read_all().to_pandas(**options)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.read_all().__arrow_c_stream__(requested_schema)

    def to_json(self) -> str:
        """Return the description as JSON, for `from_json` or another language. URIs may have secret tickets.

        `schema` is the Base64 text of an IPC stream without batches («IPC Streaming Format»), the schema of the parts;
        `columns` are the indices of the columns that are read, or null. `list_lengths` of a part, which may be absent,
        has pairs of a column's index and the lengths of its shortest and longest list at each level, outermost first.

        >>> import json
        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
        >>> json.loads(bs.dataset("visits.arrow").to_json())["parts"][0]["rows"]
        3
        """
        return json.dumps(
            {
                "format": _FORMAT,
                "version": _FORMAT_VERSION,
                "name": self.name,
                "schema": _encode_schema(self.part_schema),
                "columns": self.column_indices,
                "parts": [
                    {
                        "rows": part.num_rows,
                        "bytes": part.nbytes,
                        "locations": part.locations,
                        "host": part.host,
                        "list_lengths": part.list_lengths,
                    }
                    for part in self.parts
                ],
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Dataset:
        """Return the data set of a text of `to_json`. Raises `InvalidDataError`.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
        >>> visits = bs.dataset("visits.arrow")
        >>> bs.datasets.Dataset.from_json(visits.to_json()) == visits
        True
        """
        try:
            description = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidDataError(f"data set: expected JSON: {error}") from None
        header = (_read_field(description, "format", str), _read_field(description, "version", int))
        if header != (_FORMAT, _FORMAT_VERSION):
            raise InvalidDataError(f"data set: expected {_FORMAT!r}, version {_FORMAT_VERSION}, found {header}")
        schema = _decode_schema(_read_field(description, "schema", str))
        parts = [_parse_part(part, schema) for part in _read_field(description, "parts", list)]
        columns = description.get("columns")
        if columns is not None and not (isinstance(columns, list) and all(_is_index(n, len(schema)) for n in columns)):
            raise InvalidDataError(
                f"data set: columns: expected indices below {len(schema)} or null, found {columns!s:.80}"
            )
        return Dataset(_read_field(description, "name", str), schema, parts, columns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dataset):
            return NotImplemented
        return (self.name, self.part_schema, self.column_indices, self.parts) == (
            other.name,
            other.part_schema,
            other.column_indices,
            other.parts,
        )

    def __hash__(self) -> int:
        return hash((self.name, self.column_indices, self.parts))

    def __repr__(self) -> str:
        return f"<bowstring.datasets.Dataset {self.name}: {describe_size(self)}>\n{self.schema}"

    def _repr_html_(self) -> str:
        caption = (
            f"{self.name}: {format_count(self.num_rows, 'row')} × {format_count(len(self.schema), 'column')}, "
            f"{format_count(self.nbytes, 'byte')} in {format_count(len(self.parts), 'part')}"
        )
        rows = []
        for index, part in enumerate(self.parts[: MAX_HTML_ROWS + 1]):
            scheme = parse_scheme(sort_by_distance(part.locations)[0]) if part.locations else ""
            rows.append((str(index), part.host or "", f"{part.num_rows:,}", f"{part.nbytes:,}", scheme))
        return to_html_table(caption, ("part", "host", "rows", "bytes", "nearest location"), rows)


def _encode_schema(schema: Schema) -> str:
    stream = io.BytesIO()
    new_stream(stream, schema).close()
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _decode_schema(text: str) -> Schema:
    try:
        return open_stream(base64.b64decode(text, validate=True)).schema
    except (ValueError, BowstringError) as error:
        raise InvalidDataError(f"data set: schema: expected the Base64 text of an IPC stream: {error}") from error


def _parse_part(part: Any, schema: Schema) -> DatasetPart:
    num_rows, nbytes = _read_field(part, "rows", int), _read_field(part, "bytes", int)
    locations = tuple(_read_field(part, "locations", list))
    host = part.get("host")
    if num_rows < 0 or nbytes < 0 or not all(isinstance(uri, str) for uri in (*locations, host or "")):
        raise InvalidDataError(f"data set: expected a part's rows, bytes, locations and host, found {part!s:.80}")
    return DatasetPart(num_rows, nbytes, locations, host, parse_list_lengths(part.get("list_lengths", ()), schema))


def parse_list_lengths(value: Any, schema: Schema) -> ListLengths:
    """Return `DatasetPart.list_lengths` of a part with this schema from its JSON. Raises `InvalidDataError`."""
    try:
        lengths = tuple((index, tuple((low, high) for low, high in bounds)) for index, bounds in value)
        is_valid = all(_is_index(index, len(schema)) for index, _ in lengths)
    except (TypeError, ValueError):
        is_valid = False  # these are not pairs
    is_valid = is_valid and all(has_bounds(schema.field(index).type, bounds) for index, bounds in lengths)
    if not is_valid or any(right[0] <= left[0] for left, right in pairwise(lengths)):
        raise InvalidDataError(
            f"data set: list_lengths: expected list columns of the schema and their bounds, found {value!s:.80}"
        )
    return lengths


def has_bounds(data_type: DataType, bounds: ListLengthBounds) -> bool:
    """Whether a type has lists with as many levels, and each has a pair of lengths, or no lists."""
    return 0 < len(bounds) == count_list_levels(data_type) and all(
        pair == NO_LISTS or (all(_is_index(length, 1 << 63) for length in pair) and pair[0] <= pair[1])
        for pair in bounds
    )


def _read_field(value: object, name: str, kind: type[_FieldType]) -> _FieldType:
    """Return a field of a JSON object. Raises `InvalidDataError` unless it has this type."""
    field = value.get(name) if isinstance(value, dict) else None
    if not isinstance(field, kind) or isinstance(field, bool):
        raise InvalidDataError(f"data set: {name}: expected {kind.__name__}, found {field!s:.80}")
    return field


def _is_index(value: object, length: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < length


def describe_size(dataset: Dataset) -> str:
    """Return the numbers of rows, bytes and parts as text."""
    size = f"{format_count(dataset.num_rows, 'row')}, {format_count(dataset.nbytes, 'byte')}"
    return f"{size} in {format_count(len(dataset.parts), 'part')}"
