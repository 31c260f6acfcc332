"""A process that publishes what it reads at a URI, for as long as it runs. The demo kills it.

Usage: python -m bowstring.cli.demo.publisher URI
"""

from __future__ import annotations

import json
import sys

from bowstring.datasets.publication import publish
from bowstring.sharing.connect import connect


def main(uri: str) -> None:
    """Publish the rows, write the URIs as JSON, and wait for the end of standard input."""
    with connect(uri) as dataset, publish(dataset.read_all(), lifetime="application") as published:
        sys.stdout.write(json.dumps(list(published.uris)) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
