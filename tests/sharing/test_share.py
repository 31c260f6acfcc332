"""A table for another process without any server."""

from __future__ import annotations

import gc
import os
import pickle
import re
import resource
import time
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import (
    ClosedError,
    ConnectionLostError,
    FormatMismatchError,
    InvalidArgumentError,
    InvalidDataError,
    MissingFileError,
    ResourceError,
    WouldCopyError,
)
from bowstring.memory import Arena, Region
from bowstring.sharing import stored_parts
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.control_group import limit_memory
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python

ATTACH = "import bowstring as bs; table = bs.attach(handle); send(table.to_pydict())"
ATTACH_OR_SEND_ERROR = """
import bowstring as bs
try:
    send(bs.attach(handle).to_pydict())
except bs.BowstringError as error:
    send((type(error).__name__, str(error)))
"""
WORDS = bs.dictionary(bs.int8(), bs.string())
SHARE = "import bowstring as bs; handle = bs.share(bs.table({'a': [1, 2, 3]})); send(handle); receive()"
SHARE_MORE_THAN_THE_MEMORY = """
import os
import bowstring as bs, numpy as np, pyarrow as pa
with open(f"{group}/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
library = pa if library_name == "pyarrow" else bs
numbers = iter(range(100))
batches = (library.record_batch({"a": np.zeros(2 << 20)}) for _ in numbers)
if library_name:
    batches = library.RecordBatchReader.from_batches(library.schema({"a": library.float64()}), batches)
try:
    bs.share(batches)
except bs.errors.ResourceError as error:
    send((str(error), next(numbers)))
"""


def example_table() -> bs.Table:
    return bs.table(
        {
            "number": [1, None, 3],
            "text": ["x", "yy", None],
            "list": [[1, 2], None, []],
            "struct": [{"p": 1.5, "q": "z"}, {"p": None, "q": None}, None],
        }
    )


def memfd_names(pid: int | str = "self") -> list[str]:
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = os.readlink(entry)
        except OSError:
            continue
        if "memfd:bowstring" in name:
            names.append(name)
    return names


def test_another_process_reads_a_shared_table() -> None:
    with bs.share(example_table()) as handle:
        assert run_python(ATTACH, handle=handle) == example_table().to_pydict()


def test_the_same_process_can_attach() -> None:
    with bs.share(example_table()) as handle:
        assert bs.attach(handle) == example_table()


def test_a_handle_has_rows_bytes_and_schema_and_a_small_pickle() -> None:
    table = bs.table({"a": np.arange(100_000)})
    with bs.share(table) as handle:
        assert handle.num_rows == 100_000
        assert 800_000 < handle.nbytes < 810_000
        assert handle.schema == table.schema
        assert len(pickle.dumps(handle)) < 250
        copy = pickle.loads(pickle.dumps(handle))
        assert (copy.num_rows, copy.nbytes) == (handle.num_rows, handle.nbytes)


def test_record_batches_readers_and_generators_are_shared(tmp_path: Path) -> None:
    batch = bs.record_batch({"a": [1, 2]})
    path = tmp_path / "file.arrow"
    with bs.new_file(path, batch.schema) as writer:
        writer.write(batch)
        writer.write(batch)
    with bs.open_file(path) as reader, bs.share(reader) as handle:
        assert bs.attach(handle).to_pydict() == {"a": [1, 2, 1, 2]}
    with bs.share(batch) as handle:
        assert bs.attach(handle).to_pydict() == {"a": [1, 2]}
    with bs.share(batch for _ in range(3)) as handle:
        assert (handle.num_rows, bs.attach(handle).num_rows) == (6, 6)


@pytest.fixture
def arrow_file(tmp_path: Path) -> Path:
    path = tmp_path / "file.arrow"
    with bs.new_file(path, example_table().schema) as writer:
        writer.write(example_table())
        writer.write(example_table())
    return path


@pytest.mark.parametrize("copy", [None, False])
def test_a_file_is_shared_without_a_copy(arrow_file: Path, copy: bool | None) -> None:
    before = len(memfd_names())
    with bs.share(arrow_file, copy=copy) as handle:
        assert len(memfd_names()) == before
        assert (handle.num_rows, handle.nbytes) == (6, arrow_file.stat().st_size)
        arrow_file.unlink()
        assert run_python(ATTACH, handle=handle) == bs.concat_tables([example_table()] * 2).to_pydict()


