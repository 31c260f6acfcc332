"""A process that reads with pyarrow what comes through a pipe: `python -m fuzz.peer`.

A length and an Arrow stream or file come in; what goes out is a letter, a length, and the data as pyarrow writes it
("=") or what it says against it ("!"). It may crash: `fuzz.oracles.peers` starts another one.
"""

from __future__ import annotations

import io
import os
import resource
import struct
import sys

LENGTH = struct.Struct("<Q")
_MAX_MEMORY_BYTES = 6 << 30


def answer(data: bytes) -> tuple[bytes, bytes]:
    """What pyarrow makes of the data."""
    import pyarrow as pa

    try:
        opened = pa.ipc.open_file if data[:6] == b"ARROW1" else pa.ipc.open_stream
        table = opened(pa.BufferReader(data)).read_all()
        table.validate(full=True)
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return b"=", sink.getvalue()
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is pyarrow's
        return b"!", f"{type(error).__name__}: {error}".encode()


def main() -> None:
    """Answer until the pipe ends."""
    import pyarrow as pa

    assert pa.__version__
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    while head := source.read(LENGTH.size):
        status, said = answer(source.read(LENGTH.unpack(head)[0]))
        sink.write(status + LENGTH.pack(len(said)) + said)
        sink.flush()


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    main()
