"""Sources that are read once: a peek does not consume bytes."""

from __future__ import annotations

from io import BytesIO

from bowstring.io.stream_source import StreamSource


def test_peeked_bytes_are_read_again() -> None:
    source = StreamSource(BytesIO(b"0123456789").readinto, "digits")
    assert source.peek(4) == b"0123"
    assert source.peek(2) == b"01"
    assert source.peek(6) == b"012345"
    assert source.position == 0
    assert source.read(3) == b"012"
    assert source.position == 3
    assert source.read_buffer(5).to_bytes() == b"34567"
    assert source.peek(9) == b"89"
    assert source.read(9) == b"89"
    assert source.peek(1) == b""
    assert source.position == 10
