"""The description of a data set in parts: a schema, and for each part its rows, bytes and locations.

A description is small. It can be pickled or written as JSON, and `bowstring.connect` opens it in any process.
"""

from __future__ import annotations

import base64
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datasets.order import RowIndices
from bowstring.datasets.steps import (
    CastStep,
    FilterStep,
    MapStep,
    ReadPlan,
    RowChooser,
    SelectStep,
    SplitStep,
    Step,
    check_fractions,
    create_empty_batch,
)
from bowstring.datatypes.field import DataType
from bowstring.datatypes.schema import Schema, SchemaLike, as_schema
from bowstring.display.tables import MAX_HTML_ROWS, to_html_table
from bowstring.errors import (
    BowstringError,
    InvalidArgumentError,
    InvalidDataError,
    check_count,
    format_count,
    prefix_errors,
)
from bowstring.ipc.api import open_stream
from bowstring.ipc.message import END_OF_STREAM, frame_message
from bowstring.ipc.stream import Encoder
from bowstring.kernels.filters import FiltersLike, parse_filters
from bowstring.kernels.list_lengths import NO_LISTS, ListLengthBounds, ListLengths, count_list_levels
from bowstring.layouts.indexing import to_integer
from bowstring.sharing.client.connect import connect
from bowstring.sharing.dataset_locations import hide_secrets, sort_by_distance
from bowstring.sharing.json_fields import read_field, read_list
from bowstring.sharing.uris import parse_scheme