def test_a_stream_file_is_shared_without_a_copy(tmp_path: Path) -> None:
    with bs.new_stream(tmp_path / "stream", example_table().schema) as writer:
        writer.write(example_table())
    with bs.share(tmp_path / "stream", copy=False) as handle:
        assert bs.attach(handle) == example_table()


def test_a_file_that_is_changed_after_it_was_shared_is_an_error(arrow_file: Path) -> None:
    with bs.share(arrow_file) as handle:
        os.utime(arrow_file, ns=(0, 0))
        with pytest.raises(ClosedError, match="changed its file"):
            bs.attach(pickle.loads(pickle.dumps(handle)))


def test_files_that_are_missing_or_not_arrow_data_are_errors(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("neither a file nor a stream of Arrow")
    with assert_descriptors_closed():
        with pytest.raises(MissingFileError):
            bs.share(tmp_path / "missing")
        with pytest.raises(FormatMismatchError):
            bs.share(tmp_path / "text")


def test_a_file_written_to_a_region_is_shared_without_a_copy() -> None:
    with Region.create_writer() as memory:
        with bs.new_file(memory, example_table().schema) as writer:
            writer.write(example_table())
        region = memory.seal()
    with region, bs.share(region, copy=False) as handle:
        assert os.fstat(region.descriptor).st_ino == handle._references[0].inode
        region.close()
        assert run_python(ATTACH, handle=handle) == example_table().to_pydict()


def test_a_handle_is_shared_without_a_copy_and_owns_the_memory() -> None:
    with PythonProcess(SHARE) as other, bs.share(other.receive(), copy=False) as handle:
        other.kill()
        assert handle.num_rows == 3
        assert run_python(ATTACH, handle=handle) == {"a": [1, 2, 3]}


def test_shared_sources_are_copied_on_request(arrow_file: Path) -> None:
    with bs.share(arrow_file, copy=True) as handle, bs.share(handle, copy=True) as other:
        assert handle._references[0].inode not in (arrow_file.stat().st_ino, other._references[0].inode)
        assert bs.attach(other) == bs.concat_tables([example_table()] * 2)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (example_table, r"column 'number' \(int64, 3 rows\) would be copied, like all of a Table"),
        (lambda: example_table().to_batches()[0], "column 'number' .* like all of a RecordBatch"),
        (lambda: pytest.importorskip("pyarrow").table({"x": [1]}), "column 'x' .* like all of a Table"),
        (lambda: iter(example_table().to_batches()), "batches of a list_iterator would be copied"),
        # Not read for the error: its batches may not fit into memory together.
        (
            lambda: pytest.importorskip("pyarrow").table({"x": [1]}).to_reader(),
            "batches of a RecordBatchReader would be copied",
        ),
    ],
    ids=["table", "batch", "pyarrow", "iterator", "reader of pyarrow"],
)
def test_without_a_copy_other_sources_are_errors_that_name_the_column(source: Any, message: str) -> None:
    with pytest.raises(WouldCopyError, match=message):
        bs.share(source(), copy=False)
    with bs.serve({}) as server:
        with pytest.raises(WouldCopyError, match=message):
            server.add("name", source(), copy=False)
        assert server.names == []


def test_memory_of_an_arena_is_shared_again_after_its_last_reader() -> None:
    with Arena() as arena:
        with bs.share(example_table(), arena=arena) as handle:
            inode = handle._references[0].inode
            assert run_python(ATTACH, handle=handle) == example_table().to_pydict()
            attached = bs.attach(pickle.loads(pickle.dumps(handle)))
        with bs.share(bs.table({"b": [1]}), arena=arena) as handle:
            assert handle._references[0].inode != inode
            assert attached == example_table()
        del attached
        with bs.share(example_table(), arena=arena) as one, bs.share(example_table(), arena=arena) as two:
            assert inode in (one._references[0].inode, two._references[0].inode)
            assert bs.attach(one) == bs.attach(two) == example_table()


