"""Certificates for tests, made with the command `openssl`."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from bowstring.transports.tls import TlsOptions


@dataclass(frozen=True, slots=True)
class Authority:
    """An issuer of certificates."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> Authority:
        if shutil.which("openssl") is None:
            pytest.skip("the command openssl is not installed")
        authority = cls(folder)
        options = ("-keyout", "authority.key", "-out", "authority.pem", "-subj", "/CN=authority")
        authority._openssl("req", "-x509", "-newkey", "ec", *_CURVE, "-nodes", "-days", "2", *options)
        return authority

    @property
    def certificate(self) -> Path:
        return self.folder / "authority.pem"

    def issue(self, name: str, days: int = 2, subject: str | None = None) -> tuple[Path, Path]:
        """Return the paths of a certificate for the host or client `name`, and of its key. `subject` is openssl's text
        of the certificate's subject, by default with the name only.
        """
        stem = name.replace(":", "-")
        kind = "IP" if name.replace(".", "").isdigit() else "DNS"
        extensions = self.folder / f"{stem}.extensions"
        extensions.write_text(f"subjectAltName={kind}:{name}\n")
        self._openssl(
            "req", "-newkey", "ec", *_CURVE, "-nodes", "-keyout", f"{stem}.key", "-out", f"{stem}.csr",
            "-utf8", "-multivalue-rdn", "-subj", subject or f"/CN={name}",
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-in", f"{stem}.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial",
            "-days", str(days), "-extfile", extensions.name, "-out", f"{stem}.pem",
        )  # fmt: skip
        return self.folder / f"{stem}.pem", self.folder / f"{stem}.key"

    def server(self, name: str = "127.0.0.1", *, days: int = 2, checks_clients: bool = False) -> TlsOptions:
        certificate, key = self.issue(name, days)
        return TlsOptions(certificate, key, self.certificate if checks_clients else None)

    def client(self, name: str | None = None, subject: str | None = None) -> TlsOptions:
        certificate, key = self.issue(name, subject=subject) if name is not None else (None, None)
        return TlsOptions(certificate, key, self.certificate)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


_CURVE = ("-pkeyopt", "ec_paramgen_curve:prime256v1")
