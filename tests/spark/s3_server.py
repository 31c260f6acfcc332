"""An S3 server in a process of its own, for tests: ``python -m tests.spark.s3_server PORT``; port 0 is any free one.

moto answers the requests, one at a time: its check of ``If-None-Match`` and its write are two steps.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

from bowstring.io.store_path import StorePath

BUCKET = "bowstring"
SENT_BYTES_PATH = "/-/sent-bytes"


@dataclass(frozen=True, slots=True)
class S3Server:
    endpoint: str

    @property
    def storage_options(self) -> dict[str, Any]:
        """For fsspec; the default addressing style of other regions has the bucket in the host's name."""
        return {
            "key": "test-key",
            "secret": "test-secret",
            "client_kwargs": {"endpoint_url": self.endpoint, "region_name": "us-east-1"},
        }

    def count_sent_bytes(self) -> int:
        """The bytes of all replies so far."""
        with urlopen(f"{self.endpoint}{SENT_BYTES_PATH}") as reply:
            return int(reply.read())


def list_objects(folder: StorePath) -> list[str]:
    """The names of all objects below a folder."""
    file_system, path = folder.resolve_location()
    return [name.removeprefix(path + "/") for name in file_system.find(path)]


@contextmanager
def run_s3_server() -> Iterator[S3Server]:
    """Run a server with the bucket BUCKET."""
    command = [sys.executable, "-m", __spec__.name, "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield S3Server(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()


def main(port: int) -> None:
    """Serve until the process is killed."""
    import boto3
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()
    sent_bytes = 0

    def serve(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        nonlocal sent_bytes
        if environment["PATH_INFO"] == SENT_BYTES_PATH:
            start_response("200 OK", [])
            return [str(sent_bytes).encode()]
        with lock:
            reply = list(application(environment, start_response))
            sent_bytes += sum(map(len, reply))
            return reply

    server = make_server("127.0.0.1", port, serve, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    keys = {"aws_access_key_id": "test-key", "aws_secret_access_key": "test-secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=f"http://127.0.0.1:{server.port}", **keys).create_bucket(Bucket=BUCKET)
    print(server.port, flush=True)  # noqa: T201 -- read by run_s3_server
    thread.join()


if __name__ == "__main__":
    main(int(sys.argv[1]))