@pytest.mark.parametrize("clock", ["runs", "stands still", "is set back"])
def test_a_handle_of_memory_that_was_filled_again_is_an_error(clock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    times_ns = {"stands still": repeat(time.time_ns()), "is set back": iter((time.time_ns(), time.time_ns() - 10**12))}
    if clock in times_ns:
        monkeypatch.setattr(time, "time_ns", partial(next, times_ns[clock]))
    with Arena() as arena:
        with bs.share(example_table(), arena=arena) as handle:
            copy = pickle.loads(pickle.dumps(handle))
        with bs.share(example_table(), arena=arena) as handle:
            location = handle._references[0]
            assert location.inode == copy._references[0].inode
            copy._references = (replace(copy._references[0], descriptor=location.descriptor),)
            assert run_python(ATTACH_OR_SEND_ERROR, handle=copy)[0] == "ClosedError"
            assert run_python(ATTACH, handle=handle) == example_table().to_pydict()


def test_memory_that_is_filled_again_while_it_is_opened_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    open_descriptor = os.open
    handles: list[bs.sharing.SharedTableHandle] = []
    gc.collect()  # so that the next region gets the same number

    def open_late(path: str, *arguments: Any, **options: Any) -> int:
        monkeypatch.undo()
        handle.close()
        handles.append(bs.share(bs.table({"a": [4, 5, 6]}), arena=arena))
        assert handles[0]._references[0].descriptor == copy._references[0].descriptor
        return open_descriptor(path, *arguments, **options)

    with Arena() as arena, bs.share(bs.table({"a": [1, 2, 3]}), arena=arena) as handle:
        copy = pickle.loads(pickle.dumps(handle))
        monkeypatch.setattr(os, "open", open_late)
        with pytest.raises(ClosedError, match="closed or dropped"):
            bs.attach(copy)
        handles[0].close()


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_memory_of_an_arena_is_served_and_filled_again_after_the_client_has_freed_it(scheme: str) -> None:
    table = bs.table({"a": np.arange(1 << 16)})
    with Arena() as arena, bs.serve({}, scheme=scheme) as server:
        with bs.share(table, arena=arena) as handle:
            inode = handle._references[0].inode
            uri = server.add("t", handle)
        with bs.connect(uri) as data:
            first = data.read_all()
            server.remove("t")
            with bs.share(table.slice(5), arena=arena) as handle:
                assert scheme == "tcp" or handle._references[0].inode != inode
            assert first == table
        del first

        def is_filled_again() -> bool:
            with bs.share(table, arena=arena) as one, bs.share(table, arena=arena) as two:
                return inode in (one._references[0].inode, two._references[0].inode)

        assert wait_until(is_filled_again)


def test_readers_dictionaries_and_slices_are_shared_in_an_arena(arrow_file: Path) -> None:
    arrays = [bs.array(values, WORDS) for values in (["a", "b"], ["c"])]
    coded = bs.Table.from_batches([bs.RecordBatch.from_arrays([array], ["d"]) for array in arrays])
    tables = [
        coded,
        example_table().slice(1),
        example_table().slice(0, 0),
        bs.table({"a": np.arange(3 << 20)}).slice(7),
    ]
    with Arena() as arena:
        for table in tables:
            with bs.share(table, arena=arena) as handle:
                assert bs.attach(handle) == table
        with bs.open_file(arrow_file) as reader, bs.share(reader, arena=arena) as handle:
            assert bs.attach(handle).num_rows == 6


def test_an_attached_table_is_freed_without_garbage_collection() -> None:
    with Arena() as arena:
        gc.disable()
        try:
            for _ in range(3):
                with bs.share(example_table(), arena=arena) as handle:
                    assert bs.attach(handle) == example_table()
            assert arena.nbytes == 1 << 16
        finally:
            gc.enable()


@pytest.mark.parametrize("library", ["pyarrow", "polars", "pandas"])
def test_tables_of_other_libraries_are_shared_and_served(library: str) -> None:
    module = pytest.importorskip(library)
    create_table = getattr(module, "table", None) or module.DataFrame
    with bs.share(create_table({"a": [1, 2]})) as handle, bs.serve({"t": create_table({"a": [1, 2]})}) as server:
        assert bs.attach(handle).to_pydict() == bs.connect(server.uri("t")).read_all().to_pydict() == {"a": [1, 2]}


def test_an_empty_table_is_shared_with_its_schema() -> None:
    table = bs.table({"a": [1]}).slice(0, 0)
    with bs.share(table) as handle:
        assert bs.attach(handle).schema == table.schema
        assert bs.attach(handle).num_rows == 0


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (WORDS, ["a", "b", "c"]),
        (bs.datatypes.opaque(WORDS, "colour", "us"), ["a", "b", "c"]),
        (bs.struct({"in": WORDS}), [{"in": "a"}, {"in": "b"}, {"in": "c"}]),
    ],
    ids=["column", "extension", "struct"],
)
def test_dictionaries_that_change_between_batches_are_shared(kind: bs.DataType, values: list[Any]) -> None:
    arrays = [bs.array(values[:2], kind), bs.array(values[2:], kind)]
    table = bs.Table.from_batches([bs.RecordBatch.from_arrays([array], ["d"]) for array in arrays])
    with bs.share(table) as handle:
        assert run_python(ATTACH, handle=handle) == {"d": values}


