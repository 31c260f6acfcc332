from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from bowstring.dissociated.leases import LeaseTable
from bowstring.dissociated.limits import ProtocolLimits
from bowstring.dissociated.messages import AddressBody
from bowstring.errors import LimitError, ProtocolError


class Owner:
    pass


def array(*addresses: int) -> npt.NDArray[np.uint64]:
    return np.array(addresses, np.uint64)


def body(*addresses: int, lengths: Sequence[int] | None = None) -> AddressBody:
    return AddressBody.from_arrays(addresses, [1] * len(addresses) if lengths is None else lengths)


def test_an_address_leased_twice_has_to_be_freed_twice() -> None:
    leases = LeaseTable()
    leases.lease_body(body(1, 2))
    leases.lease_body(body(1))
    leases.free(array(1))
    leases.free(array(1))
    assert len(leases) == 1
    with pytest.raises(ProtocolError, match="frees address 1 1 times, but has leased it 0 times"):
        leases.free(array(1))
    leases.free(array(2))
    assert not leases


def test_an_unknown_address_frees_nothing() -> None:
    leases = LeaseTable("client 7")
    leases.lease_body(body(1, 2))
    with pytest.raises(ProtocolError, match="client 7 frees address 3"):
        leases.free(array(1, 3))
    with pytest.raises(ProtocolError, match="address 2 2 times, but has leased it 1 times"):
        leases.free(array(2, 2))
    assert leases.outstanding == 2


@pytest.mark.parametrize("pieces", [[[1, 2, 3]], [[3], [1], [2]], [[2, 1], [3]], [[3, 2, 1]]])
def test_the_owner_is_kept_until_the_last_of_its_addresses_is_freed(pieces: list[list[int]]) -> None:
    leases = LeaseTable()
    owner = Owner()
    alive = weakref.ref(owner)
    leases.lease_body(body(1, 2, 3), owner)
    del owner
    for piece in pieces:
        gc.collect()
        assert alive() is not None
        leases.free(array(*piece))
    gc.collect()
    assert alive() is None


def test_all_leases_of_a_lost_client_are_freed() -> None:
    leases = LeaseTable()
    owner = Owner()
    alive = weakref.ref(owner)
    leases.lease_body(body(1, 2), owner)
    leases.lease_body(body(3), owner)
    leases.free(array(2))
    del owner
    assert leases.free_all() == 2
    gc.collect()
    assert alive() is None
    assert not leases


def test_whole_bodies_freed_together_are_not_split() -> None:
    leases = LeaseTable()
    bodies = [np.arange(start, start + size, dtype="<u8") for start, size in ((0, 4), (0, 2), (100, 4), (0, 4))]
    for addresses in bodies:
        leases.lease_body(body(*addresses))
    leases.free(np.concatenate([bodies[2], bodies[1], bodies[0]]))
    assert (leases.outstanding, leases.outstanding_bytes) == (4, 4)
    assert not leases._addresses
    with pytest.raises(ProtocolError, match="frees address 0 2 times, but has leased it 1 times"):
        leases.free(np.concatenate([bodies[0], bodies[0]]))
    leases.free(bodies[0])
    assert not leases
    assert not leases._key_lengths


def test_outstanding_addresses_are_limited() -> None:
    leases = LeaseTable(limits=ProtocolLimits(max_outstanding_addresses=3))
    leases.lease_body(body(1, 2))
    with pytest.raises(LimitError, match="max_outstanding_addresses = 3"):
        leases.lease_body(body(3, 4))
    assert leases.outstanding == 2


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), max_size=8),
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), max_size=12),
)
def test_leases_agree_with_a_count_of_each_address(leased: list[list[int]], freed: list[list[int]]) -> None:
    leases, counts = LeaseTable(), dict.fromkeys(range(7), 0)
    steps = [("lend", item) for item in leased[::2]] + [("free", item) for item in freed[::2]]
    steps += [("lend", item) for item in leased[1::2]] + [("free", item) for item in leased + freed[1::2]]
    for action, addresses in steps:
        if action == "lend":
            leases.lease_body(body(*addresses))
            for address in addresses:
                counts[address] += 1
        elif all(counts[address] >= addresses.count(address) for address in addresses):
            leases.free(array(*addresses))
            for address in addresses:
                counts[address] -= 1
        else:
            with pytest.raises(ProtocolError):
                leases.free(array(*addresses))
        assert leases.outstanding == sum(counts.values())


