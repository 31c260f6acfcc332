"""The driver of `bowstring demo --hosts`: publishes rows, writes their description as JSON, and closes them at the end
of its standard input.

Usage: python -m bowstring.cli.demo.hosts_driver ROWS PARTITIONS MASTER HOST
"""

from __future__ import annotations

import json
import sys

from bowstring import spark as bowstring_spark
from bowstring.cli.demo.simulated_cluster import create_driver_settings


def main(rows: int, partitions: int, master: str, host: str) -> None:
    """Publish rows, and wait for the end of standard input."""
    spark = bowstring_spark.session(master, create_driver_settings(host), app_name="bowstring demo")
    frame = spark.range(0, rows, 1, partitions).selectExpr("id", "id * 0.01 AS price", "concat('row ', id) AS text")
    with bowstring_spark.publish(frame, progress=False) as published:
        print(json.dumps(published.to_json()), flush=True)  # noqa: T201
        sys.stdin.read()
    print(json.dumps("closed"), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
