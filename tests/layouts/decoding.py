"""What Python says of bytes that may be UTF-8."""

from __future__ import annotations


def decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