def test_attached_arrays_refer_to_the_shared_memory_and_are_read_only() -> None:
    with bs.share(bs.table({"a": np.arange(1000)})) as handle:
        values = bs.attach(handle).column("a").chunks[0].to_numpy()
    assert not values.flags.writeable
    with pytest.raises(ValueError):
        values.flags.writeable = True
    assert values.sum() == 499_500


def test_attached_tables_keep_no_descriptor() -> None:
    with bs.share(example_table()) as handle, assert_descriptors_closed():
        tables = [bs.attach(handle) for _ in range(20)]
    assert tables == [example_table()] * 20


def test_an_array_stays_valid_after_both_sides_closed() -> None:
    handle = bs.share(example_table())
    table = bs.attach(handle)
    handle.close()
    assert table == example_table()


def test_an_attached_table_outlives_the_killed_process_that_shared_it() -> None:
    with PythonProcess(SHARE) as other:
        table = bs.attach(other.receive())
        other.kill()
        assert table.to_pydict() == {"a": [1, 2, 3]}


def test_a_handle_of_an_ended_process_is_a_lost_connection() -> None:
    with PythonProcess(SHARE) as other:
        handle = other.receive()
        other.kill()
    with pytest.raises(ConnectionLostError, match=f"process {other.process.pid}.* has ended"):
        bs.attach(handle)


def test_a_handle_of_another_machine_or_container_is_an_error() -> None:
    from dataclasses import replace

    with bs.share(example_table()) as handle:
        elsewhere = pickle.loads(pickle.dumps(handle))
        elsewhere._process = replace(elsewhere._process, host="another")
        with pytest.raises(ConnectionLostError, match="another machine"):
            bs.attach(elsewhere)


def test_a_handle_closed_on_either_side_is_an_error() -> None:
    handle = bs.share(example_table())
    copy = pickle.loads(pickle.dumps(handle))
    handle.close()
    handle.close()
    for use in (lambda: bs.attach(handle), lambda: handle.schema, lambda: pickle.dumps(handle)):
        with pytest.raises(ClosedError, match="closed"):
            use()
    kind, text = run_python(ATTACH_OR_SEND_ERROR, handle=copy)
    assert kind == "ClosedError"
    assert "keep that handle" in text


def test_a_reused_descriptor_is_an_error() -> None:
    handle = bs.share(example_table())
    copy = pickle.loads(pickle.dumps(handle))
    number = copy._references[0].descriptor
    handle.close()
    with bs.share(bs.table({"secret": [42]})) as other:
        assert other._references[0].descriptor == number
        kind, _ = run_python(ATTACH_OR_SEND_ERROR, handle=copy)
        assert kind == "ClosedError"
    read, write = os.pipe()
    try:
        assert number in (read, write)
        assert run_python(ATTACH_OR_SEND_ERROR, handle=copy)[0] == "ClosedError"
    finally:
        os.close(read)
        os.close(write)


