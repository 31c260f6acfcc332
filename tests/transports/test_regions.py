"""Addresses mean bytes of regions, and nothing else whatever a peer writes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from bowstring.errors import LimitError, ProtocolError
from bowstring.memory.region import Region
from bowstring.transports.regions import ReceivedRegions, decode_region_address, encode_region_address
from tests.transports.region_buffers import encode_region_addresses, view_buffers

SIZES = (100, 0, 50)


@pytest.fixture
def table() -> Iterator[ReceivedRegions]:
    table = ReceivedRegions(10)
    for index, size in enumerate(SIZES):
        table.add(index, Region.copy_of([bytes([index + 1]) * size]))
    yield table
    table.close()


def uint64(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, np.uint64)


def test_buffers_of_one_region_are_located_at_once(table: ReceivedRegions) -> None:
    extent, offsets = table.locate_buffers(encode_region_addresses(2, [0, 10, 0]), uint64(10, 40, 0))
    assert extent.memory is table[2]
    assert offsets.tolist() == [0, 10, 0]


def test_buffers_of_several_regions_are_resolved_one_by_one(table: ReceivedRegions) -> None:
    views = view_buffers(table, uint64(encode_region_address(2, 48), 98, encode_region_address(9, 9)), uint64(2, 2, 0))
    assert [bytes(view) for view in views] == [b"\3\3", b"\1\1", b""]
    assert all(view.readonly for view in views)


@pytest.mark.parametrize(
    ("addresses", "lengths"),
    [
        ((encode_region_address(2, 0), encode_region_address(2, 0) - 1), (1, 2)),
        ((encode_region_address(2, 0), encode_region_address(1, 0)), (1, 1)),
        ((0, 2**64 - 1), (1, 1)),
        ((0,), (2**64 - 1,)),
        ((1,), (100,)),
        ((encode_region_address(1, 0),), (1,)),
        ((encode_region_address(3, 0),), (1,)),
    ],
)
def test_a_buffer_outside_its_region_is_an_error(
    table: ReceivedRegions, addresses: tuple[int, ...], lengths: tuple[int, ...]
) -> None:
    with pytest.raises(ProtocolError, match="region"):
        table.locate_buffers(uint64(*addresses), uint64(*lengths))


OFFSETS = st.sampled_from([0, 1, 49, 50, 51, 99, 100, 101, 2**48 - 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
ADDRESSES = st.builds(
    lambda index, offset: (encode_region_address(index, 0) + offset) % 2**64, st.integers(0, 4), OFFSETS
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.lists(st.tuples(ADDRESSES, OFFSETS), min_size=1, max_size=4))
def test_resolving_agrees_with_plain_arithmetic(table: ReceivedRegions, pairs: list[tuple[int, int]]) -> None:
    def is_inside(address: int, length: int) -> bool:
        index, offset = decode_region_address(address)
        return length == 0 or (index < len(SIZES) and offset + length <= SIZES[index])

    addresses, lengths = uint64(*[a for a, _ in pairs]), uint64(*[n for _, n in pairs])
    if all(is_inside(*pair) for pair in pairs):
        views = view_buffers(table, addresses, lengths)
        assert [bytes(view) for view in views] == [bytes([(a >> 48) + 1]) * n if n else b"" for a, n in pairs]
    else:
        with pytest.raises(ProtocolError):
            view_buffers(table, addresses, lengths)


def test_region_indices_are_consecutive_and_used_once(table: ReceivedRegions) -> None:
    table.pop(2).close()
    with Region.copy_of([b"x"]) as region, pytest.raises(ProtocolError, match="expected index 3, found 2"):
        table.add(2, region)
    with pytest.raises(ProtocolError, match="region 2"):
        table.pop(2)
    assert list(table) == [0, 1]


def test_retired_regions_do_not_count_towards_the_limit(table: ReceivedRegions) -> None:
    small = ReceivedRegions(1)
    small.add(0, Region.copy_of([b"x"]))
    with Region.copy_of([b"y"]) as region, pytest.raises(LimitError):
        small.add(1, region)
    small.pop(0).close()
    small.add(1, Region.copy_of([b"z"]))
    with small.pop(1) as small_region:
        assert bytes(small_region.memory) == b"z"
    assert len(small) == 0


def test_an_address_is_an_index_and_an_offset() -> None:
    assert encode_region_address(65535, 2**48 - 1) == 2**64 - 1
    assert decode_region_address(encode_region_address(7, 9)) == (7, 9)
    assert encode_region_addresses(2, [0, 5]).tolist() == [2 << 48, (2 << 48) + 5]
