"""The data sets of a server by name, and the memory that they are in."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from bowstring.dissociated.messages import PackedBody
from bowstring.dissociated.server import EncodedStream
from bowstring.errors import InvalidArgumentError, NotFoundError, ResourceError
from bowstring.memory.forks import ProcessLock
from bowstring.memory.region import Region
from bowstring.redaction import redact
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.signed_tickets import TicketSigner
from bowstring.sharing.stored_parts import BodyReader, RegionPart
from bowstring.transports.base import PeerIdentity

# Data sets of more are sent as addresses, whatever their size: adding up the bytes of all would cost each request.
_MAX_INLINE_MESSAGES = 64
# Copying so few bytes costs less than leasing them; the copies are all the memory that the cache takes.
_MAX_ENCODED_BYTES = 1 << 16
# Some 200 bytes each, for errors that say why a data set is gone; the oldest are forgotten.
_MAX_REMOVAL_REASONS = 100_000


class ServedDatasets:
    """The data sets. Any thread may change them; clients read them in the thread of the server's loop."""

    def __init__(self, options: ServerOptions, signer: TicketSigner | None) -> None:
        self._options = options
        self._signer = signer
        # Never locked together with `ServedClients.lock`.
        self.lock = ProcessLock()
        self._parts: dict[str, tuple[RegionPart, ...]] = {}
        self._removal_reasons: dict[str, str] = {}
        self._regions: Counter[Region] = Counter()
        # By the parts, which are compared by identity: a name may stand for other parts after `replace`.
        self._encoded_streams: dict[tuple[RegionPart, ...], EncodedStream] = {}

    @property
    def names(self) -> list[str]:
        """The names of the data sets."""
        with self.lock.of_this_process:
            return list(self._parts)

    def stats(self) -> dict[str, int]:
        """Return the fields of `ServerStats` about data sets."""
        with self.lock.of_this_process:
            return {
                "num_datasets": len(self._parts),
                "num_regions": len(self._regions),
                "region_bytes": sum(region.size_bytes for region in self._regions),
            }

    def add(self, name: str, parts: tuple[RegionPart, ...]) -> None:
        """Add a data set. Raises `InvalidArgumentError` if the name exists."""
        with self.lock.of_this_process:
            if name in self._parts:
                raise InvalidArgumentError(f"the server has a data set {name!r} already")
            self._set_parts(name, parts)

    def replace(self, name: str, parts: tuple[RegionPart, ...], removal_reason: str | None = None) -> None:
        """Replace the memory of a data set; without any parts, remove it. Raises `NotFoundError`."""
        with self.lock.of_this_process:
            if name not in self._parts:
                raise NotFoundError(f"the server has no data set {name!r}")
            self._set_parts(name, parts)
            if removal_reason is not None:
                self._removal_reasons[name] = removal_reason
                if len(self._removal_reasons) > _MAX_REMOVAL_REASONS:
                    del self._removal_reasons[next(iter(self._removal_reasons))]

    def clear(self) -> None:
        """Free the memory that no client uses."""
        with self.lock.of_this_process:
            self._parts.clear()
            self._encoded_streams.clear()
            self._regions.clear()

    def find_parts(self, ticket: str, peer: PeerIdentity | None = None) -> tuple[RegionPart, ...]:
        """Return the parts of a data set. Raises `AccessDeniedError`, `NotFoundError`, and errors of replaced files."""
        name = ticket if self._signer is None else self._signer.verify(ticket, time.time())
        self._options.check_access(name, peer)
        with self.lock.of_this_process:
            parts = self._parts.get(name)
            if parts is None:
                reason = self._removal_reasons.get(name)
                raise NotFoundError(reason or f"the server has no data set {redact(name)[:200]!r}")
        for part in parts:
            part.region.check_backing_file()
        return parts

    def find_encoded_stream(self, parts: Sequence[RegionPart]) -> EncodedStream | None:
        """Return the messages of a small data set with these parts, if it is in sealed memory."""
        return self._encoded_streams.get(tuple(parts))

    def is_sent_inline(self, parts: Sequence[RegionPart]) -> bool:
        """Whether sending bytes takes less than mapping regions and freeing addresses."""
        if any(part.region.is_on_device for part in parts):
            return False
        nbytes = sum(message.body_bytes for part in parts for message in part.messages[:_MAX_INLINE_MESSAGES])
        is_short = sum(len(part.messages) for part in parts) <= _MAX_INLINE_MESSAGES
        return is_short and nbytes <= self._options.inline_bytes

    def is_served(self, region: Region) -> bool:
        """Whether a data set has this region."""
        with self.lock.of_this_process:
            return region in self._regions

    def _set_parts(self, name: str, parts: tuple[RegionPart, ...]) -> None:
        previous = self._parts.pop(name, ())
        self._encoded_streams.pop(previous, None)
        if parts:
            self._parts[name] = parts
            self._cache_encoded_stream(parts)
        self._regions.update(part.region for part in parts)
        for part in previous:
            self._regions[part.region] -= 1
            if not self._regions[part.region]:
                del self._regions[part.region]

    def _cache_encoded_stream(self, parts: tuple[RegionPart, ...]) -> None:
        """Encode the messages of a small data set once, instead of for each request. Files may change meanwhile."""
        if not self.is_sent_inline(parts) or not all(part.region.is_sealed for part in parts):
            return
        batches = ((message, BodyReader(part.region).read(message)) for part in parts for message in part.messages)
        bodies = ((message.metadata, PackedBody.from_parts(body)) for message, body in batches)
        with suppress(ResourceError):  # as many mappings as the system allows: then each request reads the bodies
            stream = EncodedStream.encode(parts[0].schema, bodies)
            if stream.length_bytes <= _MAX_ENCODED_BYTES:
                self._encoded_streams[parts] = stream
