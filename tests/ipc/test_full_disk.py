"""Writing to a disk that is too small."""

from __future__ import annotations

from pathlib import Path

import pytest

import bowstring as bs
from bowstring.errors import ResourceError
from tests.small_disk import run_on_4_mb

TABLE = bs.table({"a": list(range(10))})
WRITE = """
import os, sys
import numpy as np
import bowstring as bs

path, rows = sys.argv[1], int(sys.argv[2])
with bs.new_file(path, bs.schema({"a": bs.int64()})) as writer:
    writer.write(bs.record_batch({"a": np.arange(3)}))
try:
    with bs.new_file(path, bs.schema({"a": bs.int64()})) as writer:
        for _ in range(3):
            writer.write(bs.record_batch({"a": np.arange(rows)}))
except bs.errors.ResourceError as error:
    print(error)
print(bs.open_file(path).read_all().to_pydict(), os.listdir(os.path.dirname(path)))
"""


@pytest.mark.parametrize("rows", [1_000_000, 200_000, 20_000], ids=["at once", "in the second batch", "fits"])
def test_a_file_that_does_not_fit_leaves_the_old_one_and_nothing_else(tmp_path: Path, rows: int) -> None:
    ended = run_on_4_mb(tmp_path, "-c", WRITE, tmp_path / "t.arrow", rows)
    assert ended.returncode == 0, ended.stderr
    if rows == 20_000:
        assert "No space" not in ended.stdout
        assert "19999]} ['t.arrow']" in ended.stdout
    else:
        message, table = ended.stdout.splitlines()
        assert "t.arrow: cannot be written: No space left on device" in message
        assert table == "{'a': [0, 1, 2]} ['t.arrow']"


def test_a_file_object_that_finds_the_disk_full_when_it_is_flushed_is_named() -> None:
    full = open("/dev/full", "wb")  # noqa: SIM115 -- its own end is refused as well
    translate_shortage = pytest.raises(ResourceError, match="/dev/full: cannot be written: No space left")
    with translate_shortage, bs.new_stream(full, TABLE.schema) as writer:
        writer.write_batch(TABLE.to_batches()[0])
    with pytest.raises(OSError, match="No space left"):
        full.close()
