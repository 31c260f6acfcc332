"""The tables of Arrow's metadata as data: Schema, Message, File, Tensor and SparseTensor.

Names and the order of the slots are as in the schema files. Enumerations are numbers here; their meaning is in
`bowstring.datatypes.type_specs` (types) and `bowstring.ipc.metadata` (messages and schemas).
"""

from __future__ import annotations

import numpy as np

from bowstring.flatbuf.definitions import (
    ScalarSlot,
    String,
    StructSlot,
    SubTable,
    TableDefinition,
    TableVector,
    UnionSlot,
    Vector,
)
from bowstring.flatbuf.reader import Flatbuffer, FlatTable

FIELD_NODE = np.dtype([("length", "<i8"), ("null_count", "<i8")])
BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])
BLOCK = np.dtype([("offset", "<i8"), ("metaDataLength", "<i4"), ("padding", "<i4"), ("bodyLength", "<i8")])

HEADERS = ("NONE", "Schema", "DictionaryBatch", "RecordBatch", "Tensor", "SparseTensor")
"""The members of the union MessageHeader, in order."""

SPARSE_INDEXES = ("NONE", "SparseTensorIndexCOO", "SparseMatrixIndexCSX", "SparseTensorIndexCSF")
"""The members of the union SparseTensorIndex, in order."""

VERSIONS = ("V1", "V2", "V3", "V4", "V5")
"""The members of MetadataVersion, in order."""

_BOOL = ScalarSlot("?", False)
_BYTE, _UBYTE, _SHORT, _INT, _LONG = (ScalarSlot(format_) for format_ in "bBhiq")
_STRING, _BYTES = String(), String(is_utf8=False)
_INTS, _LONGS, _BUFFERS = Vector(np.dtype("<i4")), Vector(np.dtype("<i8")), Vector(BUFFER)
_BUFFER = StructSlot(BUFFER)
_KEY_VALUES = TableVector("KeyValue")

_TYPE_DEFINITIONS = (
    TableDefinition("Null"),
    TableDefinition("Int", bitWidth=_INT, is_signed=_BOOL),
    TableDefinition("FloatingPoint", precision=_SHORT),
    TableDefinition("Binary"),
    TableDefinition("Utf8"),
    TableDefinition("Bool"),
    TableDefinition("Decimal", precision=_INT, scale=_INT, bitWidth=ScalarSlot("i", 128)),
    TableDefinition("Date", unit=ScalarSlot("h", 1)),
    TableDefinition("Time", unit=ScalarSlot("h", 1), bitWidth=ScalarSlot("i", 32)),
    TableDefinition("Timestamp", unit=_SHORT, timezone=_STRING),
    TableDefinition("Interval", unit=_SHORT),
    TableDefinition("List"),
    TableDefinition("Struct_"),
    TableDefinition("Union", mode=_SHORT, typeIds=_INTS),
    TableDefinition("FixedSizeBinary", byteWidth=_INT),
    TableDefinition("FixedSizeList", listSize=_INT),
    TableDefinition("Map", keysSorted=_BOOL),
    TableDefinition("Duration", unit=ScalarSlot("h", 1)),
    TableDefinition("LargeBinary"),
    TableDefinition("LargeUtf8"),
    TableDefinition("LargeList"),
    TableDefinition("RunEndEncoded"),
    TableDefinition("BinaryView"),
    TableDefinition("Utf8View"),
    TableDefinition("ListView"),
    TableDefinition("LargeListView"),
)
TYPES = ("NONE", *(definition.name for definition in _TYPE_DEFINITIONS))
"""The members of the union Type, in order."""

_TYPE = UnionSlot(TYPES)

