"""Mutations of integration JSON documents."""

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


def mutate_json(rng: random.Random, data: bytes) -> bytes | None:
    """The document with one to three nodes changed, deleted, repeated or moved; None if the data is not JSON."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        locations = list(_find_containers(document))
        if locations:
            _change(rng, *rng.choice(locations), locations)
    try:
        return json.dumps(document).encode()
    except (ValueError, RecursionError):
        return None


def _find_containers(node: Any) -> list[tuple[Any, Any]]:
    """Each container below a node with each of its keys or indices."""
    locations: list[tuple[Any, Any]] = []
    pending = [node]
    while pending:
        container = pending.pop()
        if isinstance(container, dict | list):
            items = list(container.items() if isinstance(container, dict) else enumerate(container))
            locations += [(container, key) for key, _ in items]
            pending += [value for _, value in items]
    return locations


def _change(rng: random.Random, container: Any, key: Any, locations: list[tuple[Any, Any]]) -> None:
    pick = rng.randrange(7)
    value = container[key]
    if pick == 0:
        del container[key]
    elif pick == 1 and isinstance(container, list):
        container.insert(key, deepcopy(value))
    elif pick == 2:
        other_container, other_key = rng.choice(locations)
        container[key] = deepcopy(other_container[other_key])
    elif pick == 3 and isinstance(value, int):
        container[key] = int(value) + rng.choice((-1, 1, 8, 1 << 32))
    elif pick == 4 and isinstance(container, dict):
        container[rng.choice(_KEYS)] = container.pop(key)
    elif pick == 5 and isinstance(value, list):
        container[key] = [*value, *deepcopy(value)] if len(value) < 200 else value[:1]
    else:
        container[key] = deepcopy(rng.choice(_VALUES))