def test_empty_buffers_are_not_leased_and_may_be_freed_any_number_of_times() -> None:
    leases = LeaseTable()
    leases.lease_body(body(10, 20, 30, 20, lengths=[5, 0, 5, 0]))
    assert leases.outstanding == 2
    leases.free(array(20))
    leases.free(array(20, 10, 20))
    leases.free(array(30))
    assert not leases
    leases.free(array(20))
    with pytest.raises(ProtocolError, match="frees address 10 1 times, but has leased it 0 times"):
        leases.free(array(20, 10))


@pytest.mark.parametrize("freed", [(10, 20, 30), (10, 30), (30, 10, 20, 20)])
def test_a_body_with_empty_buffers_is_freed_by_the_others(freed: tuple[int, ...]) -> None:
    leases, owner = LeaseTable(), Owner()
    owner_ref = weakref.ref(owner)
    leases.lease_body(body(10, 20, 30, lengths=[5, 0, 5]), owner)
    del owner
    leases.free(array(*freed))
    gc.collect()
    assert not leases
    assert owner_ref() is None


def test_an_empty_buffer_at_the_address_of_another_does_not_lease_it() -> None:
    for freed in ((10,), (10, 10)):
        leases = LeaseTable()
        leases.lease_body(body(10, 10, lengths=[0, 5]))
        leases.free(array(*freed))
        assert not leases


def test_freeing_one_address_of_a_body_that_was_leased_often_takes_little_memory() -> None:
    leases, repeated = LeaseTable(), body(*range(1000), lengths=[8] * 1000)
    for _ in range(1_000):
        leases.lease_body(repeated, "owner")
    tracemalloc.start()
    try:
        leases.free(array(500))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        for _ in range(1_000):
            leases.lease_body(body(*range(3)), "owner")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert leases.outstanding == 1_000_000 - 1 + 3_000
    assert leases.outstanding_bytes == 8_000_000 - 8 + 3_000
    for _ in range(999):
        leases.free(repeated.addresses)
    assert leases.outstanding == 999 + 3_000
    with pytest.raises(ProtocolError, match="frees address 500 1 times, but has leased it 0 times"):
        leases.free(repeated.addresses)
    for _ in range(1_000):
        leases.free(array(0, 1, 2))
    leases.free(np.delete(repeated.addresses, 500))
    assert (leases.outstanding, leases.outstanding_bytes) == (0, 0)


def test_every_owner_of_an_address_is_kept_as_long_as_one_lease_of_it() -> None:
    leases, owners = LeaseTable(), [Owner() for _ in range(3)]
    references = [weakref.ref(owner) for owner in owners]
    leases.lease_body(body(1, 2), owners[0])
    leases.lease_body(body(1, 2), owners[1])
    leases.free(array(1))
    leases.lease_body(body(1), owners[2])
    del owners
    leases.free(array(1, 2))
    gc.collect()
    assert all(reference() is not None for reference in references)
    leases.free(array(2, 1))
    gc.collect()
    assert all(reference() is None for reference in references)


def test_a_body_of_empty_buffers_ends_no_lease_of_another_one() -> None:
    leases = LeaseTable()
    leases.lease_body(body(10, 20))
    leases.lease_body(body(10, 10, lengths=[0, 0]))
    for freed in ((10, 10), (10, 10, 10, 20), (10, 10)):
        leases.free(array(*freed))
    assert not leases


def test_the_same_addresses_with_other_lengths_are_leased() -> None:
    leases = LeaseTable()
    leases.lease_body(body(1, 2, lengths=[5, 5]))
    leases.lease_body(body(1, 2, lengths=[5, 0]))
    assert (leases.outstanding, leases.outstanding_bytes) == (3, 15)
    leases.free(array(1, 2))
    leases.free(array(1, 2))
    assert (leases.outstanding, leases.outstanding_bytes) == (0, 0)
