"""The tables of Arrow's metadata as data: Schema, Message, File, Tensor and SparseTensor.

Names are those of the schema files. Enumerations are numbers here; `bowstring.ipc.metadata.schema` interprets them.
"""

from __future__ import annotations

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.flatbuf.reader import Child, Children, Inline, Message, Scalar, Slot, Structs, TableSpec, Text

FIELD_NODE = np.dtype([("length", "<i8"), ("null_count", "<i8")])
BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])
BLOCK = np.dtype([("offset", "<i8"), ("metaDataLength", "<i4"), ("padding", "<i4"), ("bodyLength", "<i8")])

_BOOL, _BYTE, _UBYTE, _SHORT, _INT, _LONG = (Scalar(f) for f in "?bBhiq")
_STRING, _PAIRS = Text(), Children("KeyValue")
_ONE_BUFFER, _BUFFERS = Inline(BUFFER), Structs(BUFFER)

SPECS = {
    spec.name: spec
    for spec in (
        # Schema.fbs
        *(
            TableSpec(name)
            for name in (
                "Null",
                "Struct_",
                "List",
                "LargeList",
                "ListView",
                "LargeListView",
                "Utf8",
                "Binary",
                "LargeUtf8",
                "LargeBinary",
                "Utf8View",
                "BinaryView",
                "Bool",
                "RunEndEncoded",
            )
        ),
        TableSpec("FixedSizeList", Slot("listSize", 0, _INT, 0)),
        TableSpec("Map", Slot("keysSorted", 0, _BOOL, False)),
        TableSpec("Union", Slot("mode", 0, _SHORT, 0), Slot("typeIds", 1, Structs(np.dtype("<i4")))),
        TableSpec("Int", Slot("bitWidth", 0, _INT, 0), Slot("is_signed", 1, _BOOL, False)),
        TableSpec("FloatingPoint", Slot("precision", 0, _SHORT, 0)),
        TableSpec("FixedSizeBinary", Slot("byteWidth", 0, _INT, 0)),
        TableSpec("Decimal", Slot("precision", 0, _INT, 0), Slot("scale", 1, _INT, 0), Slot("bitWidth", 2, _INT, 128)),
        TableSpec("Date", Slot("unit", 0, _SHORT, 1)),
        TableSpec("Time", Slot("unit", 0, _SHORT, 1), Slot("bitWidth", 1, _INT, 32)),
        TableSpec("Timestamp", Slot("unit", 0, _SHORT, 0), Slot("timezone", 1, _STRING)),
        TableSpec("Interval", Slot("unit", 0, _SHORT, 0)),
        TableSpec("Duration", Slot("unit", 0, _SHORT, 1)),
        TableSpec("KeyValue", Slot("key", 0, Text(raw=True)), Slot("value", 1, Text(raw=True))),
        TableSpec(
            "DictionaryEncoding",
            Slot("id", 0, _LONG, 0),
            Slot("indexType", 1, Child("Int")),
            Slot("isOrdered", 2, _BOOL, False),
            Slot("dictionaryKind", 3, _SHORT, 0),
        ),
        TableSpec(
            "Field",
            Slot("name", 0, _STRING),
            Slot("nullable", 1, _BOOL, False),
            Slot("type_type", 2, _UBYTE, 0),
            Slot("type", 3, Child()),
            Slot("dictionary", 4, Child("DictionaryEncoding")),
            Slot("children", 5, Children("Field")),
            Slot("custom_metadata", 6, _PAIRS),
        ),
        TableSpec(
            "Schema",
            Slot("endianness", 0, _SHORT, 0),
            Slot("fields", 1, Children("Field")),
            Slot("custom_metadata", 2, _PAIRS),
            Slot("features", 3, Structs(np.dtype("<i8"))),
        ),
        # Message.fbs
        TableSpec("BodyCompression", Slot("codec", 0, _BYTE, 0), Slot("method", 1, _BYTE, 0)),
        TableSpec(
            "RecordBatch",
            Slot("length", 0, _LONG, 0),
            Slot("nodes", 1, Structs(FIELD_NODE)),
            Slot("buffers", 2, Structs(BUFFER)),
            Slot("compression", 3, Child("BodyCompression")),
            Slot("variadicBufferCounts", 4, Structs(np.dtype("<i8"))),
        ),
        TableSpec(
            "DictionaryBatch",
            Slot("id", 0, _LONG, 0),
            Slot("data", 1, Child("RecordBatch")),
            Slot("isDelta", 2, _BOOL, False),
        ),
        TableSpec(
            "Message",
            Slot("version", 0, _SHORT, 0),
            Slot("header_type", 1, _UBYTE, 0),
            Slot("header", 2, Child()),
            Slot("bodyLength", 3, _LONG, 0),
            Slot("custom_metadata", 4, _PAIRS),
        ),
        # Tensor.fbs
        TableSpec("TensorDim", Slot("size", 0, _LONG, 0), Slot("name", 1, _STRING)),
        TableSpec(
            "Tensor",
            Slot("type_type", 0, _UBYTE, 0),
            Slot("type", 1, Child()),
            Slot("shape", 2, Children("TensorDim")),
            Slot("strides", 3, Structs(np.dtype("<i8"))),
            Slot("data", 4, _ONE_BUFFER),
        ),
        # SparseTensor.fbs
        TableSpec(
            "SparseTensorIndexCOO",
            Slot("indicesType", 0, Child("Int")),
            Slot("indicesStrides", 1, Structs(np.dtype("<i8"))),
            Slot("indicesBuffer", 2, _ONE_BUFFER),
            Slot("isCanonical", 3, _BOOL, False),
        ),
        TableSpec(
            "SparseMatrixIndexCSX",
            Slot("compressedAxis", 0, _SHORT, 0),
            Slot("indptrType", 1, Child("Int")),
            Slot("indptrBuffer", 2, _ONE_BUFFER),
            Slot("indicesType", 3, Child("Int")),
            Slot("indicesBuffer", 4, _ONE_BUFFER),
        ),
        TableSpec(
            "SparseTensorIndexCSF",
            Slot("indptrType", 0, Child("Int")),
            Slot("indptrBuffers", 1, _BUFFERS),
            Slot("indicesType", 2, Child("Int")),
            Slot("indicesBuffers", 3, _BUFFERS),
            Slot("axisOrder", 4, Structs(np.dtype("<i4"))),
        ),
        TableSpec(
            "SparseTensor",
            Slot("type_type", 0, _UBYTE, 0),
            Slot("type", 1, Child()),
            Slot("shape", 2, Children("TensorDim")),
            Slot("non_zero_length", 3, _LONG, 0),
            Slot("sparseIndex_type", 4, _UBYTE, 0),
            Slot("sparseIndex", 5, Child()),
            Slot("data", 6, _ONE_BUFFER),
        ),
        # File.fbs
        TableSpec(
            "Footer",
            Slot("version", 0, _SHORT, 0),
            Slot("schema", 1, Child("Schema")),
            Slot("dictionaries", 2, Structs(BLOCK)),
            Slot("recordBatches", 3, Structs(BLOCK)),
            Slot("custom_metadata", 4, _PAIRS),
        ),
    )
}
"""Every table, by name."""

