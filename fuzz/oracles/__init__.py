"""Oracles: check that any bytes are valid data or raise a Bowstring error, and that valid data works in every way.

Each kind of input has an oracle, a function that takes the bytes, returns whether they are valid, and raises if an
expectation fails. Where possible, an oracle compares the results of two independent implementations.
"""

from __future__ import annotations

from collections.abc import Callable

from fuzz.inputs import FuzzInput
from fuzz.oracles import (
    agents,
    batches,
    c_data,
    commands,
    frames,
    partial_reads,
    protocol,
    recordings,
    served,
    sessions,
    tensors,
    texts,
    tools,
)

ORACLES: dict[str, Callable[[bytes], bool]] = {
    "stream": batches.check_stream,
    "file": batches.check_file,
    "tensors": tensors.check_tensors,
    "json": texts.check_json,
    "format": texts.check_format,
    "uri": texts.check_uri,
    "tools": tools.check_tools,
    "partial": partial_reads.check_partial_reads,
    "command": commands.check_command,
    "c_data": c_data.check_c_data,
    "protocol": protocol.check_protocol,
    "extension": texts.check_extension,
    "statistics": tools.check_statistics,
    "served": served.check_served,
    "frames": frames.check_frames,
    "requests": sessions.check_requests,
    "replies": sessions.check_replies,
    "recording": recordings.check_recording,
    "ticket": texts.check_ticket,
    "agent_requests": agents.check_agent_requests,
    "agent_replies": agents.check_agent_replies,
}


def check(fuzz_input: FuzzInput) -> bool:
    """Run the oracle of an input; return whether the input is valid. Any exception is a finding."""
    return ORACLES[fuzz_input.kind](fuzz_input.data)
