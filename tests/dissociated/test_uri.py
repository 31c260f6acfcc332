from __future__ import annotations

import os
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given, strategies as st

from bowstring.dissociated.uri import StreamURI, parse_uri
from bowstring.errors import InvalidArgumentError, ProtocolError

uint64s = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    st.sampled_from(["unix", "ucx", "bowstring+tcp"]),
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.tuples(uint64s, st.none() | uint64s).filter(lambda pair: pair[0] != pair[1]),
    st.none() | st.binary(max_size=40),
    st.lists(
        st.tuples(texts.filter(lambda key: key not in ("want_data", "free_data", "remote_handle")), texts), max_size=3
    ),
)
def test_a_uri_round_trips(
    scheme: str,
    address: str,
    tags: tuple[int, int | None],
    handle: bytes | None,
    parameters: list[tuple[str, str]],
) -> None:
    uri = StreamURI(scheme, address, *tags, handle, tuple(parameters))
    assert parse_uri(str(uri)) == uri


def test_the_parts_of_a_uri_are_parsed() -> None:
    uri = parse_uri("UCX://127.0.0.1:5000?free_data=2&remote_handle=%2Bw==&want_data=1&ticket=a%20b#ignored")
    assert uri == StreamURI("ucx", "//127.0.0.1:5000", 1, 2, b"\xfb", (("ticket", "a b"),))
    assert uri.get_parameter("ticket") == "a b"
    assert uri.get_parameter("other") is None


def test_an_address_may_contain_bytes_that_are_not_utf_8() -> None:
    uri = StreamURI("unix", os.fsdecode(b"/tmp/\xff"), 1)
    assert str(uri) == "unix:/tmp/%FF?want_data=1"
    assert os.fsencode(parse_uri(str(uri)).address) == b"/tmp/\xff"


@given(st.binary(max_size=40))
def test_a_parameter_may_contain_any_bytes(value: bytes) -> None:
    uri = StreamURI("unix", "@a", 1, parameters=(("ticket", value.decode(errors="surrogateescape")),))
    assert parse_uri(str(uri)) == uri
    parsed = parse_uri(f"unix:@a?want_data=1&ticket={quote_from_bytes(value)}").get_parameter("ticket")
    assert parsed is not None
    assert parsed.encode(errors="surrogateescape") == value


@pytest.mark.parametrize("handle", ["+/8=", "%2B%2F8%3D", "-_8", "+/8"])
def test_a_handle_is_base64_however_it_was_encoded(handle: str) -> None:
    assert parse_uri(f"ucx:a?want_data=1&remote_handle={handle}").remote_handle == b"\xfb\xff"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "scheme"),
        ("no-colon", "scheme"),
        ("1x:a?want_data=1", "scheme"),
        (":a?want_data=1", "scheme"),
        ("unix:@a", "required parameter want_data is missing"),
        ("unix:@a?free_data=1", "required parameter want_data is missing"),
        ("unix:@a?want_data=", "parameter want_data: .*found ''"),
        ("unix:@a?want_data=-1", "parameter want_data: .*found '-1'"),
        ("unix:@a?want_data=0x10", "parameter want_data"),
        ("unix:@a?want_data=1_0", "parameter want_data"),
        ("unix:@a?want_data=%D9%A1", "parameter want_data"),
        ("unix:@a?want_data=18446744073709551616", "parameter want_data"),
        ("unix:@a?want_data=" + "9" * 10000, "parameter want_data"),
        ("unix:@a?want_data=1&want_data=2", "want_data is given twice"),
        ("unix:@a?want_data=1&free_data=x", "parameter free_data: .*found 'x'"),
        ("unix:@a?want_data=1&free_data=1", "same tag"),
        ("unix:@a?want_data=1&remote_handle=***", "parameter remote_handle: expected base64"),
        ("unix:@a?want_data=1&remote_handle=a", "parameter remote_handle: expected base64"),
        ("unix:@a b?want_data=1", "character 7"),
        ("unix:@a\n?want_data=1", "character 7"),
        ("unix:@😀?want_data=1", "character 6"),
        ("unix:" + "a" * 70000, "65536 characters"),
        ("unix:@a?want_data=1" + "&a=1" * 1000, "at most 1000 parameters, found 1001"),
    ],
)
def test_an_error_names_the_part(text: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        parse_uri(text)


@given(st.text(max_size=60))
def test_any_text_is_a_uri_or_a_protocol_error(text: str) -> None:
    try:
        parse_uri("unix:" + text)
    except ProtocolError:
        pass


@pytest.mark.parametrize("tags", [(-1, None), (2**64, None), (1, 1), (1, 2**64)])
def test_invalid_parts_of_a_new_uri_are_rejected(tags: tuple[int, int | None]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"want_data|free_data"):
        StreamURI("unix", "@a", *tags)


@pytest.mark.parametrize(
    "rest", ["x?want_data=" + "9" * 20_000, "y" * 20_000, "x?want_data=1&remote_handle=%" + "_" * 20_000]
)
def test_an_error_shows_only_the_beginning_of_a_long_uri(rest: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_uri(f"unix:@{rest}")
    assert len(str(caught.value)) < 1000
