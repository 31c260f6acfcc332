"""``readStream.format("arrow")``: each file of a folder is read once."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles
from pyspark.sql.types import LongType, StructType

import bowstring as bs
from bowstring.datasets.manifest import MANIFEST_FOLDER, Manifest, ManifestEntry, read_manifest, try_create_manifest
from bowstring.errors import InvalidArgumentError, InvalidDataError, MissingFileError
from bowstring.spark.path_globs import is_hidden
from bowstring.spark.source import file_discovery, stream_reader
from bowstring.spark.source.file_discovery import find_unlisted_files
from bowstring.spark.source.stream_reader import ArrowStreamReader, StreamOffset
from pyspark_bowstring import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = StructType().add("x", LongType())


def write_numbers(path: Path, *values: int, stream: bool = False) -> None:
    """Write an Arrow file that appears when it is complete."""
    table = bs.table({"x": bs.array(values, "int64")})
    writer = (bs.new_stream if stream else bs.new_file)(path.with_name(f".{path.name}"), table.schema)
    with writer:
        writer.write_table(table)
    path.with_name(f".{path.name}").rename(path)


def create_reader(folder: Path, **options: object) -> ArrowStreamReader:
    source = DefaultSource(CaseInsensitiveDict({"path": str(folder), **{k: str(v) for k, v in options.items()}}))
    return source.streamReader(SCHEMA)


def read_between(reader: ArrowStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    batches: Iterator[Any] = (batch for part in reader.partitions(start, end) for batch in reader.read(part))
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def follow(reader: ArrowStreamReader, start: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Yield the offset and the values of each batch until no file is new."""
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        yield end, read_between(reader, start, end)
        start = end


def test_an_offset_is_a_set_of_ranges() -> None:
    offset = StreamOffset("manifest", 3).add([5, 6, 0]).add([1, 4])
    assert offset.ranges == ((0, 2), (4, 7))
    assert StreamOffset.from_json(offset.to_json()) == offset
    assert [index for index in range(8) if index in offset] == [0, 1, 4, 5, 6]
    assert [list(offset.missing(count)) for count in (0, 3, 8)] == [[], [2], [2, 3, 7]]
    malformed: tuple[dict[str, Any], ...] = ({}, {**offset.to_json(), "files": "1-x"}, {"source": "a", "generation": 1})
    for each in malformed:
        with pytest.raises(InvalidDataError, match="is not an offset of a stream"):
            StreamOffset.from_json(each)


