"""The server process of the serving benchmarks: it serves an Arrow file over TCP, and reports its memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import bowstring
from benchmarks.worker import serve_requests


def main(path: str) -> None:
    """Serve the Arrow file at `path`."""
    with bowstring.serve({"table": path}, scheme="tcp") as server:
        serve_requests({"memory": _anonymous_memory}, **server.uris)


def _anonymous_memory() -> dict[str, Any]:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:")]
    return {"anonymous_bytes": int(line.split()[1]) * 1024}


if __name__ == "__main__":
    main(*sys.argv[1:])
