"""Python's own UTF-8 decoder as a reference."""

from __future__ import annotations


def is_decodable(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