_DEFINITIONS = (
    # Schema.fbs
    *_TYPE_DEFINITIONS,
    TableDefinition("KeyValue", key=_BYTES, value=_BYTES),
    TableDefinition("DictionaryEncoding", id=_LONG, indexType=SubTable("Int"), isOrdered=_BOOL, dictionaryKind=_SHORT),
    TableDefinition(
        "Field",
        name=_STRING,
        nullable=_BOOL,
        type_type=_UBYTE,
        type=_TYPE,
        dictionary=SubTable("DictionaryEncoding"),
        children=TableVector("Field"),
        custom_metadata=_KEY_VALUES,
    ),
    TableDefinition(
        "Schema", endianness=_SHORT, fields=TableVector("Field"), custom_metadata=_KEY_VALUES, features=_LONGS
    ),
    # Message.fbs
    TableDefinition("BodyCompression", codec=_BYTE, method=_BYTE),
    TableDefinition(
        "RecordBatch",
        length=_LONG,
        nodes=Vector(FIELD_NODE),
        buffers=_BUFFERS,
        compression=SubTable("BodyCompression"),
        variadicBufferCounts=_LONGS,
    ),
    TableDefinition("DictionaryBatch", id=_LONG, data=SubTable("RecordBatch"), isDelta=_BOOL),
    TableDefinition(
        "Message",
        version=_SHORT,
        header_type=_UBYTE,
        header=UnionSlot(HEADERS),
        bodyLength=_LONG,
        custom_metadata=_KEY_VALUES,
    ),
    # Tensor.fbs
    TableDefinition("TensorDim", size=_LONG, name=_STRING),
    TableDefinition(
        "Tensor",
        required=("type", "shape", "data"),
        type_type=_UBYTE,
        type=_TYPE,
        shape=TableVector("TensorDim"),
        strides=_LONGS,
        data=_BUFFER,
    ),
    # SparseTensor.fbs
    TableDefinition(
        "SparseTensorIndexCOO",
        required=("indicesType", "indicesBuffer"),
        indicesType=SubTable("Int"),
        indicesStrides=_LONGS,
        indicesBuffer=_BUFFER,
        isCanonical=_BOOL,
    ),
    TableDefinition(
        "SparseMatrixIndexCSX",
        required=("indptrType", "indptrBuffer", "indicesType", "indicesBuffer"),
        compressedAxis=_SHORT,
        indptrType=SubTable("Int"),
        indptrBuffer=_BUFFER,
        indicesType=SubTable("Int"),
        indicesBuffer=_BUFFER,
    ),
    TableDefinition(
        "SparseTensorIndexCSF",
        required=("indptrType", "indptrBuffers", "indicesType", "indicesBuffers", "axisOrder"),
        indptrType=SubTable("Int"),
        indptrBuffers=_BUFFERS,
        indicesType=SubTable("Int"),
        indicesBuffers=_BUFFERS,
        axisOrder=_INTS,
    ),
    TableDefinition(
        "SparseTensor",
        required=("type", "shape", "sparseIndex", "data"),
        type_type=_UBYTE,
        type=_TYPE,
        shape=TableVector("TensorDim"),
        non_zero_length=_LONG,
        sparseIndex_type=_UBYTE,
        sparseIndex=UnionSlot(SPARSE_INDEXES),
        data=_BUFFER,
    ),
    # File.fbs
    TableDefinition(
        "Footer",
        version=_SHORT,
        schema=SubTable("Schema"),
        dictionaries=Vector(BLOCK),
        recordBatches=Vector(BLOCK),
        custom_metadata=_KEY_VALUES,
    ),
)

DEFINITIONS = {definition.name: definition for definition in _DEFINITIONS}
"""The definition of every table, by name."""


def read_root(name: str, flatbuffer: bytes, location: str, max_tables: int = 1_000_000) -> FlatTable:
    """Return the root table of a flatbuffer of Arrow metadata, with the definition `name`.

    `location` names the bytes in errors; `max_tables` is the limit of `Flatbuffer`. Nothing is copied. Raises
    `TruncatedError` or another `InvalidDataError` if the root is not a table.
    """
    return Flatbuffer(flatbuffer, DEFINITIONS, location, max_tables).get_root_table(name)
