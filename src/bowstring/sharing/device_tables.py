"""Tables whose columns are in memory of a GPU, to be served over `cuda+unix`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema
from bowstring.datatypes.types import Struct
from bowstring.dissociated.messages import AddressBody
from bowstring.errors import InvalidArgumentError, UnsupportedTypeError
from bowstring.interop.device_arrays import device_of, import_device_array, import_field_and_device_array
from bowstring.ipc.metadata.header import BatchHeaderBuilder, BatchHeaderValues
from bowstring.ipc.stream import Encoder
from bowstring.layouts.base import ArrayData
from bowstring.memory.buffer import ALIGNMENT_BYTES, Buffer
from bowstring.memory.device import Device, DeviceRegion
from bowstring.sharing.stored_parts import RegionMessage, RegionPart


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBatch:
    """A batch in memory of a device."""

    num_rows: int
    columns: Sequence[ArrayData]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class DeviceTable:
    """A table in memory of a device; created by `device_table`."""

    schema: Schema
    batches: Sequence[DeviceBatch]
    device: Device

    def to_parts(self, name: str) -> list[RegionPart]:
        """Return the data sets for a server, one for each batch, so that a server exports one at a time.

        Nothing is copied. Raises `UnsupportedTypeError` for a column with a dictionary, and `InvalidArgumentError` for
        slices and unknown null counts.
        """
        return [self._to_part(batch, name) for batch in self.batches]

    def _to_part(self, batch: DeviceBatch, name: str) -> RegionPart:
        nodes: list[tuple[int, int]] = []
        buffers: list[Buffer | None] = []
        for field, column in zip(self.schema.fields, batch.columns, strict=True):
            _append_nodes_and_buffers(field.name, column, nodes, buffers)
        # The offsets of a body that does not exist yet: the region copies the buffers there when a client reads it.
        sizes = np.array([0 if buffer is None else buffer.size for buffer in buffers], np.int64)
        ends = np.cumsum((sizes + ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES)
        starts, body_bytes = np.concatenate(([0], ends[:-1])), int(ends[-1]) if len(ends) else 0
        spans = np.stack((starts[: len(sizes)], sizes), axis=1)
        header = BatchHeaderValues(
            batch.num_rows, np.array(nodes, np.int64).reshape(-1, 2), spans, np.zeros(0, np.int64)
        )
        parts = [(start, b) for start, b in zip(starts.tolist(), buffers, strict=False) if b is not None and b.size]
        region = DeviceRegion(self.device, parts, body_bytes, name)
        body = AddressBody.from_arrays(np.where(sizes > 0, spans[:, 0], body_bytes), sizes)
        message = RegionMessage(BatchHeaderBuilder().build(header, body_bytes), body, 0, body_bytes)
        schema = Encoder(self.schema).encode_schema_message().metadata
        return RegionPart(region, schema, (message,), batch.num_rows, 0, body_bytes)


def device_table(source: object) -> DeviceTable:
    """Return a table of arrays in memory of a GPU, without copying, for `Server.add` and `serve`.

    `source` is a mapping of column names to arrays of CuPy, PyTorch, cuDF or others, with `__arrow_c_device_array__`,
    `__dlpack__` or `__cuda_array_interface__`; a table with `__arrow_c_device_array__`, such as a cuDF data frame; or a
    list or another iterable of these, one for each batch. A server copies a batch on the device when a client reads it:
    do not change the columns while it is served.

    Raises `InvalidArgumentError` for columns of different lengths, batches with different schemas, or memory of several
    devices, and as `import_device_array`.
    """
    is_batch = isinstance(source, Mapping) or hasattr(source, "__arrow_c_device_array__")
    sources = [source] if is_batch or not isinstance(source, Iterable) else list(source)
    schema: Schema | None = None
    batches: list[DeviceBatch] = []
    devices: set[Device] = set()
    for batch_source in sources:
        batch_schema, batch, device = _import_batch(batch_source)
        if schema is not None and batch_schema != schema:
            raise InvalidArgumentError(
                f"device_table: batch {len(batches)}: expected {schema!r}, found {batch_schema!r}"
            )
        schema = batch_schema
        batches.append(batch)
        devices.add(device)
    if schema is None or len(devices) != 1:
        device_names = ", ".join(sorted(map(str, devices))) or "no batches"
        raise InvalidArgumentError(f"device_table: expected batches on one device, found {device_names}")
    return DeviceTable(schema, batches, devices.pop())


def _import_batch(source: object) -> tuple[Schema, DeviceBatch, Device]:
    """Import the columns of a batch. Raises as `device_table`."""
    if isinstance(source, Mapping):
        columns = [import_device_array(column) for column in source.values()]
        schema = Schema(tuple(Field(name, column.type) for name, column in zip(source, columns, strict=True)))
    else:
        field, array = import_field_and_device_array(source)
        if not isinstance(field.type, Struct) or array.null_count or array.offset:
            raise InvalidArgumentError(f"device_table: expected a struct without nulls and offset, found {field.type}")
        columns, schema = list(array.children), Schema(field.type.fields)
    lengths = {column.length for column in columns}
    devices = {device for column in columns if (device := device_of([column])) is not None}
    if len(lengths) != 1 or len(devices) != 1:
        descriptions = ", ".join(f"{column.length} rows on {device_of([column])}" for column in columns) or "none"
        raise InvalidArgumentError(f"device_table: expected columns of one length on one device, found {descriptions}")
    return schema, DeviceBatch(lengths.pop(), columns), devices.pop()


def _append_nodes_and_buffers(
    name: str, array: ArrayData, nodes: list[tuple[int, int]], buffers: list[Buffer | None]
) -> None:
    """Add the nodes and buffers of an array, depth first."""
    if array.dictionary is not None:
        raise UnsupportedTypeError(f"column {name!r}: {array.type} in memory of a device: decode the dictionary first")
    null_count = array.known_null_count if array.own_buffers and array.own_buffers[0] is not None else 0
    null_count = null_count if array.layout.has_validity else array.length if not array.layout.buffers else 0
    if array.offset or null_count < 0:
        raise InvalidArgumentError(
            f"column {name!r}: a slice, or without a null count, in memory of a device: copy it first"
        )
    nodes.append((array.length, null_count))
    buffers.extend(array.own_buffers)
    for child in array.children:
        _append_nodes_and_buffers(name, child, nodes, buffers)
