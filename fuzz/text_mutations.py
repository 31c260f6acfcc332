"""Mutations of format strings, URIs, and the names and parameters of extension types.

A text is split at its separators. Parts are deleted, repeated or replaced with parts of known texts; numbers become
extreme ones. The start or end of a text is replaced with that of a known one, which combines the name of one with the
parameters of another.
"""

from __future__ import annotations

import random
import re

from bowstring.datatypes.c_format import NESTED_SPECS, SIMPLE_TYPES_BY_FORMAT
from fuzz.json_mutations import mutate_json
from fuzz.mutations import EXTENSIONS, PARAMETERS, mutate_number

FORMATS = (
    b"d:5,2", b"d:5,2,256", b"d:30,4,64", b"w:3", b"+w:2", b"+us:0,5", b"+ud:", b"tss:", b"tsm:+02:00", b"tsu:UTC",
    b"tsn:Europe/Paris", b"vu", b"+m", b"tDm",
)  # fmt: skip
"""The seeds: every kind of format string with parameters, and some without."""
URIS = (
    b"unix:@bowstring-1f?want_data=1&free_data=2&ticket=t", b"unix:/run/x?want_data=1&remote_handle=AAEC",
    b"tcp://[::1]:80/x?want_data=0&free_data=1", b"unix:%40%00a?want_data=18446744073709551615",
    b"tcp://localhost:1?want_data=1&error_data=1099511627779&max_tickets=256&ticket=t",
)  # fmt: skip
TICKETS = (
    b"numbers", b"numbers\0packed", b"\0a\0b\0", b"\0a\0b\0\0packed", b"not-found\nno data set", b"busy\n",
)  # fmt: skip
KNOWN_TEXTS = {
    "format": (*FORMATS, *SIMPLE_TYPES_BY_FORMAT, *NESTED_SPECS),
    "uri": URIS,
    "ticket": TICKETS,
    "extension": EXTENSIONS,
}
"""The known texts of each kind of input."""
_STARTING_TEXTS = {"format": FORMATS, "uri": URIS, "ticket": TICKETS}
_RESTART_PROBABILITY = 0.25
"""How often a mutation starts from one of these texts, which become rare in the corpus of a long run."""

_SEPARATORS = re.compile(rb"([^\w-]+)")
_NUMBER = re.compile(rb"-?\d{1,40}")


def mutate_text(rng: random.Random, kind: str, data: bytes) -> bytes:
    """The text with one to three changes; `kind` is a key of `KNOWN_TEXTS`."""
    if kind == "extension":
        return _mutate_extension(rng, data)
    if rng.random() < _RESTART_PROBABILITY:
        data = rng.choice(_STARTING_TEXTS[kind])
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = _mutate(rng, data, KNOWN_TEXTS[kind])
    return data


def _mutate_extension(rng: random.Random, data: bytes) -> bytes:
    """Change either the name or the parameters."""
    name, _, parameters = data.partition(b"\0")
    pick = rng.randrange(6)
    if pick == 0:
        name = _mutate(rng, name, EXTENSIONS)
    elif pick == 1:
        name = rng.choice(EXTENSIONS)
    elif pick == 2:
        parameters = rng.choice(PARAMETERS)
    else:
        document = mutate_json(rng, parameters) if pick < 5 else None
        parameters = _mutate(rng, parameters, PARAMETERS) if document is None else document
    return name + b"\0" + parameters


def _mutate(rng: random.Random, data: bytes, texts: tuple[bytes, ...]) -> bytes:
    parts, other_parts = _SEPARATORS.split(data), _SEPARATORS.split(rng.choice(texts))
    index, other_index = rng.randrange(len(parts)), rng.randrange(len(other_parts))
    numbers = [number_index for number_index, part in enumerate(parts) if _NUMBER.fullmatch(part)]
    pick = rng.randrange(10)
    if pick < 4 and numbers:
        index = rng.choice(numbers)
        parts[index] = b"%d" % mutate_number(rng, int(parts[index]))
    elif pick == 4:
        del parts[index : index + rng.choice((1, 2))]
    elif pick == 5:
        parts[index:index] = parts[index : index + 2]
    elif pick == 6:
        parts[index] = other_parts[other_index]
    elif pick == 7:
        parts[index:index] = other_parts[other_index : other_index + rng.choice((1, 2))]
    elif pick == 8:
        parts[:index] = other_parts[: other_index + 1]
    else:
        parts[index + 1 :] = other_parts[other_index:]
    return b"".join(parts)