def test_a_handle_with_another_size_is_an_error() -> None:
    with bs.share(example_table()) as handle:
        copy = pickle.loads(pickle.dumps(handle))
        place = copy._references[0]
        copy._references = (replace(place, size_bytes=place.size_bytes + 4096),)
        with pytest.raises(InvalidDataError, match=r"expected .* bytes, received"):
            bs.attach(copy)


def test_an_object_that_is_not_a_table_is_an_error() -> None:
    wrong: list[Any] = [7, "path", [1, 2], []]
    for data in wrong:
        with pytest.raises(InvalidArgumentError):
            bs.share(data)
    with pytest.raises(InvalidArgumentError, match="handle"):
        bs.attach(wrong[0])


def test_memory_is_freed_with_its_last_holder() -> None:
    gc.collect()
    before = len(memfd_names())
    handle = bs.share(example_table())
    assert len(memfd_names()) == before + 1
    handle.close()
    assert len(memfd_names()) == before
    dropped = bs.share(example_table())
    del dropped
    gc.collect()
    assert len(memfd_names()) == before


def test_a_source_that_fails_halfway_leaves_no_memory() -> None:
    def batches() -> Any:
        yield bs.record_batch({"a": [1]})
        raise RuntimeError("the source failed")

    before = len(memfd_names())
    with pytest.raises(RuntimeError, match="the source failed"):
        bs.share(batches())
    gc.collect()
    assert len(memfd_names()) == before


def test_a_shortage_is_a_resource_error_and_leaves_no_memory() -> None:
    code = """
import os, resource, signal
import numpy as np
import bowstring as bs
table = bs.table({"a": np.arange(1 << 18)})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    bs.share(table)
except bs.errors.ResourceError as error:
    numbers = [n for n in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{n}")]
    names = [os.readlink(f"/proc/self/fd/{n}") for n in numbers]
    send((str(error), [name for name in names if "memfd" in name]))
else:
    send("no error")
"""
    text, left = run_python(code)
    assert re.match("region 'share-.*': cannot be written: File too large for `ulimit -f`", text)
    assert left == []


@pytest.mark.parametrize("library_name", ["", "bowstring", "pyarrow"], ids=["generator", "reader", "reader of pyarrow"])
def test_batches_that_exceed_the_memory_of_a_container_are_an_error(library_name: str) -> None:
    with limit_memory(400 << 20) as group:
        message, num_read = run_python(SHARE_MORE_THAN_THE_MEMORY, group=str(group), library_name=library_name)
    assert num_read < 30  # batches, of which memory has space for 25: those before are not kept
    assert re.match(r"region 'share-\w+': \d+ bytes requested, \d+ available", message)


def test_a_shortage_of_descriptors_is_a_resource_error() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    table = example_table()
    with bs.share(table):  # everything that is imported on the way has been
        pass
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        with pytest.raises(ResourceError):
            bs.share(table)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def parted(monkeypatch: pytest.MonkeyPatch) -> bs.Table:
    """A table that is large enough to be copied by two threads, as what is large is little here."""
    monkeypatch.setattr(stored_parts, "_PART_BYTES", 1 << 12)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    batches = [bs.record_batch({"a": np.arange(i * 1000, (i + 1) * 1000)}) for i in range(5)]
    return bs.Table.from_batches(batches)


def test_a_large_table_has_a_region_for_each_processor_and_is_attached_in_order(parted: bs.Table) -> None:
    with bs.share(parted) as handle:
        regions = handle.open_regions()
        rows = [stored_parts.open_region_reader(region).read_all().num_rows for region in regions]
        for region in regions:
            region.close()
        assert rows == [2000, 3000]
        assert handle.num_rows == 5000
        assert handle.nbytes == sum(region.size_bytes for region in regions)
        assert handle.schema == parted.schema
        assert len(pickle.dumps(handle)) < 1000
        assert bs.attach(handle) == parted
        assert run_python("import bowstring as bs; send(bs.attach(handle)['a'].to_pylist())", handle=handle) == list(
            range(5000)
        )


def test_all_regions_of_a_large_table_are_freed_with_their_last_holder(parted: bs.Table) -> None:
    gc.collect()
    before = len(memfd_names())
    handle = bs.share(parted)
    assert len(memfd_names()) == before + 2
    table = bs.attach(handle)
    handle.close()
    assert table == parted
    del table
    gc.collect()
    assert len(memfd_names()) == before


