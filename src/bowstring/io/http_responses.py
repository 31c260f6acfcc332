"""Limit the bytes that fsspec's HTTP file system reads of a response: by itself, it reads all that a server sends."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from bowstring.errors import ResourceError

MAX_UNREQUESTED_BYTES = 16 << 20
"""Maximum size of a response to a request without a range, such as a listing of a folder."""
_MAX_ERROR_BYTES = 1 << 16  # of the body of a reply that is an error, for its message
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
# Memory grows with the bytes that arrive, whatever length the server announced.
_CHUNK_BYTES = 1 << 20


def limit_responses(file_system: Any) -> Any:
    """Return an HTTP file system with the same options that reads no more of a response than was requested.

    Other file systems are returned as they are; one that caches files of a web server reads through such a file system.
    """
    inner = getattr(file_system, "fs", None)
    if hasattr(inner, "client_kwargs"):
        file_system.fs = limit_responses(inner)
    if "http" not in file_system.protocol or "response_class" in file_system.client_kwargs:
        return file_system
    client_options = {**file_system.client_kwargs, "response_class": _limited_response_class()}
    options = {**file_system.storage_options, "client_kwargs": client_options}
    return type(file_system)(*file_system.storage_args, **options)


@cache
def _limited_response_class() -> type[Any]:
    """The class of aiohttp's responses; defined here, because aiohttp is optional."""
    from aiohttp import ClientResponse

    class LimitedResponse(ClientResponse):
        async def read(self) -> bytes:
            if self._body is None:
                self._body = await self._read_requested()
            return self._body

        async def _read_requested(self) -> bytes:
            """The body as far as it was requested. Whatever follows stays unread, and ends the connection.

            aiohttp decompresses a body in pieces, so the limit holds for one with a `Content-Encoding`, too.
            """
            match = _RANGE.fullmatch(self.request_info.headers.get("Range", ""))
            first, last = match.groups() if match else ("", "")
            if self.status >= 400:
                return await self._read_up_to(_MAX_ERROR_BYTES)
            if first and self.status != 206:  # a server without ranges, which sends the whole file
                await self._skip(int(first))
                return await self._read_up_to(int(last) - int(first) + 1 if last else MAX_UNREQUESTED_BYTES)
            limit_bytes = MAX_UNREQUESTED_BYTES
            if last:
                limit_bytes = int(last) - int(first) + 1 if first else int(last)
            body = await self._read_up_to(limit_bytes + 1)
            if len(body) > limit_bytes:
                raise ResourceError(f"{self.url}: requested at most {limit_bytes} bytes, but the server sent more")
            return body

        async def _read_up_to(self, size_bytes: int) -> bytes:
            body = bytearray()
            while len(body) < size_bytes:
                chunk = await self.content.read(min(size_bytes - len(body), _CHUNK_BYTES))
                if not chunk:
                    break
                body += chunk
            return bytes(body)

        async def _skip(self, size_bytes: int) -> None:
            while size_bytes and (chunk := await self.content.read(min(size_bytes, _CHUNK_BYTES))):
                size_bytes -= len(chunk)

    return LimitedResponse
