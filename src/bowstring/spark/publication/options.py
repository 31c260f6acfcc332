"""The options of `publish`, and the session's settings for consumers on other hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bowstring.errors import InvalidArgumentError
from bowstring.sharing.agent.publications import Lifetime, check_lifetime
from bowstring.spark.options import parse_flag
from bowstring.spark.vectors import VectorForm, check_vector_form
from bowstring.transports.tls import TlsOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTING = "spark.bowstring.publish.remote"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RemoteOptions:
    """How the executors' hosts serve a published data set to other hosts.

    >>> bs.spark.RemoteOptions()
    RemoteOptions(host=None, bind_address=None, tls=None)
    """

    host: str | None = None
    """The name or address of each host in URIs, such as "localhost" if there is only one; by default the address from
    which it reaches the driver, or other hosts if the driver has a local address.
    """
    bind_address: str | None = None
    """Where to listen on each host, if not at `host`, such as "0.0.0.0" for all addresses."""
    tls: TlsOptions | None = None
    """The certificates of each host and of the driver, by paths that exist on all; without them, data is readable on
    the way. With `authorities`, consumers need a certificate, too.
    """


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """The options of `publish` and `publish_stream`. Raises `InvalidArgumentError` for another lifetime or form of
    vectors.
    """

    name: str | None
    ttl_s: float
    lifetime: Lifetime
    memory_limit: int | str | None
    remote: bool | RemoteOptions | None
    vectors: VectorForm
    progress: bool | None = None

    def __post_init__(self) -> None:
        check_lifetime(self.lifetime, self.ttl_s)
        check_vector_form(self.vectors)


def choose_remote_options(spark: SparkSession, remote: bool | RemoteOptions | None) -> RemoteOptions | None:
    """Return the options of `publish(remote=…)`: the session's for True, and for None if it has the setting.

    Raises `InvalidArgumentError` for other values.
    """
    if isinstance(remote, RemoteOptions):
        return remote
    if remote is None:
        remote = parse_flag(_SETTING, spark.conf.get(_SETTING, "false") or "")
    if not isinstance(remote, bool):
        raise InvalidArgumentError(f"remote: expected a bool or RemoteOptions, found {type(remote).__name__}")
    return _read_session_options(spark) if remote else None


def _read_session_options(spark: SparkSession) -> RemoteOptions:
    def read(name: str) -> str | None:
        return spark.conf.get(f"{_SETTING}.{name}", None)

    certificate = read("ssl.certificate")
    tls = TlsOptions(certificate, read("ssl.key"), read("ssl.authorities")) if certificate is not None else None
    return RemoteOptions(read("host"), read("bindAddress"), tls)