TYPES = (
    "NONE",
    "Null",
    "Int",
    "FloatingPoint",
    "Binary",
    "Utf8",
    "Bool",
    "Decimal",
    "Date",
    "Time",
    "Timestamp",
    "Interval",
    "List",
    "Struct_",
    "Union",
    "FixedSizeBinary",
    "FixedSizeList",
    "Map",
    "Duration",
    "LargeBinary",
    "LargeUtf8",
    "LargeList",
    "RunEndEncoded",
    "BinaryView",
    "Utf8View",
    "ListView",
    "LargeListView",
)
"""The members of the union Type, in order."""

HEADERS = ("NONE", "Schema", "DictionaryBatch", "RecordBatch", "Tensor", "SparseTensor")
"""The members of the union MessageHeader, in order."""

SPARSE_INDEXES = ("NONE", "SparseTensorIndexCOO", "SparseMatrixIndexCSX", "SparseTensorIndexCSF")
"""The members of the union SparseTensorIndex, in order."""

VERSIONS = ("V1", "V2", "V3", "V4", "V5")
"""The members of MetadataVersion, in order."""


def body_length(metadata: bytes) -> int:
    """Return the length in bytes of the body of a message, given its flatbuffer: all that a transport needs from it.

    Raises `InvalidDataError` if the bytes are not a message or the length is negative.
    """
    length_bytes: int = Message(metadata, SPECS, "message header").root("Message")["bodyLength"]
    if length_bytes < 0:
        raise InvalidDataError(f"message header: expected a body length of 0 or more, found {length_bytes}")
    return length_bytes
