"""Connecting to data sets in parts whose servers have ended."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart
from bowstring.errors import ConnectionLostError
from tests.polling import wait_until
from tests.sharing.faults.processes import num_descriptors


def table_of(number: int) -> bs.Table:
    return bs.table({"a": np.full(10, number)})


def test_the_parts_of_a_server_that_has_ended_are_named_with_their_host_before_any_is_read() -> None:
    with bs.serve({"a": table_of(1), "b": table_of(2)}) as server, bs.serve({"c": table_of(3)}) as other:
        parts = [
            DatasetPart(10, 80, (server.uri("a"),), "one"),
            DatasetPart(10, 80, (other.uri("c"),), "two"),
            DatasetPart(0, 0, (), "two"),
            DatasetPart(10, 80, (server.uri("b"),), "one"),
            DatasetPart(10, 80, (other.uri("c"), server.uri("a")), "two"),
        ]
        dataset = Dataset("numbers", table_of(0).schema, parts)
        assert bs.connect(dataset).read_all().num_rows == 40
        other.close()
        descriptors = num_descriptors(os.getpid())
        for _ in range(3):
            with pytest.raises(ConnectionLostError, match=r"^data set numbers: part 1 on host two can't be reached: "):
                bs.connect(dataset)
        assert wait_until(lambda: num_descriptors(os.getpid()) <= descriptors)
        remaining = Dataset("numbers", dataset.schema, [parts[0], *parts[2:]])
        assert bs.connect(remaining).read_all().num_rows == 30
    with pytest.raises(
        ConnectionLostError, match=r"parts 0 and 3 on host one can't be .*; parts 1 and 4 on host two can't be "
    ):
        bs.connect(dataset)


def test_only_the_first_of_many_lost_parts_are_listed() -> None:
    with bs.serve({"a": table_of(1)}) as server:
        parts = [DatasetPart(10, 80, (server.uri("a"),), None)] * 2000
    with pytest.raises(
        ConnectionLostError, match=r"^data set numbers: parts 0, 1, .*, 18, 19 and 1,980 more can't be "
    ):
        bs.connect(Dataset("numbers", table_of(0).schema, parts))


def test_parts_in_files_are_not_lost_with_a_server(tmp_path: Path) -> None:
    with bs.new_file(tmp_path / "a.arrow", table_of(1).schema) as writer:
        writer.write(table_of(1))
    with bs.serve({"b": table_of(2)}) as server:
        parts = [
            DatasetPart(10, 0, ((tmp_path / "a.arrow").as_uri(),), "one"),
            DatasetPart(10, 80, (server.uri("b"),), "two"),
        ]
        dataset = Dataset("numbers", table_of(0).schema, parts)
        assert bs.connect(dataset).read_all().num_rows == 20
    with pytest.raises(ConnectionLostError, match=": part 1 on host two can't be reached: "):
        bs.connect(dataset).read_all()
