"""A consumer on a simulated host: reads a description as JSON, then each part from its nearest location.

It replies with a line of JSON: for each scheme of locations the rows, bytes and seconds, and the sum of all IDs.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from bowstring.datasets.dataset import Dataset
from bowstring.sharing.client.connect import connect
from bowstring.sharing.dataset_locations import DatasetLocations
from bowstring.sharing.uris import parse_scheme


def measure_reads(dataset: Dataset) -> dict[str, Any]:
    """Read all parts, one after the other."""
    schemes: dict[str, list[float]] = {}
    total = 0
    for part in dataset.parts:
        if not part.num_rows:
            continue
        start = time.perf_counter()
        with connect(DatasetLocations(part.locations)) as reader:
            ids = reader.read_all()["id"].to_numpy()
            total += int(np.sum(ids))
            amounts = schemes.setdefault(parse_scheme(reader.uris[0]), [0, 0, 0.0])
        for index, amount in enumerate((part.num_rows, part.nbytes, time.perf_counter() - start)):
            amounts[index] += amount
    return {"schemes": schemes, "sum": total}


if __name__ == "__main__":
    print(json.dumps(measure_reads(Dataset.from_json(sys.stdin.read()))))  # noqa: T201
