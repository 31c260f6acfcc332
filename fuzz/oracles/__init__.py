"""What has to hold of any bytes: sound data or an error of ours; and sound data is whole in every way.

Each kind of input has its oracle, a function that takes the bytes, says whether they were sound, and raises where what
should not have happened did. None believes what another part of Bowstring says without a second opinion, where there is
one to be had.
"""

from __future__ import annotations

from collections.abc import Callable

from fuzz.inputs import Input
from fuzz.oracles import batches, capsules, commands, pieces, protocol, served, tensors, texts, upkeep

ORACLES: dict[str, Callable[[bytes], bool]] = {
    "stream": batches.check_stream,
    "file": batches.check_file,
    "tensors": tensors.check_tensors,
    "json": texts.check_json,
    "format": texts.check_format,
    "uri": texts.check_uri,
    "upkeep": upkeep.check_upkeep,
    "pieces": pieces.check_pieces,
    "command": commands.check_command,
    "capsule": capsules.check_capsule,
    "protocol": protocol.check_protocol,
    "extension": texts.check_extension,
    "statistics": upkeep.check_statistics,
    "served": served.check_served,
}


def check(given: Input) -> bool:
    """Give the bytes to the reader of their kind; whether they were sound. Raises what should not have happened."""
    return ORACLES[given.kind](given.data)
