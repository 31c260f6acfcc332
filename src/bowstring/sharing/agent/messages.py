"""The messages between host agents and their clients: a line of JSON and, for one of a data set, its description.

The description is the compressed JSON of a `Dataset`, which only readers decode. It follows the line as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bowstring.errors import ProtocolError


def encode_message(fields: Mapping[str, Any]) -> bytes:
    """Encode JSON values by name; `description` are bytes."""
    line = json.dumps({name: value for name, value in fields.items() if name != "description"})
    return b"%b\n%b" % (line.encode(), fields.get("description", b""))


def decode_message(data: bytes | memoryview, subject: str) -> dict[str, Any]:
    """Decode a message. Raises `ProtocolError` about `subject`."""
    line, _, description = bytes(data).partition(b"\n")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise ProtocolError(f"{subject}: expected a JSON object, found {line[:80]!r}")
    fields.pop("description", None)
    return {**fields, "description": description} if description else fields