def test_a_missing_region_closes_the_others(parted: bs.Table) -> None:
    handle = bs.share(parted)
    copy = pickle.loads(pickle.dumps(handle))
    regions = handle._regions
    assert regions is not None
    regions[1].close()
    before = len(memfd_names())
    with pytest.raises(ClosedError):
        bs.attach(copy)
    assert len(memfd_names()) == before


def test_a_shortage_in_one_thread_frees_the_memory_of_the_others(parted: bs.Table) -> None:
    for _ in range(2):  # what is imported on the way has been
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        gc.collect()
        before = len(memfd_names())
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + 2, hard))
        try:
            with pytest.raises(ResourceError):
                bs.share(parted)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert len(memfd_names()) == before


def test_dictionaries_and_single_batches_stay_in_one_region(parted: bs.Table) -> None:
    words = bs.array(["a", "b"] * 5000).dictionary_encode()
    coded = bs.Table.from_batches([bs.record_batch({"d": words})] * 2)
    for table in (coded, bs.table({"a": np.arange(10_000)})):
        with bs.share(table) as handle:
            assert len(handle._references) == 1
            assert bs.attach(handle) == table


WITHOUT_MEMFD = """
import io, os, sys
del os.memfd_create
import bowstring as bs

table = bs.table({"a": [1, 2]})
sink = io.BytesIO()
with bs.new_file(sink, table.schema) as writer:
    writer.write(table)
with bs.new_file(path, table.schema) as writer:
    writer.write(table)
readable = [bs.open_file(source).read_all() == table for source in (sink.getvalue(), path)]
uses = {
    "share": lambda: bs.share(table),
    "serve": lambda: bs.serve({"t": table}),
    "new_shared_table": lambda: bs.sharing.new_shared_table(table.schema).write(table),
    "arena": lambda: bs.share(table, arena=bs.memory.Arena()),
}
errors = {}
for name, use in uses.items():
    try:
        use()
    except bs.errors.ResourceError as error:
        errors[name] = str(error)
with bs.share(path) as handle:
    shared = bs.attach(handle) == table
with bs.serve({"t": path}, scheme="tcp") as server, bs.connect(server.uri("t")) as data:
    served = data.read_all() == table
send((readable, errors, shared, served))
"""


def test_without_memfd_formats_work_and_sharing_raises_a_clear_error(tmp_path: Path) -> None:
    readable, errors, shared, served = run_python(WITHOUT_MEMFD, path=str(tmp_path / "file.arrow"))
    assert readable == [True, True]
    assert list(errors) == ["share", "serve", "new_shared_table", "arena"]
    for text in errors.values():
        assert "this platform has no memfd_create; share a file instead" in text
    assert (shared, served) == (True, True)


@pytest.mark.parametrize(
    ("start", "actual", "hint"),
    [
        (b"city,people\nRiga,605273\n", "text, perhaps CSV", "bowstring convert"),
        (b'{"city": "Riga"}\n', "text, perhaps JSON", "bowstring convert"),
        (b"PAR1\x15\x04\x15\x14", "a Parquet file", "bowstring convert"),
        (b"FEA1\0\0\0\0", "a Feather file of version 1", "pyarrow.feather.read_table"),
        (b"\x1f\x8b\x08\x08", "data compressed with gzip", "decompress it"),
    ],
)
def test_another_format_is_named_with_a_way_to_read_it_wherever_a_path_is_opened(
    start: bytes, actual: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "people"
    path.write_bytes(start)
    readers_of_arrow = (bs.open_file, bs.open_stream, bs.ipc.append_to_file, bs.inspection.inspect)
    readers_of_tables = (bs.share, lambda path: bs.serve({"people": path}))
    is_table = actual in ("text, perhaps JSON", "a Parquet file")
    for open_path in readers_of_arrow if is_table else (*readers_of_arrow, *readers_of_tables):
        with pytest.raises(FormatMismatchError, match=f"people: expected an Arrow .*, found {actual}") as caught:
            open_path(path)
        assert caught.value.__notes__[0].startswith(hint)
