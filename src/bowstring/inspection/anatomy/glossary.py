"""What the parts of a file mean, in short sentences, each with the headings of the specification that it is from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_PAGE = "https://arrow.apache.org/docs/format/Columnar.html#"
_TENSOR = "Tensor (Multi-dimensional Array) Message Format"
_SPARSE_TENSOR = "SparseTensor Message Format"
_OTHER_PAGES = dict.fromkeys((_TENSOR, _SPARSE_TENSOR), "https://arrow.apache.org/docs/format/Other.html")


@dataclass(frozen=True, slots=True)
class Meaning:
    """A title, what the thing is for, and the headings under which the specification says so."""

    title: str
    text: str
    headings: tuple[str, ...]


def _m(title: str, text: str, *headings: str) -> Meaning:
    return Meaning(title, text, headings)


MEANINGS: dict[str, Meaning] = {
    # The whole, and its segments
    "file": _m(
        "An Arrow file",
        "A file is a stream between two magic strings, with a footer at the end. The footer repeats the schema and "
        "says where each batch begins and how long it is, so that any batch can be read without a look at the others.",
        "IPC File Format",
    ),
    "stream": _m(
        "An Arrow stream",
        "A stream is a row of messages: the schema first, then dictionary batches and record batches in the order in "
        "which they were written. Each message says how long it is, so a reader learns of the next one only when it "
        "has passed the one before.",
        "IPC Streaming Format",
    ),
    "start": _m(
        "The beginning of the file",
        "A file begins with the six letters ARROW1 and two empty bytes, so that the first message begins at a multiple "
        "of eight. What follows, up to the footer, is the same as a stream.",
        "IPC File Format",
    ),
    "schema": _m(
        "Schema message",
        "The schema names the columns and gives each a type, in order. It has no body: it says what the data is, and "
        "every batch that follows is read by it.",
        "Schema message",
        "Encapsulated message format",
    ),
    "dictionary batch": _m(
        "Dictionary batch",
        "The distinct values of a dictionary-encoded column, kept as a record batch with a single column. Record "
        "batches hold only indices into it. A batch marked as a delta adds values at the end; another one in a stream "
        "replaces what was there.",
        "Dictionary Messages",
        "Dictionary-encoded Layout",
    ),
    "record batch": _m(
        "Record batch",
        "Some rows of all columns. The header gives the length and null count of every field, and the place and length "
        "of every buffer; the body is those buffers end to end. So arrays are made by pointing into the body, and no "
        "byte of it has to be copied.",
        "RecordBatch message",
    ),
    "tensor": _m(
        "Tensor message",
        "An array of numbers of any number of dimensions. The header has its type, shape and strides; the body is a "
        "single buffer with the values.",
        _TENSOR,
    ),
    "sparse tensor": _m(
        "Sparse tensor message",
        "A tensor of which only the values that are not zero are stored, and an index that says where each of them is.",
        _SPARSE_TENSOR,
    ),
    "end of stream": _m(
        "End of stream",
        "A message of length zero says that nothing follows. A stream may leave it out and just end.",
        "IPC Streaming Format",
    ),
    "footer": _m(
        "Footer",
        "A copy of the schema, and for each batch its place in the file and the lengths of its metadata and its body. "
        "A reader of the file begins here, from the end: magic string, length of the footer, footer.",
        "IPC File Format",
    ),
    "unclaimed": _m(
        "Bytes that nothing refers to",
        "No message reaches here and the footer does not mention these bytes. Readers pass over them.",
        "IPC File Format",
    ),
    "unread": _m(
        "Bytes that could not be read",
        "Something is wrong here or before, and where the next message begins is not known. The report of damage says "
        "what was expected and what was found.",
        "Encapsulated message format",
    ),
    "left out": _m(
        "Left out",
        "More messages follow than were asked for. They have not been looked at, and are drawn as one piece.",
        "IPC Streaming Format",
    ),
    # What is in a message
    "metadata group": _m(
        "Message header",
        "What comes before the body: in the current form a continuation marker, then the length of the metadata, the "
        "metadata itself as a flatbuffer, and padding up to a multiple of eight.",
        "Encapsulated message format",
    ),
    "column": _m(
        "A column of the batch",
        "The buffers of one column, in the order in which a walk over the schema meets its fields: parents before "
        "children, depth first. Which buffers there are follows from the type alone.",
        "RecordBatch message",
        "Buffer Listing for Each Layout",
    ),
    "dictionary values": _m(
        "The values of a dictionary",
        "They lie like a column of the dictionary's value type. The position of a value is the index by which record "
        "batches refer to it.",
        "Dictionary Messages",
    ),
    "body": _m(
        "Body",
        "The buffers of this message lie here. This page does not tell them apart.",
        "RecordBatch message",
    ),
    "magic": _m(
        "Magic string",
        "ARROW1: by these letters at both ends a file is known. Where they are missing at the end, the file has been "
        "cut off.",
        "IPC File Format",
    ),
    "continuation": _m(
        "Continuation marker",
        "Four bytes of 0xFF: a message follows. Format version 0.15 brought them in; older messages begin with the "
        "length at once.",
        "Encapsulated message format",
    ),
    "length": _m(
        "Length of the metadata",
        "A 32-bit little-endian number: how many bytes of metadata follow, padding included. Zero is the end of the "
        "stream.",
        "Encapsulated message format",
    ),
    "metadata": _m(
        "Metadata",
        "A flatbuffer of the type Message: metadata version, what kind of message this is with all its numbers, the "
        "length of the body, and custom metadata.",
        "Encapsulated message format",
    ),
    "footer metadata": _m(
        "The footer's flatbuffer",
        "A flatbuffer of the type Footer: metadata version, schema, a block for each dictionary batch and each record "
        "batch (offset, length of the metadata, length of the body), and custom metadata.",
        "IPC File Format",
    ),
    "footer length": _m(
        "Length of the footer",
        "A 32-bit little-endian number. A reader of the file goes back by so many bytes to find the footer.",
        "IPC File Format",
    ),
    "padding start": _m(
        "Padding",
        "Two empty bytes behind the magic string, up to a multiple of eight.",
        "IPC File Format",
    ),
    "padding metadata": _m(
        "Padding behind metadata",
        "Empty bytes, so that what follows begins at a multiple of eight (some writers: of 64). The length of the "
        "metadata counts them.",
        "Encapsulated message format",
    ),
    "padding body": _m(
        "Padding behind a buffer",
        "Every buffer begins at a multiple of eight bytes, 64 recommended, so that processors read it at full speed. "
        "What stands in the padding does not matter; the length of the buffer does not count it.",
        "Buffer Alignment and Padding",
    ),
    # Buffers, by role
    "validity": _m(
        "Validity bitmap",
        "One bit for each slot, the least significant bit of a byte first: 1 is a value, 0 is null. Where nothing is "
        "null it may be left out and takes no byte.",
        "Validity bitmaps",
    ),
    "validity of metadata version 4": _m(
        "Validity bitmap of metadata version 4",
        "Up to metadata version 4 unions and run-end encoded arrays had a validity bitmap of their own. Today their "
        "children alone know which slots are null.",
        "Union Layout",
    ),
    "offsets": _m(
        "Offsets",
        "One number more than there are slots: the value of slot j reaches from offset j up to offset j + 1 in the "
        "bytes that follow. They never fall; where two are equal, the value is empty or null.",
        "Variable-size Binary Layout",
    ),
    "offsets of a list": _m(
        "Offsets of a list",
        "One number more than there are slots: list j takes the slots of the child from offset j up to offset j + 1. "
        "They never fall; where two are equal, the list is empty or null.",
        "List Layout",
    ),
    "offsets of a list view": _m(
        "Offsets of a list view",
        "Where each slot begins in the child. The sizes beside it say how far it reaches, so slots may lie in any "
        "order and overlap.",
        "ListView Layout",
    ),
    "offsets of a union": _m(
        "Offsets of a dense union",
        "For each slot its position in the child that its type id names.",
        "Dense Union",
    ),
    "sizes": _m(
        "Sizes",
        "How many slots of the child each list takes, from its offset on.",
        "ListView Layout",
    ),
    "type ids": _m(
        "Type ids",
        "One byte for each slot: which of the union's types it is of. A union has no validity bitmap of its own.",
        "Union Layout",
    ),
    "views": _m(
        "Views",
        "Sixteen bytes for each slot, the length first. Values of up to twelve bytes follow at once; longer ones have "
        "their first four bytes here, and the number of a data buffer with the place in it.",
        "Variable-size Binary View Layout",
    ),
    "data of views": _m(
        "Data of views",
        "The bytes of the values that are too long for their views. A field may have any number of such buffers; the "
        "header says how many.",
        "Variable-size Binary View Layout",
        "Variadic buffers",
    ),
    "indices": _m(
        "Indices into the dictionary",
        "For each slot the position of its value in the dictionary, which came in a dictionary batch of its own.",
        "Dictionary-encoded Layout",
    ),
    "data": _m(
        "Values",
        "The values one after the other, all of the same width. A slot that is null has room here, too; what stands in "
        "it means nothing.",
        "Fixed-size Primitive Layout",
    ),
    "data bits": _m(
        "Values, a bit each",
        "Booleans are packed eight to a byte, the least significant bit first.",
        "Fixed-size Primitive Layout",
    ),
    "data bytes": _m(
        "Bytes of the values",
        "The values end to end, without anything between them. Where each begins and ends is in the offsets.",
        "Variable-size Binary Layout",
    ),
    "values": _m("Values of the tensor", "The numbers, at the strides that the header gives.", _TENSOR),
    "index pointers": _m(
        "Index pointers", "Where the indices of each row (or column, or node) begin and end.", _SPARSE_TENSOR
    ),
    "tensor indices": _m("Indices", "Where in the tensor each stored value is.", _SPARSE_TENSOR),
    "buffer": _m(
        "A buffer",
        "The header says where it is and how long; what it means can't be told, as the header does not fit the schema.",
        "RecordBatch message",
    ),
    "compressed": _m(
        "Compressed",
        "A compressed buffer begins with the length that comes out of it, a 64-bit little-endian number; -1 says that "
        "it was not worth it and the bytes follow as they are.",
        "RecordBatch message",
    ),
}


def to_json_data() -> dict[str, Any]:
    """The meanings for the page: title, text, and of each heading its name and where to read on."""
    return {
        key: [meaning.title, meaning.text, [[heading, link_to(heading)] for heading in meaning.headings]]
        for key, meaning in MEANINGS.items()
    }


def link_to(heading: str) -> str:
    """The address of a heading on the pages of the specification."""
    if heading in _OTHER_PAGES:
        return _OTHER_PAGES[heading]
    anchor = "".join(c if c.isalnum() else "-" for c in heading.lower()).strip("-")
    return _PAGE + anchor
