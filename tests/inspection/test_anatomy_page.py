"""The page of `build_anatomy_page` as text: self-contained, of limited size, without scripts of the file."""

from __future__ import annotations

import base64
import html
import io
import json
import re
import subprocess
import sys
import zlib
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.inspection.anatomy import encoder
from bowstring.inspection.anatomy.encoder import MEANINGS, PageLimits
from bowstring.inspection.anatomy.model import FileSectionKind
from bowstring.inspection.anatomy.page import build_page_and_count_faults
from bowstring.ipc.codecs import create_compressor
from bowstring.ipc.record_batch.compression import decompress_first_bytes
from tests.inspection.test_anatomy import damage_second_header
from tests.inspection.test_header_inspection import written_by_bowstring, written_by_pyarrow

HOSTILE = "</script><img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """The tags of a page, its text, and the content of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag in ("script", "style"):
            (self.scripts if tag == "script" else self.styles).append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside == "style":
            self.styles[-1] += data
        else:
            self.text += data


def page_header(page: Page) -> dict[str, Any]:
    """The JSON header of the page's data."""
    raw = zlib.decompress(base64.b64decode(page.scripts[0]))
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert isinstance(header, dict)
    return header


def small_file(**options: Any) -> bytes:
    return written_by_bowstring(bs.table({"n": [1, 2, 3], "s": ["a", None, "c"]}), "file", **options)


def test_the_page_is_self_contained() -> None:
    page = Page(bs.inspection.build_anatomy_page(small_file(), "small.arrow"))
    assert [tag for tag, _ in page.tags if tag in ("link", "img", "iframe", "object", "base")] == []
    assert not [attributes for _, attributes in page.tags if "src" in attributes or "style" in attributes]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert len(page.scripts) == 2
    assert not re.search(r"@import|url\(", page.styles[0])
    assert "Anatomy of small.arrow" in page.text


def test_the_policy_allows_only_the_pages_own_script_and_style() -> None:
    page = Page(bs.inspection.build_anatomy_page(small_file()))
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for rule, text in (("script-src", page.scripts[1]), ("style-src", page.styles[0])):
        assert rules[rule] == f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def test_hostile_names_are_escaped_on_the_page() -> None:
    schema = pa.schema(
        [
            pa.field(HOSTILE, pa.int64(), metadata={HOSTILE: HOSTILE}),
            pa.field("a\x1b[2J\u202e", pa.struct([(HOSTILE, pa.string())])),
        ],
        metadata={HOSTILE: HOSTILE},
    )
    table = pa.table([pa.array([1]), pa.array([{HOSTILE: "x"}])], schema=schema)
    text = bs.inspection.build_anatomy_page(written_by_pyarrow(table, "file"), HOSTILE)
    assert "<img" not in text
    page = Page(text)
    assert page.text.count(HOSTILE) >= 8
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert page_header(page)["columns"][0] == HOSTILE


def test_facts_columns_and_schema_are_readable_without_javascript() -> None:
    text = Page(bs.inspection.build_anatomy_page(small_file(), "small.arrow")).text
    for words in ("3 rows in 1 record batch, 2 columns", "Columns by size", "int64", "string", "64 bytes"):
        assert words in text


def test_the_number_of_fields_on_the_page_is_limited() -> None:
    table = pa.table({f"field {number}": [{"deep down": 1}] for number in range(400)})
    page = Page(bs.inspection.build_anatomy_page(written_by_pyarrow(table, "stream")))
    listed = page.text.partition("… and 150 more fields")[0]
    assert len(listed) < len(page.text)
    assert listed.count("deep down") == 250


def test_the_page_has_every_glossary_entry_of_its_script() -> None:
    header = page_header(Page(bs.inspection.build_anatomy_page(small_file())))
    assert set(header["glossary"]) == set(MEANINGS)
    assert set(header["section_kinds"]) <= set(MEANINGS)
    assert all(
        link.startswith("https://arrow.apache.org/docs/")
        for _, _, links in header["glossary"].values()
        for _, link in links
    )


def test_errors_are_on_the_page_with_their_offset() -> None:
    raw = small_file()
    text = bs.inspection.build_anatomy_page(raw[:-30])
    page = Page(text)
    assert "1 error" in page.text
    assert "A damaged Arrow file" in page.text
    assert "the file is cut off" in page.text
    assert re.search(r'data-byte="\d+"', text)
    assert "damaged" not in Page(bs.inspection.build_anatomy_page(raw)).text


def file_of_strings() -> bytes:
    """Two batches with strings, dictionary-encoded ones and lists of strings."""
    batch = bs.record_batch(
        {
            "word": ["alpha", "bravo", "delta"],
            "code": bs.array(["x", "y", "z"], bs.dictionary(bs.int32(), bs.string())),
            "list": [["inner"], None, ["other"]],
        }
    )
    sink = io.BytesIO()
    with bs.new_file(sink, batch.schema) as writer:
        writer.write(batch)
        writer.write(batch)
    return sink.getvalue()


