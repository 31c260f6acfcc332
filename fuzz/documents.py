"""Changes that a hostile writer would make to an integration JSON document."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 8, 64, 127, 128, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63,
    2**64, -(2**63), 10**40, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", "0", "-1", "9223372036854775808", "x",
    "1e999", "é\ud800", "00", "AB", "A", "\0", [], {}, [0], [None], {"name": "int", "bitWidth": 8, "isSigned": True},
    {"name": "utf8"}, {"name": "struct"}, {"name": "list"}, {"name": "union", "mode": "DENSE", "typeIds": [0]},
)  # fmt: skip
_KEYS = (
    "name", "type", "nullable", "children", "dictionary", "metadata", "count", "VALIDITY", "OFFSET", "DATA", "TYPE_ID",
    "SIZE", "VIEWS", "VARIADIC_DATA_BUFFERS", "fields", "columns", "schema", "batches", "dictionaries", "id", "data",
    "indexType", "isOrdered", "bitWidth", "isSigned", "precision", "scale", "unit", "listSize", "keysSorted", "mode",
)  # fmt: skip


def changed_document(chance: random.Random, data: bytes) -> bytes | None:
    """The document with a few of its nodes changed, gone, doubled or moved; None where it is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = list(_places(document))
        if places:
            _change(chance, *chance.choice(places), places)
    try:
        return json.dumps(document).encode()
    except (ValueError, RecursionError):
        return None


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Each container below a node with each of its keys or positions."""
    found: list[tuple[Any, Any]] = []
    waiting = [node]
    while waiting:
        held = waiting.pop()
        if isinstance(held, dict | list):
            items = list(held.items() if isinstance(held, dict) else enumerate(held))
            found += [(held, key) for key, _ in items]
            waiting += [value for _, value in items]
    return found


def _change(chance: random.Random, held: Any, key: Any, places: list[tuple[Any, Any]]) -> None:
    pick = chance.randrange(7)
    value = held[key]
    if pick == 0:
        del held[key]
    elif pick == 1 and isinstance(held, list):
        held.insert(key, deepcopy(value))
    elif pick == 2:
        other, where = chance.choice(places)
        held[key] = deepcopy(other[where])
    elif pick == 3 and isinstance(value, int):
        held[key] = int(value) + chance.choice((-1, 1, 8, 1 << 32))
    elif pick == 4 and isinstance(held, dict):
        held[chance.choice(_KEYS)] = held.pop(key)
    elif pick == 5 and isinstance(value, list):
        held[key] = [*value, *deepcopy(value)] if len(value) < 200 else value[:1]
    else:
        held[key] = deepcopy(chance.choice(_VALUES))