@pytest.mark.parametrize("stream", [False, True])
def test_files_of_a_folder_without_a_manifest_are_read_once_across_restarts(tmp_path: Path, stream: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    suffix = "arrows" if stream else "arrow"
    write_numbers(folder / f"b.{suffix}", 1, 2, stream=stream)
    reader = create_reader(folder)
    [(offset, values)] = follow(reader, reader.initialOffset())
    assert values == [1, 2]
    write_numbers(folder / f"a.{suffix}", 3, stream=stream)  # sorts before the file that was read
    restarted = create_reader(folder)
    [(offset, values)] = follow(restarted, offset)
    assert values == [3]
    assert list(follow(create_reader(folder), offset)) == []


def test_files_of_partitions_that_no_condition_matches_are_not_read(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"k={number}").mkdir()
        write_numbers(tmp_path / f"k={number}" / "a.arrow", number)
    source = DefaultSource(CaseInsensitiveDict({"path": str(tmp_path), "filters": "[('k', '=', 1)]"}))
    reader = source.streamReader(StructType().add("x", LongType()).add("k", LongType()))
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert [batches.path.parent.name for batches in partition.value] == ["k=1"]


def test_a_file_that_is_touched_or_renamed_over_is_not_read_again(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a.arrow", 1)
    reader = create_reader(tmp_path)
    [(offset, _)] = follow(reader, reader.initialOffset())
    os.utime(tmp_path / "a.arrow")
    write_numbers(tmp_path / "a.arrow", 2)
    assert list(follow(create_reader(tmp_path), offset)) == []


def test_a_file_that_is_being_written_is_read_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_numbers(tmp_path / "a.arrow", 1)
    whole = (tmp_path / "a.arrow").read_bytes()
    reader = create_reader(tmp_path)
    for length in (0, 1, 8, len(whole) // 2, len(whole) - 1):
        (tmp_path / "a.arrow").write_bytes(whole[:length])
        assert list(follow(reader, reader.initialOffset())) == []
    (tmp_path / "a.arrow").write_bytes(whole)
    assert [values for _, values in follow(reader, reader.initialOffset())] == [[1]]
    (tmp_path / "dead.arrow").write_bytes(whole[:-1])
    monkeypatch.setattr(stream_reader, "INCOMPLETE_FILE_AGE_S", 0.0)
    time.sleep(0.01)
    with pytest.raises(InvalidDataError, match=r"dead\.arrow: "):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_a_stream_without_an_end_is_not_read_by_a_host_whose_clock_is_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bs.new_stream(tmp_path / "whole.arrows", {"x": "int64"}) as writer:
        writer.write(bs.record_batch({"x": [1]}))
    whole, growing = (tmp_path / "whole.arrows").read_bytes(), tmp_path / "growing.arrows"
    (tmp_path / "whole.arrows").unlink()
    growing.write_bytes(whole[:-8])  # without the marker of its end
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 2 * stream_reader.INCOMPLETE_FILE_AGE_S)
    reader = create_reader(tmp_path)
    assert list(follow(reader, reader.initialOffset())) == []
    long_ago = now() - stream_reader.INCOMPLETE_FILE_AGE_S - 1
    os.utime(growing, (long_ago, long_ago))
    assert [values for _, values in follow(reader, reader.initialOffset())] == [[1]]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["growing.arrows"]


@pytest.mark.parametrize("latest_first", [False, True])
def test_limits_split_the_files_into_batches_in_order(tmp_path: Path, latest_first: bool) -> None:
    for index in range(7):
        write_numbers(tmp_path / f"{index}.arrow", index)
        os.utime(tmp_path / f"{index}.arrow", (index, index))
    reader = create_reader(tmp_path, maxFilesPerTrigger=3, latestFirst=latest_first)
    expected = [[0, 1, 2], [3, 4, 5], [6]]
    if latest_first:
        expected = [[4, 5, 6], [1, 2, 3], [0]]
    assert [values for _, values in follow(reader, reader.initialOffset())] == expected
    file_bytes = (tmp_path / "0.arrow").stat().st_size
    for max_bytes, counts in ((1, [1] * 7), (3 * file_bytes, [3, 3, 1]), (3 * file_bytes - 1, [2, 2, 2, 1])):
        reader = create_reader(tmp_path, maxBytesPerTrigger=max_bytes)
        assert [len(values) for _, values in follow(reader, reader.initialOffset())] == counts
    limits = (ReadMaxFiles(2), ReadMaxBytes(10 * file_bytes), ReadAllAvailable())
    ends = [create_reader(tmp_path).latestOffset(reader.initialOffset(), limit)["files"] for limit in limits]
    assert ends == ["0-2", "0-7", "0-7"]


def test_newer_files_come_first_also_when_they_arrive_in_between(tmp_path: Path) -> None:
    for index in range(3):
        write_numbers(tmp_path / f"{index}.arrow", index)
        os.utime(tmp_path / f"{index}.arrow", (index, index))
    reader = create_reader(tmp_path, maxFilesPerTrigger=2, latestFirst=True)
    first = reader.latestOffset(reader.initialOffset(), ReadMaxFiles(2))
    write_numbers(tmp_path / "3.arrow", 3)
    second = reader.latestOffset(first, ReadMaxFiles(2))
    assert read_between(reader, first, second) == [0, 3]
    assert second["files"] == "0-4"


def test_available_now_does_not_read_what_is_added_after_the_start(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a.arrow", 1)
    reader = create_reader(tmp_path)
    reader.prepareForTriggerAvailableNow()
    write_numbers(tmp_path / "b.arrow", 2)
    assert [values for _, values in follow(reader, reader.initialOffset())] == [[1]]


def test_available_now_opens_no_file_that_was_read(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a.arrow", 1)
    first = create_reader(tmp_path)
    [(end, _)] = follow(first, first.initialOffset())
    (tmp_path / "a.arrow").write_bytes(b"ARROW1\0\0")
    long_ago = time.time() - stream_reader.INCOMPLETE_FILE_AGE_S - 1
    os.utime(tmp_path / "a.arrow", (long_ago, long_ago))
    write_numbers(tmp_path / "b.arrow", 2)
    reader = create_reader(tmp_path)
    reader.prepareForTriggerAvailableNow()
    assert [values for _, values in follow(reader, end)] == [[2]]


def test_files_and_folders_that_are_removed_after_they_were_listed_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.arrow", "k=1/b.arrow", "k=2/c.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_numbers(tmp_path / name, 1)

    def list_and_remove(*arguments: Any) -> Iterator[Any]:
        yield from list(find_unlisted_files(*arguments))
        (tmp_path / "a.arrow").unlink()

    def remove_folder(name: str) -> bool:
        if name == "k=1":
            shutil.rmtree(tmp_path / name)
        return is_hidden(name)

    monkeypatch.setattr(stream_reader, "find_unlisted_files", list_and_remove)
    monkeypatch.setattr(file_discovery, "is_hidden", remove_folder)
    reader = create_reader(tmp_path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    log = read_manifest(tmp_path / stream_reader.LOG_FOLDER / end["source"])
    assert log is not None
    assert [entry.name for entry in log.entries] == ["k=2/c.arrow"]


def test_changed_removed_and_replaced_files_are_an_error_that_names_them(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write_numbers(folder / "a.arrow", 1)
    reader = create_reader(folder)
    start = reader.initialOffset()
    [(end, _)] = follow(reader, start)
    write_numbers(folder / "a.arrow", *range(1000))
    with pytest.raises(InvalidDataError, match=r"a\.arrow: expected \d+ bytes"):
        reader.partitions(start, end)
    (folder / "a.arrow").unlink()
    removed = rf"a\.arrow: is missing, though _streams/{end['source']} lists it: it was removed before it was read"
    with pytest.raises(MissingFileError, match=removed + "; set the option ignoreMissingFiles"):
        reader.partitions(start, end)
    assert read_between(create_reader(folder, ignoreMissingFiles="true"), start, end) == []
    shutil.rmtree(folder / stream_reader.LOG_FOLDER)
    with pytest.raises(MissingFileError, match="the log of the files that the query has read is missing"):
        create_reader(folder).latestOffset(end, ReadAllAvailable())
    with pytest.raises(InvalidDataError, match="no longer has a manifest"):
        create_reader(folder).latestOffset({**end, "source": "manifest"}, ReadAllAvailable())


def test_overwriting_a_folder_with_a_manifest_ends_the_query(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a.arrow", 1)
    entry = ManifestEntry("a.arrow", (tmp_path / "a.arrow").stat().st_size, 1, 1)
    schema = SCHEMA.jsonValue()
    first = Manifest(0, {}, ()).replace_all(schema, [entry])
    try_create_manifest(tmp_path, first)
    reader = create_reader(tmp_path)
    [(end, values)] = follow(reader, reader.initialOffset())
    assert values == [1]
    second = first.append([ManifestEntry("b.arrow", 8)])
    try_create_manifest(tmp_path, second)
    assert reader.latestOffset(end, ReadAllAvailable())["files"] == "0-2"
    try_create_manifest(tmp_path, second.replace_all(schema, [entry]))
    with pytest.raises(InvalidDataError, match="was overwritten after the query began"):
        reader.latestOffset(end, ReadAllAvailable())
    # Another folder at the same path, whose generation has the same number.
    shutil.rmtree(tmp_path / MANIFEST_FOLDER)
    write_numbers(tmp_path / "c.arrow", 3)
    other = ManifestEntry("c.arrow", (tmp_path / "c.arrow").stat().st_size, 1, 1)
    try_create_manifest(tmp_path, replace(first, entries=(other,)))
    with pytest.raises(InvalidDataError, match="was overwritten after the query began"):
        create_reader(tmp_path).latestOffset(end, ReadAllAvailable())
    before_this_check = {key: end[key] for key in ("source", "generation", "files")}
    assert create_reader(tmp_path).latestOffset(before_this_check, ReadAllAvailable())["first_file"] == "c.arrow"


def test_the_given_schema_selects_and_converts_the_columns_of_new_files(tmp_path: Path) -> None:
    table = bs.table({"s": ["a", "b"], "x": bs.array([1, 2], "int32")})
    with bs.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    reader = create_reader(tmp_path)  # with the column x as a long
    start = reader.initialOffset()
    [(end, values)] = follow(reader, start)
    assert values == [1, 2]
    with bs.new_file(tmp_path / "b.arrow", table.select(["s"]).schema) as writer:
        writer.write_table(table.select(["s"]))
    assert [values for _, values in follow(reader, end)] == [[None, None]]


def test_many_files_have_a_small_offset_and_log(tmp_path: Path) -> None:
    write_numbers(tmp_path / "0.arrow", 1)
    for index in range(1, 310):
        os.link(tmp_path / "0.arrow", tmp_path / f"{index}.arrow")
    reader = create_reader(tmp_path, maxFilesPerTrigger=70)
    offsets = list(follow(reader, reader.initialOffset()))
    assert [len(values) for _, values in offsets] == [70, 70, 70, 70, 30]
    assert offsets[-1][0]["files"] == "0-310"


@pytest.mark.parametrize(
    "options",
    [
        {"maxFilesPerTrigger": 1, "maxBytesPerTrigger": 1},
        {"maxFilesPerTrigger": 0},
        {"maxBytesPerTrigger": "x"},
        {"latestFirst": "yes"},
        {"fsync": "true"},
        {"maxFileAge": "1d"},
    ],
)
def test_wrong_options_are_an_error(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError):
        create_reader(tmp_path, **options)


def test_a_query_copies_a_growing_folder_exactly_once_from_source_to_sink(spark: SparkSession, tmp_path: Path) -> None:
    source, sink, checkpoint = (str(tmp_path / name) for name in ("source", "sink", "checkpoint"))
    expected: list[int] = []
    for step in range(3):
        frame = spark.range(step * 10, step * 10 + 10, 1, 2)
        frame.write.format("arrow").mode("append").save(source)
        expected += range(step * 10, step * 10 + 10)
        stream = spark.readStream.format("arrow").option("maxFilesPerTrigger", 1).load(source)
        writer = stream.writeStream.format("arrow").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start(sink)
        assert query.awaitTermination(60)
        rows = spark.read.format("arrow").load(sink).collect()
        assert sorted(row.id for row in rows) == expected
    batches = [path for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdecimal()]
    assert len(batches) >= 6


def test_partition_folders_and_options_that_select_files_apply_to_streams(tmp_path: Path) -> None:
    for name in ("k=1/a.arrow", "k=2/b.arrow", "k=2/c.arrows", "deep/d.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_numbers(tmp_path / name, ord(tmp_path.joinpath(name).stem))
    schema = StructType([*SCHEMA.fields, *StructType().add("k", LongType()).fields])

    def read_rows(**options: str) -> list[tuple[int, int | None]]:
        reader = DefaultSource(CaseInsensitiveDict({"path": str(tmp_path), **options})).streamReader(schema)
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        batches = (batch for part in reader.partitions(reader.initialOffset(), end) for batch in reader.read(part))
        return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())

    a, b, c, d = map(ord, "abcd")
    assert read_rows() == [(a, 1), (b, 2), (c, 2)]
    assert read_rows(pathGlobFilter="*.arrow") == [(a, 1), (b, 2)]
    assert read_rows(recursiveFileLookup="true") == [(a, None), (b, None), (c, None), (d, None)]
    assert read_rows(modifiedBefore="2000") == []
    entries = [ManifestEntry(name, (tmp_path / name).stat().st_size, 1, 1) for name in ("k=1/a.arrow", "k=2/b.arrow")]
    assert try_create_manifest(tmp_path, Manifest(1, SCHEMA.jsonValue(), tuple(entries)))
    assert read_rows() == [(a, 1), (b, 2)]
    assert read_rows(pathGlobFilter="b.*") == [(b, 2)]


def test_an_old_malformed_file_of_a_stream_is_dropped_by_its_mode(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a.arrow", 1)
    (tmp_path / "b.arrow").write_bytes(b"ARROW1\0\0")
    long_ago = time.time() - stream_reader.INCOMPLETE_FILE_AGE_S - 1
    os.utime(tmp_path / "b.arrow", (long_ago, long_ago))
    with pytest.raises(InvalidDataError, match=r"b\.arrow"):
        dict(enumerate(follow(create_reader(tmp_path), StreamOffset().to_json())))
    reader = create_reader(tmp_path, mode="DROPMALFORMED")
    assert [values for _, values in follow(reader, StreamOffset().to_json())] == [[1]]
