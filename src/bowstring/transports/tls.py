"""TLS for stream sockets, through Python's `ssl`: version 1.3, with optional client certificates."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bowstring.errors import InvalidArgumentError, translate_os_error

if TYPE_CHECKING:
    import ssl

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Certificates of one end. Paths name PEM files."""

    certificate: PathLike | None = None
    """This end's certificate, followed by its issuers'; servers need one."""
    key: PathLike | None = None
    """The private key of `certificate`, without a passphrase; by default in the same file."""
    authorities: PathLike | None = None
    """The certificates of the issuers of the peer's. Clients use the system's by default. A server with
    authorities accepts only clients with a certificate.
    """
    server_name: str | None = None
    """Client: the name in the server's certificate; by default the host of the address."""
    allow_unencrypted: bool = False
    """Client: whether, of two servers for metadata and bodies, one on another host may be without TLS."""

    def create_server_context(self) -> ssl.SSLContext:
        """Create the context of a server. Raises `InvalidArgumentError`, and `NotFoundError` for paths."""
        import ssl

        if self.certificate is None:
            raise InvalidArgumentError("tls: a server needs the option certificate")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A client that only sends would otherwise close its end with unread tickets, which resets the connection.
        context.num_tickets = 0
        if self.authorities is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return self._load_certificates(context)

    def create_client_context(self) -> ssl.SSLContext:
        """Create the context of a client. Raises as `create_server_context`."""
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.authorities is None:
            context.load_default_certs()
        return self._load_certificates(context)

    def read_pem(self, name: str) -> bytes | None:
        """Return the contents of the file of an option, such as "certificate". Raises `NotFoundError`."""
        path = self.certificate if name == "key" and self.key is None else getattr(self, name)
        try:
            return None if path is None else Path(path).read_bytes()
        except OSError as error:
            raise translate_os_error(error, f"tls: {name} {str(path)!r}: {error.strerror}") from error

    def _load_certificates(self, context: ssl.SSLContext) -> ssl.SSLContext:
        import ssl

        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The end of one direction is the end of the TCP connection. Frames have lengths, so nothing is lost unnoticed.
        context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
        for name in ("authorities", "certificate"):
            path = getattr(self, name)
            if path is None:
                continue
            try:
                if name == "authorities":
                    context.load_verify_locations(path)
                else:
                    context.load_cert_chain(path, self.key, password=_refuse_passphrase)
            except ssl.SSLError as error:
                raise InvalidArgumentError(f"tls: {name} {str(path)!r}: {error.reason or error}") from error
            except OSError as error:
                raise translate_os_error(error, f"tls: {name} {str(path)!r} or its key: {error.strerror}") from error
        return context


def _refuse_passphrase() -> str:
    raise InvalidArgumentError("tls: the key has a passphrase, which is not supported")
