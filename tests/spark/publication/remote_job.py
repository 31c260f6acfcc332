"""What test_remote_cluster.py runs on the driver's host: publishes for other hosts, and obeys the lines that it reads.

Usage: remote_job.py MASTER HOST. Prints a line of JSON for each line "publish", "missing", "recompute" or "close".
"""

from __future__ import annotations

import json
import pickle
import sys

ROWS = 40_000


def main(master: str, host: str) -> None:
    from bowstring.spark import PublishedFrame, publish, session
    from tests.spark.simulated_cluster import create_driver_settings

    spark = session(master, create_driver_settings(host))
    frame = spark.range(0, ROWS, 1, 6).selectExpr("id", "repeat('x', 50) AS s")
    published: PublishedFrame | None = None
    for line in sys.stdin:
        if line.strip() == "publish":
            published = publish(frame)
            reply = pickle.dumps(published).hex()
        elif published is not None and line.strip() == "missing":
            reply = json.dumps(published.missing())
        elif published is not None and line.strip() == "recompute":
            published.recompute()
            reply = pickle.dumps(published).hex()
        elif published is not None and line.strip() == "close":
            published.close()
            reply = ""
        print(json.dumps([reply]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
