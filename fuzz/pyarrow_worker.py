"""A process that reads data from a pipe with pyarrow: `python -m fuzz.pyarrow_worker`.

A request is a length and an Arrow stream or file. A reply is a status byte, a length, and the data as pyarrow writes it
("=") or its error message ("!"). If the process crashes, `fuzz.oracles.pyarrow_peer` starts another one.
"""

from __future__ import annotations

import io
import os
import resource
import struct
import sys

LENGTH = struct.Struct("<Q")
_MAX_MEMORY_BYTES = 6 << 30


def read_and_rewrite(data: bytes) -> tuple[bytes, bytes]:
    """Read the data and write it again: a status byte, and the stream or the error message."""
    import pyarrow as pa

    try:
        open_reader = pa.ipc.open_file if data[:6] == b"ARROW1" else pa.ipc.open_stream
        table = open_reader(pa.BufferReader(data)).read_all()
        table.validate(full=True)
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return b"=", sink.getvalue()
    except Exception as error:  # noqa: BLE001 -- any error of pyarrow
        return b"!", f"{type(error).__name__}: {error}".encode()


def main() -> None:
    """Answer requests until the pipe is closed."""
    import pyarrow as pa

    assert pa.__version__
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    while prefix := source.read(LENGTH.size):
        status, reply = read_and_rewrite(source.read(LENGTH.unpack(prefix)[0]))
        sink.write(status + LENGTH.pack(len(reply)) + reply)
        sink.flush()


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    main()
