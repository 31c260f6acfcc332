"""Fixtures of the fault tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from bowstring.transports.tls import TlsOptions
from tests.sharing.faults.processes import Children
from tests.thorough import thorough
from tests.transports.certificates import Authority

MODES = pytest.mark.parametrize(
    ("scheme", "copy"),
    [("unix", False), *thorough(("tcp+tls", False), ("unix", True), ("tcp", False))],
    ids=["addresses", "tls", "copies", "tcp"],
)
"""The scheme of a server, and whether a client copies its memory."""
FaultCounter: TypeAlias = Callable[[str, int], None]


@pytest.fixture(scope="module")
def certificates_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose `authority.pem` is trusted by the clients of this process and its children."""
    folder = tmp_path_factory.mktemp("certificates")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(folder / "authority.pem"))
        yield folder


@pytest.fixture(scope="module")
def children(certificates_folder: Path) -> Iterator[Children]:
    with Children() as own:
        yield own


@pytest.fixture(scope="module")
def server_certificates(certificates_folder: Path) -> TlsOptions:
    return Authority.create(certificates_folder).server()


@pytest.fixture
def tls(scheme: str, request: pytest.FixtureRequest) -> TlsOptions | None:
    """The certificates of a server, if the scheme needs them."""
    return request.getfixturevalue("server_certificates") if scheme == "tcp+tls" else None


@pytest.fixture
def count_faults(record_property: Callable[[str, object], None]) -> FaultCounter:
    """A function that adds to a count, which is printed at the end of the session."""
    return lambda name, number: record_property("faults", (name, number))