_FORMAT = "bowstring-dataset"
# Of the JSON; readers reject others.
_FORMAT_VERSION = 1
_ERROR = "data set", InvalidDataError
"""The subject and the class of errors of malformed descriptions."""


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

    `cast`, `filter`, `split` and `map` return data sets of the same parts, with a step more from their rows to those
    that are read. Steps are applied when rows are read, in the process that reads them: the description stays small,
    and parts in shared memory stay mapped. `bowstring.connect` does not apply them; all methods of this class, an
    `EpochReader` and `bowstring.table` do.

    `part_schema` is the schema of the parts. `column_indices` are the columns of them that are read, None for all, and
    `steps` what is done with these. `storage_options` are fsspec's for locations in stores; they may be secret, and are
    pickled, but in no text. Raises `NotFoundError` for an index out of range.

    >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
    >>> visits = bs.dataset("visits.arrow")
    >>> same = bs.datasets.Dataset.from_json(visits.to_json())
    >>> same.head(2)["user"].to_pylist()
    [1, 2]
    """

    __slots__ = (
        *("__weakref__", "_part_rows", "column_indices", "name", "part_schema", "parts", "schema", "steps"),
        "storage_options",
    )

    def __init__(
        self,
        name: str,
        part_schema: Schema,
        parts: Iterable[DatasetPart],
        column_indices: Iterable[int] | None = None,
        steps: Iterable[Step] = (),
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.part_schema = part_schema
        self.parts = tuple(parts)
        self.column_indices = None if column_indices is None else tuple(column_indices)
        self.steps = tuple(steps)
        self.schema = part_schema if self.column_indices is None else part_schema.select(self.column_indices)
        """The schema of the rows that are read."""
        if self.steps:
            self.schema = self.steps[-1].schema
        self.storage_options = None if storage_options is None else dict(storage_options)
        self._part_rows: tuple[int, ...] | None = None

    @property
    def uris(self) -> tuple[str, ...]:
        """The first location of each part that has any."""
        return tuple(part.locations[0] for part in self.parts if part.locations)

    @property
    def part_rows(self) -> tuple[int, ...]:
        """The rows of each part that are read. With filters, they are counted on first use, by reading the columns of
        the filters; a pickled data set has the counts. Raises as `connect`.
        """
        part_rows = self._find_part_rows()
        if part_rows is None:
            counts = [0] * len(self.parts)
            for part, _, rows, _ in _choose_rows(self, create_plan(self, ())):
                counts[part] += len(rows)
            part_rows = tuple(counts)
        self._part_rows = part_rows
        return part_rows

    @property
    def num_rows(self) -> int:
        """The rows of all parts that are read, counted as `part_rows`."""
        return sum(self.part_rows)

    def _find_part_rows(self) -> tuple[int, ...] | None:
        """Return the rows of each part; None if they have to be counted."""
        if self._part_rows is not None:
            return self._part_rows
        part_rows: tuple[int, ...] | None = tuple(part.num_rows for part in self.parts)
        for step in self.steps:
            if isinstance(step, SplitStep):
                part_rows = step.count_rows()
            elif isinstance(step, FilterStep):
                part_rows = None
        return part_rows

    @property
    def nbytes(self) -> int:
        """The bytes of all columns of all parts, on all hosts together."""
        return sum(part.nbytes for part in self.parts)

    def select(self, columns: str | int | Iterable[str | int]) -> Dataset:
        """Return the data set of some columns, by name or index, in this order.

        Only these, and those that steps need, are read from files and stores, and mapped from shared memory; a server
        on another host sends all. Raises as `Table.select`.

        >>> with bs.new_file("visits.arrow", {"user": "int64", "page": "string"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2], "page": ["a", "b"]}))
        >>> bs.dataset("visits.arrow").select("page").read_all().to_pydict()
        {'page': ['a', 'b']}
        """
        selected = self.schema.resolve_indices(columns)
        if self.steps:
            return self._with_step(SelectStep(self.schema.select(selected), tuple(selected)))
        indices = selected if self.column_indices is None else [self.column_indices[index] for index in selected]
        return self._replace(column_indices=indices)

    def cast(self, target_schema: SchemaLike, safe: bool = True) -> Dataset:
        """Return the data set with columns of the types of a schema with the same names, or of some by name.

        The values are cast as `Table.cast` when they are read, which raises `TypeMismatchError`, naming part, row and
        column. Raises `InvalidArgumentError` if the names differ, `NotFoundError` for an unknown name, and
        `TypeMismatchError` if a type can't be cast to another at all.

        >>> with bs.new_file("visits.arrow", {"user": "int64", "page": "string"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2], "page": ["7", "8"]}))
        >>> bs.dataset("visits.arrow").cast({"page": "int32"}).read_all()["page"].to_pylist()
        [7, 8]
        """
        with prefix_errors(f"data set {self.name!r}"):
            schema = create_empty_batch(self.schema).cast(target_schema, safe).schema
        return self._with_step(CastStep(schema, safe))

    def filter(self, filters: FiltersLike) -> Dataset:
        """Return the data set of the rows that match filters such as ``[("a", ">", 5)]``, as `Table.filter`.

        Batches of files are not read if they have no such rows by their statistics. Raises as `Table.filter`.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
        >>> visits = bs.dataset("visits.arrow").filter([("user", ">", 1)])
        >>> visits.num_rows, visits.head(1)["user"].to_pylist()
        (2, [2])
        """
        return self._with_step(FilterStep.of(filters, self.schema))

    def split(self, fractions: Mapping[str, float], seed: int) -> dict[str, Dataset]:
        """Divide the rows at random into data sets by name, such as ``{"train": 0.9, "valid": 0.1}``.

        Each part of the data is divided, to the row, and rows keep their order. Where the fractions leave a part of a
        row, chance decides, so that parts of a few rows are divided in these proportions, too. The rest of fractions of
        less than 1 in all is in no split. The same rows in the same parts and `seed`, from 0 to 2**64 - 1, give the
        same splits, in all versions of NumPy. After `filter`, the rows are counted here, as in `part_rows`.

        Raises `InvalidArgumentError` unless the fractions are positive and at most 1 in all.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": list(range(10))}))
        >>> splits = bs.dataset("visits.arrow").split({"train": 0.9, "valid": 0.1}, seed=7)
        >>> {name: split.num_rows for name, split in splits.items()}
        {'train': 9, 'valid': 1}
        """
        checked, seed = check_fractions(fractions), to_integer("split: seed", seed)
        if not 0 <= seed < 1 << 64:
            raise InvalidArgumentError(f"split: seed: expected an integer from 0 to 2**64 - 1, found {seed}")
        part_rows = tuple(enumerate(self.part_rows))
        return {name: self._with_step(SplitStep(self.schema, name, checked, seed, part_rows)) for name, _ in checked}

    def map(self, function: Callable[[RecordBatch], Any], schema: SchemaLike | None = None) -> Dataset:
        """Return the data set of the rows that a function returns for each record batch.

        It returns a record batch, or what `bowstring.record_batch` accepts, such as a dictionary of columns, with as
        many rows. It must compute each row from that row alone: batches are of any length, have rows of several parts,
        and a row may be passed more than once. `schema` is what it returns, by default what it returns for an empty
        batch. It is called when rows are read, in any thread; its errors have a note with the row.

        Pickles refer to the function by its name, so it has to be defined with ``def`` in a module. Raises
        `InvalidArgumentError` if it fails for an empty batch; reading raises `InvalidDataError` for other rows than
        described.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
        >>> visits = bs.dataset("visits.arrow").map(lambda batch: {"half": batch["user"].to_numpy() / 2})
        >>> visits.schema, visits.read_all()["half"].to_pylist()
        (Schema(half: double), [0.5, 1.0, 1.5])
        """
        return self._with_step(MapStep.of(function, self.schema, None if schema is None else as_schema(schema, "map")))

    def _with_step(self, step: Step) -> Dataset:
        dataset = self._replace(steps=(*self.steps, step))
        if not step.chooses_rows:
            dataset._part_rows = self._part_rows
        return dataset

    def with_parts(self, parts: Iterable[DatasetPart]) -> Dataset:
        """Return the data set of other parts, with the same schema, selected columns and steps.

        Of a split, the parts must be its own, and of these no two equal: otherwise use a slice, such as
        ``dataset[2:3]``. Raises `InvalidArgumentError`.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2]}))
        >>> visits = bs.dataset(["visits.arrow", "visits.arrow"])
        >>> visits.with_parts(visits.parts[:1]).num_rows
        2
        """
        parts = tuple(parts)
        if any(isinstance(step, SplitStep) for step in self.steps):
            indices = {part: index for index, part in enumerate(self.parts)}
            if len(indices) < len(self.parts) or not indices.keys() >= set(parts):
                raise InvalidArgumentError(
                    f"data set {self.name!r}: with_parts: a split needs some of its own parts, no two of which are "
                    f"equal: use a slice, such as dataset[2:3]"
                )
            return self.take_parts([indices[part] for part in parts])
        return self._replace(parts=parts)

    def take_parts(self, indices: Sequence[int]) -> Dataset:
        """Return the data set of some parts, by their indices, in this order.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2]}))
        >>> bs.dataset(["visits.arrow"] * 3).take_parts([0, 2]).num_rows
        4
        """
        steps = [step.select_parts(indices) for step in self.steps]
        dataset = self._replace(parts=[self.parts[index] for index in indices], steps=steps)
        if self._part_rows is not None:
            dataset._part_rows = tuple(self._part_rows[index] for index in indices)
        return dataset

    def with_storage_options(self, storage_options: Mapping[str, Any]) -> Dataset:
        """Return the same data set, whose parts in stores are read with these options for fsspec.

        >>> with bs.new_file("memory://visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2]}))
        >>> bs.dataset("memory://visits.arrow").with_storage_options({"skip_instance_cache": True}).num_rows
        2
        """
        dataset = self._replace(storage_options=storage_options)
        dataset._part_rows = self._part_rows
        return dataset

    def _replace(self, **fields: Any) -> Dataset:
        """Return a plain data set with other fields."""
        own_fields = {name: getattr(self, name) for name in ("parts", "column_indices", "steps", "storage_options")}
        return Dataset(self.name, self.part_schema, **(own_fields | fields))

    def __iter__(self) -> Iterator[RecordBatch]:
        """Iterate over the record batches of all parts, as `connect` reads them; with steps, over those with rows.

        Raises as `connect`.
        """
        if not self.steps:
            with connect(self) as reader:
                yield from reader
            return
        plan = create_plan(self)
        for _, batch, rows, locate in _choose_rows(self, plan):
            if len(rows):
                chosen = batch.select(range(plan.num_changed_columns))
                yield plan.change(chosen if len(rows) == batch.num_rows else chosen.take(rows), self.schema, locate)

    def __getitem__(self, parts: slice) -> Dataset:
        if not isinstance(parts, slice):
            raise InvalidArgumentError(f"expected a slice of parts, such as [2:3], found {parts!r:.80}")
        return self.take_parts(range(len(self.parts))[parts])

    def read_all(self, filters: FiltersLike | None = None) -> Table:
        """Read all parts into a table, without copying those in shared memory of this host. Raises as `connect`.

        With filters such as ``[("a", ">", 5)]``, read the rows that match, as `Table.filter`; the filters may name
        columns of the parts that are not selected, or after steps the columns of `schema`.

        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
        >>> bs.dataset("visits.arrow").read_all([("user", ">", 1)])["user"].to_pylist()
        [2, 3]
        """
        if self.steps:
            return Table(self.schema, self if filters is None else self.filter(filters))
        if filters is None or self.column_indices is None:
            with connect(self) as reader:
                return reader.read_all(filters)
        others = set(parse_filters(filters, self.part_schema).column_indices) - set(self.column_indices)
        columns = (*self.column_indices, *sorted(others))
        with connect(self._replace(column_indices=columns)) as reader:
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
        ends = list(accumulate(self.part_rows))
        first, last = bisect_right(ends, start), bisect_left(ends, stop)
        if start == stop:
            return Table(self.schema)
        row = ends[first] - self.part_rows[first]
        return Table(self.schema, slice_batches(self[first : last + 1], start - row, stop - row))

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
        num_rows, part_rows = check_count("num_rows", num_rows), self._find_part_rows()
        if part_rows is None:  # rows are not counted for this
            return Table(self.schema, slice_batches(self, 0, num_rows))
        return self.read_rows(0, min(num_rows, sum(part_rows)))

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
        """Return the description as JSON, for `from_json` or another language, without `storage_options`. URIs may have
        secret tickets.

        `schema` is the Base64 text of an IPC stream without batches («IPC Streaming Format»), the schema of the parts;
        `columns` are the indices of the columns that are read, or null. `list_lengths` of a part, which may be absent,
        has pairs of a column's index and the lengths of its shortest and longest list at each level, outermost first.
        Raises `InvalidArgumentError` if there are steps, which only a pickle has.

        >>> import json
        >>> with bs.new_file("visits.arrow", {"user": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"user": [1, 2, 3]}))
        >>> json.loads(bs.dataset("visits.arrow").to_json())["parts"][0]["rows"]
        3
        """
        if self.steps:
            raise InvalidArgumentError(
                f"data set {self.name!r}: JSON has no steps ({self._describe_steps()}): pickle the data set instead"
            )
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
        header = (read_field(description, "format", str, *_ERROR), read_field(description, "version", int, *_ERROR))
        if header != (_FORMAT, _FORMAT_VERSION):
            raise InvalidDataError(f"data set: expected {_FORMAT!r}, version {_FORMAT_VERSION}, found {header}")
        schema = _decode_schema(read_field(description, "schema", str, *_ERROR))
        parts = [_parse_part(part, schema) for part in read_field(description, "parts", list, *_ERROR)]
        columns = description.get("columns")
        if columns is not None and not (isinstance(columns, list) and all(_is_index(n, len(schema)) for n in columns)):
            raise InvalidDataError(
                f"data set: columns: expected indices below {len(schema)} or null, found {columns!s:.80}"
            )
        return Dataset(read_field(description, "name", str, *_ERROR), schema, parts, columns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dataset):
            return NotImplemented
        return self._key == other._key

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.name, self.part_schema, self.column_indices, self.parts, self.steps, self.storage_options

    def __hash__(self) -> int:
        # Not of the parts, to which `PublishedFrame.recompute` gives other locations.
        return hash((self.name, self.column_indices, len(self.parts)))

    def __repr__(self) -> str:
        steps = f": {self._describe_steps()}" if self.steps else ""
        return f"<bowstring.datasets.Dataset {self.name}: {describe_size(self)}{steps}>\n{self.schema}"

    def _describe_steps(self) -> str:
        return ", ".join(step.describe() for step in self.steps)

    def _repr_html_(self) -> str:
        caption = (
            f"{self.name}: {_describe_rows(self)} × {format_count(len(self.schema), 'column')}, "
            f"{format_count(self.nbytes, 'byte')} in {format_count(len(self.parts), 'part')}"
        )
        rows = []
        for index, part in enumerate(self.parts[: MAX_HTML_ROWS + 1]):
            scheme = parse_scheme(sort_by_distance(part.locations)[0]) if part.locations else ""
            rows.append((str(index), part.host or "", f"{part.num_rows:,}", f"{part.nbytes:,}", scheme))
        return to_html_table(caption, ("part", "host", "rows", "bytes", "nearest location"), rows)


def _encode_schema(schema: Schema) -> str:
    message = frame_message(Encoder(schema).encode_schema_message().metadata)
    return base64.b64encode(message + END_OF_STREAM).decode("ascii")


def _decode_schema(text: str) -> Schema:
    try:
        return open_stream(base64.b64decode(text, validate=True)).schema
    except (ValueError, BowstringError) as error:
        raise InvalidDataError(f"data set: schema: expected the Base64 text of an IPC stream: {error}") from error


def _parse_part(part: Any, schema: Schema) -> DatasetPart:
    num_rows, nbytes = read_field(part, "rows", int, *_ERROR), read_field(part, "bytes", int, *_ERROR)
    locations = read_list(part, "locations", str, *_ERROR)
    host = part.get("host")
    if num_rows < 0 or nbytes < 0 or not isinstance(host, str | None):
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


def _is_index(value: object, length: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < length


def describe_size(dataset: Dataset) -> str:
    """Return the numbers of rows, bytes and parts as text."""
    size = f"{_describe_rows(dataset)}, {format_count(dataset.nbytes, 'byte')}"
    return f"{size} in {format_count(len(dataset.parts), 'part')}"


def _describe_rows(dataset: Dataset) -> str:
    """Return the number of rows, or at most how many there are if they are not counted yet."""
    part_rows = dataset._find_part_rows()
    if part_rows is not None:
        return format_count(sum(part_rows), "row")
    return f"up to {format_count(sum(part.num_rows for part in dataset.parts), 'row')}"


def describe_part(dataset: Dataset, part: int) -> str:
    """Return the data set and the index of a part, for errors."""
    return f"data set {dataset.name!r}: part {part}"


def create_plan(dataset: Dataset, columns: Sequence[int] | None = None) -> ReadPlan:
    """Return how to read columns of the rows, by their indices in the schema, by default all."""
    schema, indices = dataset.part_schema, dataset.column_indices
    return ReadPlan.create(
        dataset.steps,
        schema,
        range(len(schema)) if indices is None else indices,
        range(len(dataset.schema)) if columns is None else columns,
    )


def select_stored_columns(dataset: Dataset, plan: ReadPlan) -> Dataset:
    """Return the data set of the columns of the parts that a plan needs, as they are stored."""
    reads_all = plan.column_indices == tuple(range(len(dataset.part_schema)))
    return dataset._replace(column_indices=None if reads_all else plan.column_indices, steps=())


def _choose_rows(
    dataset: Dataset, plan: ReadPlan
) -> Iterator[tuple[int, RecordBatch, RowIndices, Callable[[int], str]]]:
    """Yield the batches of a plan: the part, the batch, its chosen rows, and a function that describes one of them."""
    chooser: tuple[int, RowChooser] | None = None
    with connect(select_stored_columns(dataset, plan)) as reader:
        for part, start, batch in reader.locate_batches(plan.candidate_filters):
            if chooser is None or chooser[0] != part:
                chooser = part, RowChooser(plan, part, describe_part(dataset, part))
            rows = chooser[1].choose(start, batch)
            yield part, batch, rows, partial(chooser[1].locate, start, rows)


def slice_batches(batches: Iterable[RecordBatch], start: int, stop: int) -> Iterator[RecordBatch]:
    """Yield the rows from index `start` to `stop`, without reading more batches."""
    row = 0
    for batch in batches:
        if row + batch.num_rows > start:
            offset = max(start - row, 0)
            yield batch.slice(offset, min(stop - row, batch.num_rows) - offset)
        row += batch.num_rows
        if row >= stop:
            return