VALUE_ERRORS = {
    "text that is not UTF-8": (b"bravo", b"br\xffvo", "data", r"record batch 1, column 'word': values\[1\]"),
    "offsets that fall": (
        np.array([0, 5, 10, 15], "<i4").tobytes(),
        np.array([0, 9, 3, 15], "<i4").tobytes(),
        "offsets",
        r"record batch 1, column 'word': offsets\[2\]",
    ),
    "an index beyond the dictionary": (
        np.array([0, 1, 2], "<i4").tobytes() + bytes(4),
        np.array([0, 7, 2], "<i4").tobytes() + bytes(4),
        "indices",
        r"record batch 1, column 'code': indices\[1\]",
    ),
    "nested text that is not UTF-8": (
        b"other",
        b"oth\xffr",
        "data",
        r"record batch 1, column 'list' → item: values\[1\]",
    ),
    "dictionary values that are not UTF-8": (b"xyz", b"x\xffz", "dictionary", r"dictionary 0: values\[1\]"),
}


@pytest.mark.parametrize("what", VALUE_ERRORS)
def test_an_invalid_value_is_on_the_page_with_the_offset_of_its_buffer(what: str) -> None:
    before, after, role, message = VALUE_ERRORS[what]
    raw = file_of_strings()
    at = raw.rindex(before)
    damaged = raw[:at] + after + raw[at + len(before) :]
    text, count = build_page_and_count_faults(damaged)
    assert (count, bs.inspection.build_anatomy(damaged).faults) == (1, ())
    match = re.search(r'data-byte="(\d+)">[^<]*</button> <span>([^<]*)', text)
    assert match is not None
    assert re.match(message, html.unescape(match[2])), match[2]
    assert "A damaged Arrow file" in text
    anatomy = bs.inspection.build_anatomy(damaged)
    position = int(match[1])
    section = next(section for section in anatomy.sections if section.start <= position < section.stop)
    ends = section.start + np.cumsum(section.byte_ranges.lengths_bytes)
    leaf = int(np.searchsorted(ends, position, "right"))
    if role == "dictionary":
        assert section.kind is FileSectionKind.DICTIONARY_BATCH
    else:
        assert ends[leaf] - section.byte_ranges.lengths_bytes[leaf] <= at < ends[leaf]
        layout = anatomy.layouts[section.layout_index]
        assert layout.buffers[int(section.byte_ranges.buffers[leaf])].role == role
    assert build_page_and_count_faults(damaged, full=False)[1] == 0


def test_a_structural_error_is_on_the_page_once() -> None:
    raw, _ = damage_second_header(file_of_strings())
    assert build_page_and_count_faults(raw)[1] == len(bs.inspection.build_anatomy(raw).faults) == 1


def test_the_page_does_not_grow_with_the_data() -> None:
    rng = np.random.default_rng(7)
    small, large = (
        bs.inspection.build_anatomy_page(written_by_bowstring(bs.table({"n": rng.random(n)}), "file"))
        for n in (10**5, 10**6)
    )
    assert abs(len(large) - len(small)) < 1000
    assert len(large) < 200_000


def test_bodies_beyond_the_limit_are_one_section() -> None:
    raw = written_by_pyarrow(pa.table({f"c{n}": [n] for n in range(50)}), "file")
    page = bs.inspection.build_anatomy_page(raw, page_limits=PageLimits(max_byte_ranges=20))
    assert len(page) < len(bs.inspection.build_anatomy_page(raw))
    assert page_header(Page(page))["whole"] is False


def test_without_jinja2_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['jinja2'] = None\n"
        "import bowstring\n"
        "try: bowstring.inspection.build_anatomy_page(b'')\n"
        "except ImportError as error: print(type(error).__name__, error)\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (
        process.stdout
        == "MissingExtraError jinja2 is not installed: pip install 'bowstring[anatomy]', or in a clone '.[anatomy]'\n"
    )


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_streams_have_a_page(compression: str) -> None:
    table = bs.table({"n": list(range(5000)), "s": ["x" * 50] * 5000})
    page = Page(bs.inspection.build_anatomy_page(written_by_bowstring(table, "stream", compression=compression)))
    assert f"{compression} (1 of 1 batches)" in page.text


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_only_the_start_of_a_compressed_buffer_is_decompressed(codec: str) -> None:
    large = bytes(range(256)) * (1 << 18)
    packed = len(large).to_bytes(8, "little") + bytes(create_compressor(codec)(large))
    assert decompress_first_bytes(codec, packed, 64) == large[:64]
    assert decompress_first_bytes(codec, (-1 & (1 << 64) - 1).to_bytes(8, "little") + b"as it is", 64) == b"as it is"
    assert (
        decompress_first_bytes(codec, (5).to_bytes(8, "little") + bytes(create_compressor(codec)(b"hello")), 64)
        == b"hello"
    )
    assert decompress_first_bytes(codec, packed[:8] + b"no frame of any kind", 64) == b""
    assert decompress_first_bytes(codec, b"short", 64) == b""


def test_the_number_of_decompressed_buffers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "_MAX_DECOMPRESSED", 3)
    table = bs.table({f"n{number}": np.arange(5000) for number in range(5)})
    page = Page(bs.inspection.build_anatomy_page(written_by_bowstring(table, "stream", compression="lz4")))
    assert page_header(page)["arrays"]["decompressed_leaf"][2] == 3


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_values_of_compressed_buffers_are_on_the_page(codec: str) -> None:
    table = bs.table({"n": np.arange(5000)})
    page = Page(bs.inspection.build_anatomy_page(written_by_bowstring(table, "stream", compression=codec)))
    raw = zlib.decompress(base64.b64decode(page.scripts[0]))
    size = int.from_bytes(raw[:8], "little")
    _, at, length = page_header(page)["arrays"]["decompressed_bytes"]
    assert raw[8 + size + at :][:length] == np.arange(8).tobytes()
