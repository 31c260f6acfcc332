"""A process with a client of each library, which reads three rows again and again on its open connection."""

from __future__ import annotations

import sys
from typing import Any

from pyarrow import flight

import bowstring
from benchmarks.flight_server import SMALL
from benchmarks.worker import serve_requests


def main(uri: str, location: str) -> None:
    """Connect to the servers of both libraries."""
    with bowstring.connect(uri) as dataset, flight.FlightClient(location) as client:
        ticket = flight.Ticket(SMALL)

        def read(repeats: int) -> dict[str, Any]:
            return {"rows": sum(dataset.read_all().num_rows for _ in range(repeats))}

        def read_with_flight(repeats: int) -> dict[str, Any]:
            return {"rows": sum(client.do_get(ticket).read_all().num_rows for _ in range(repeats))}

        serve_requests({"read": read, "read_with_flight": read_with_flight})


if __name__ == "__main__":
    main(*sys.argv[1:])
