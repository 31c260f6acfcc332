"""An address has the index of a region in its upper 16 bits."""

from __future__ import annotations

from bowstring.transports.region_addresses import region_address, region_addresses, split_region_address


def test_an_address_is_an_index_and_an_offset() -> None:
    assert region_address(65535, 2**48 - 1) == 2**64 - 1
    assert split_region_address(region_address(7, 9)) == (7, 9)
    assert region_addresses(2, [0, 5]).tolist() == [2 << 48, (2 << 48) + 5]
