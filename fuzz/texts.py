"""Changes that a hostile writer would make to format strings, addresses, and the names and parameters of extensions.

Each is words with signs between them. Words go, are doubled, become others that are known, and numbers become such as
hurt; a text begins or ends as another one that is known, so that the parameters of one come behind the name of another.
"""

from __future__ import annotations

import random
import re

from bowstring.interop.c_format import NESTED_FORMATS, SIMPLE_FORMATS
from fuzz.documents import changed_document
from fuzz.mutations import EXTENSIONS, PARAMETERS, number_near

FORMATS = (
    b"d:5,2", b"d:5,2,256", b"d:30,4,64", b"w:3", b"+w:2", b"+us:0,5", b"+ud:", b"tss:", b"tsm:+02:00", b"tsu:UTC",
    b"tsn:Europe/Paris", b"vu", b"+m", b"tDm",
)  # fmt: skip
"""Those that seeds are and mutations begin with: of every kind with parameters, and some without."""
URIS = (
    b"unix:@bowstring-1f?want_data=1&free_data=2&ticket=t", b"unix:/run/x?want_data=1&remote_handle=AAEC",
    b"tcp://[::1]:80/x?want_data=0&free_data=1", b"unix:%40%00a?want_data=18446744073709551615",
)  # fmt: skip
KNOWN = {"format": (*FORMATS, *SIMPLE_FORMATS.values(), *NESTED_FORMATS.values()), "uri": URIS, "extension": EXTENSIONS}
"""The kinds of input that this is for, and texts that are known of each."""
_BEGINNINGS = {"format": FORMATS, "uri": URIS}
_BEGUN_AGAIN = 0.25
"""So often what is changed is one of those, as they become few among what a long run keeps."""

_SIGNS = re.compile(rb"([^\w-]+)")
_NUMBER = re.compile(rb"-?\d{1,40}")


def changed_text(chance: random.Random, kind: str, data: bytes) -> bytes:
    """A text of one of the `KNOWN` kinds with one to three changes."""
    if kind == "extension":
        return _changed_extension(chance, data)
    if chance.random() < _BEGUN_AGAIN:
        data = chance.choice(_BEGINNINGS[kind])
    for _ in range(chance.choice((1, 1, 2, 3))):
        data = _changed(chance, data, KNOWN[kind])
    return data


def _changed_extension(chance: random.Random, data: bytes) -> bytes:
    """Of a name and its parameters one or the other."""
    name, _, parameters = data.partition(b"\0")
    pick = chance.randrange(6)
    if pick == 0:
        name = _changed(chance, name, EXTENSIONS)
    elif pick == 1:
        name = chance.choice(EXTENSIONS)
    elif pick == 2:
        parameters = chance.choice(PARAMETERS)
    else:
        document = changed_document(chance, parameters) if pick < 5 else None
        parameters = _changed(chance, parameters, PARAMETERS) if document is None else document
    return name + b"\0" + parameters


def _changed(chance: random.Random, data: bytes, known: tuple[bytes, ...]) -> bytes:
    parts, others = _SIGNS.split(data), _SIGNS.split(chance.choice(known))
    at, where = chance.randrange(len(parts)), chance.randrange(len(others))
    numbers = [place for place, part in enumerate(parts) if _NUMBER.fullmatch(part)]
    pick = chance.randrange(10)
    if pick < 4 and numbers:
        at = chance.choice(numbers)
        parts[at] = b"%d" % number_near(chance, int(parts[at]))
    elif pick == 4:
        del parts[at : at + chance.choice((1, 2))]
    elif pick == 5:
        parts[at:at] = parts[at : at + 2]
    elif pick == 6:
        parts[at] = others[where]
    elif pick == 7:
        parts[at:at] = others[where : where + chance.choice((1, 2))]
    elif pick == 8:
        parts[:at] = others[: where + 1]
    else:
        parts[at + 1 :] = others[where:]
    return b"".join(parts)
