"""An address has the index of a region in its upper 16 bits."""

from __future__ import annotations

from bowstring.transports.region_addresses import decode_region_address, encode_region_address, encode_region_addresses


def test_an_address_is_an_index_and_an_offset() -> None:
    assert encode_region_address(65535, 2**48 - 1) == 2**64 - 1
    assert decode_region_address(encode_region_address(7, 9)) == (7, 9)
    assert encode_region_addresses(2, [0, 5]).tolist() == [2 << 48, (2 << 48) + 5]
