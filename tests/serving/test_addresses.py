from __future__ import annotations

import pytest

from bowstring.dissociated.uri import parse_uri
from bowstring.dissociated.wire import RESERVED_MASK, SEQUENCE_MASK
from bowstring.serving.addresses import ERROR_DATA, error_tag, server_of, uri_for


def test_the_tag_of_errors_sets_no_reserved_bit_and_has_the_last_sequence_number() -> None:
    assert not ERROR_DATA & RESERVED_MASK
    assert ERROR_DATA & SEQUENCE_MASK == SEQUENCE_MASK
    assert ERROR_DATA >> 56 not in (0, 1)
    assert error_tag(parse_uri(uri_for("@x", "t"))) == ERROR_DATA


@pytest.mark.parametrize("value", [3, 0, 1 << 56 | 3, 1 << 64, -1])
def test_a_tag_that_a_body_may_have_is_not_for_errors(value: int) -> None:
    assert error_tag(parse_uri(f"unix:@x?want_data=1&error_data={value}")) is None


def test_data_sets_of_one_server_differ_in_their_ticket_only() -> None:
    assert server_of(parse_uri(uri_for("@x", "t"))) == server_of(parse_uri(uri_for("@x", "u")))
    others = (uri_for("@y", "t"), uri_for("@x", "t").replace("want_data=1", "want_data=9"), "unix:@x?want_data=1")
    for other in others:
        assert server_of(parse_uri(other)) != server_of(parse_uri(uri_for("@x", "t")))
