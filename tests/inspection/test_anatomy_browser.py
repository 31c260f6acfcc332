"""The page of `bowstring.inspection.build_anatomy_page` in a browser: display, mouse and keyboard."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.errors import BowstringError
from bowstring.inspection.anatomy.model import ByteRangeKind, FileSectionKind
from tests.inspection.browser import chromium, open_page
from tests.inspection.test_anatomy import buffer_ranges, damage_second_header
from tests.inspection.test_anatomy_page import HOSTILE
from tests.inspection.test_header_inspection import written_by_bowstring, written_by_pyarrow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BATCHES, COLUMNS = 10_000, 20


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as chromium_browser:
        yield chromium_browser


def page_of(raw: Any, folder: Path, name: str = "page.html", **options: Any) -> Path:
    path = folder / name
    path.write_text(bs.inspection.build_anatomy_page(raw, **options), "utf-8")
    return path


def three_batches() -> bytes:
    table = bs.table(
        {
            "id": np.arange(1000, 1120),
            "name": ["Ada", None, "Grace", "李明"] * 30,
            "colour": bs.array(["red", "green", "blue"] * 40, bs.dictionary(bs.int8(), bs.string())),
            "at": bs.array([1_700_000_000_000_000 + n for n in range(120)], bs.timestamp("us", "UTC")),
        }
    )
    sink = io.BytesIO()
    with bs.new_file(sink, table.schema) as writer:
        for start in range(0, 120, 40):
            writer.write(table.slice(start, 40))
    return sink.getvalue()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Path]:
    raw = three_batches()
    return raw, page_of(raw, tmp_path_factory.mktemp("small"), name="page.html")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("large")
    numbers = {f"number {n}": np.arange(64) + n for n in range(COLUMNS - 5)}
    table = bs.table(numbers | {f"text {n}": ["word" * (i % 9) for i in range(64)] for n in range(5)})
    with bs.new_file(folder / "large.arrow", table.schema) as writer:
        for n in range(BATCHES):
            writer.write(table.slice(0, 30 + n % 30))
    return folder / "large.arrow", page_of(folder / "large.arrow", folder)


def test_the_page_loads_without_errors_or_requests(browser: Browser, small: tuple[bytes, Path]) -> None:
    with open_page(browser, small[1]) as session:
        session.page.wait_for_timeout(300)
        assert session.problems == []
        assert session.requests == [small[1].as_uri()]
        assert session.page.evaluate("anatomy.total") == len(small[0])


def test_a_click_on_a_buffer_shows_its_meaning_and_its_bytes(browser: Browser, small: tuple[bytes, Path]) -> None:
    raw, path = small
    anatomy = bs.inspection.build_anatomy(raw)
    batch = [section for section in anatomy.sections if section.kind is FileSectionKind.RECORD_BATCH][1]
    places = buffer_ranges(anatomy, batch)
    with open_page(browser, path) as session:
        start, stop = places["id", "data"]
        session.click(start + 4, 2)
        session.page.wait_for_selector("#detail h2:has-text('Values')")
        assert session.bytes_to_printable() == raw[start:stop][:256]
        text = session.page.inner_text("#detail")
        assert "«Fixed-size Primitive Layout»" in text
        assert f"{start:,} to {stop - 1:,}" in text
        assert re.search(r"Record batch 1\s*›\s*id", text)
        assert session.page.locator(".values li").first.inner_text() == "01040"
        assert "The first 32 of 40." in text
        text = session.select_byte(places["name", "validity"][0])
        assert "«Validity bitmaps»" in text
        assert "40, 10 of them null" in text
        assert session.page.locator(".values li.null").count() == 10
        text = session.select_byte(places["name", "data"][0])
        assert re.search(r"0\s*“Ada”\s*1\s*null\s*2\s*“Grace”\s*3\s*“李明”", text)
        assert "2023-11-14 22:13:20.000040 UTC" in session.select_byte(places["at", "data"][0])
        assert "«Dictionary-encoded Layout»" in session.select_byte(places["colour", "indices"][0])


def test_headers_and_the_footer_show_their_content(browser: Browser, small: tuple[bytes, Path]) -> None:
    raw, path = small
    anatomy = bs.inspection.build_anatomy(raw)
    batches = [section for section in anatomy.sections if section.kind is FileSectionKind.RECORD_BATCH]
    with open_page(browser, path) as session:
        text = session.select_byte(batches[0].start + 20)
        assert re.search(r"1\s*id values: 320 at 0", text)
        assert re.search(r"1\s*name: 40, 10 null", text)
        assert re.search(r"0\s*id validity: nothing", text)
        text = session.select_byte(anatomy.total_bytes - 20)
        for number, section in enumerate(batches):
            assert re.search(rf"batch {number}\s*at {section.start:,}: ", text)


def test_the_address_contains_the_selected_leaf(browser: Browser, small: tuple[bytes, Path]) -> None:
    with open_page(browser, small[1]) as session:
        before = session.select_byte(len(small[0]) - 1)
        assert session.page.url.endswith(f"#byte={len(small[0]) - 6}")
        session.page.reload()
        session.page.wait_for_selector("#detail h2:has-text('Magic string')")
        assert session.page.inner_text("#detail") == before


def test_clicks_on_the_upper_rows_select_messages_and_columns(browser: Browser, small: tuple[bytes, Path]) -> None:
    raw, path = small
    batch = next(
        section for section in bs.inspection.build_anatomy(raw).sections if section.kind is FileSectionKind.RECORD_BATCH
    )
    with open_page(browser, path) as session:
        session.click(batch.stop - 10, 0)
        session.page.wait_for_selector("#detail h2:has-text('Record batch 0')")
        assert "«RecordBatch message»" in session.page.inner_text("#detail")
        session.click(batch.stop - 10, 1)
        session.page.wait_for_selector("#detail h2:text-is('at')")
        session.page.click("#detail .contents >> text=values")
        session.page.wait_for_selector("#detail h2:has-text('Values')")
        session.page.click(".crumbs >> text=whole file")
        session.page.wait_for_selector("#detail h2:has-text('An Arrow file')")


def test_every_leaf_shows_its_bytes(browser: Browser, small: tuple[bytes, Path]) -> None:
    raw, path = small
    at, expected = 0, []
    for section in bs.inspection.build_anatomy(raw).sections:
        for size in section.byte_ranges.lengths_bytes.tolist():
            expected.append((at, raw[at : at + min(size, 256)]))
            at += size
    with open_page(browser, path) as session:
        assert session.page.evaluate("anatomy.leaves") == len(expected)
        for start, content in expected:
            session.select_byte(start)
            assert (start, session.bytes_to_printable()) == (start, content)


def test_the_page_is_usable_with_the_keyboard(browser: Browser, small: tuple[bytes, Path]) -> None:
    with open_page(browser, small[1]) as session:
        page, title = session.page, session.page.locator("#detail h2")
        page.focus("#chart")
        for key, heading in (
            ("ArrowDown", "Beginning"),
            ("ArrowRight", "Schema"),
            ("ArrowDown", "header"),
            ("ArrowDown", "Continuation marker"),
            ("ArrowRight", "Length of the metadata"),
            ("ArrowUp", "header"),
            ("ArrowUp", "Schema"),
            ("End", "Footer"),
            ("ArrowLeft", "End of stream"),
            ("Home", "Beginning"),
            ("Escape", "An Arrow file"),
        ):
            page.keyboard.press(key)
            page.wait_for_function("text => document.querySelector('#detail h2').textContent === text", arg=heading)
            assert title.inner_text() == heading
        page.keyboard.press("End")
        before = page.evaluate("anatomy.placeOf(100, 0).x")
        page.keyboard.press("Enter")
        page.wait_for_timeout(50)
        assert page.evaluate("anatomy.placeOf(100, 0).x") != before
        assert page.is_enabled("#zoom-all")
        page.keyboard.press("0")
        page.wait_for_function("() => document.querySelector('#zoom-all').disabled")
        assert page.evaluate("anatomy.placeOf(100, 0).x") == before
        assert "bytes" in page.inner_text("#status")


def test_every_control_is_reachable_by_keyboard_and_has_a_name(browser: Browser, small: tuple[bytes, Path]) -> None:
    with open_page(browser, small[1]) as session:
        nameless = session.page.eval_on_selector_all(
            "button, input, select, canvas:not([aria-hidden])",
            "all => all.filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)",
        )
        assert nameless == []
        reached = set()
        for _ in range(40):
            session.page.keyboard.press("Tab")
            reached.add(session.page.evaluate("document.activeElement.id"))
        assert {"zoom-in", "zoom-to", "goto-number", "chart"} <= reached


def colours(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in re.findall(r"[\d.]+", text)[:3])


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""

    def light(text: str) -> float:
        channels = [c / 255 for c in colours(text)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_in_both_color_schemes(
    browser: Browser, small: tuple[bytes, Path], scheme: Literal["light", "dark"]
) -> None:
    with open_page(browser, small[1], scheme=scheme) as session:
        session.select_byte(20)
        for selector, behind in (
            ("body", "body"),
            (".lede", "body"),
            (".eyebrow", "body"),
            (".status", "body"),
            (".meaning", ".detail"),
            (".what dt", ".detail"),
            (".crumbs button", ".detail"),
            (".hex .at", ".detail"),
            ("td.type", "body"),
            (".link", "body"),
        ):
            ratio = contrast(session.style(selector, "color"), session.style(behind, "backgroundColor"))
            assert ratio >= 4.5, selector


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_have_enough_contrast_on_the_map(
    browser: Browser, small: tuple[bytes, Path], scheme: Literal["light", "dark"]
) -> None:
    roles = ("framing", "metadata", "validity", "offsets", "sizes", "type-ids", "views", "data", "indices")
    with open_page(browser, small[1], scheme=scheme) as session:
        colours: dict[str, str] = session.page.evaluate(
            "names => Object.fromEntries(names.map(name => {"
            "  document.body.style.outlineColor = `var(--${name})`;"
            "  return [name, getComputedStyle(document.body).outlineColor]; }))",
            ["on-role", "on-tint", "tint-b", *(f"c-{role}" for role in (*roles, "schema", "footer", "unread"))],
        )
    assert contrast(colours["on-tint"], colours["tint-b"]) >= 4.5
    fills = {name: colour for name, colour in colours.items() if name.startswith("c-")}
    assert len(set(fills.values())) >= len(roles)
    assert {name for name, colour in fills.items() if contrast(colours["on-role"], colour) < 4.5} == set()


def test_dark_and_light_differ_and_the_selection_is_remembered(browser: Browser, small: tuple[bytes, Path]) -> None:
    with open_page(browser, small[1]) as light, open_page(browser, small[1], scheme="dark") as dark:
        assert sum(colours(light.style("body", "backgroundColor"))) > 600
        assert sum(colours(dark.style("body", "backgroundColor"))) < 150
        before = light.page.locator("#chart").screenshot()
        assert before != dark.page.locator("#chart").screenshot()
        light.page.click("#theme >> text=Dark")
        assert light.style("body", "backgroundColor") == dark.style("body", "backgroundColor")
        light.page.wait_for_timeout(100)
        assert light.page.locator("#chart").screenshot() != before
        light.page.reload()
        light.page.wait_for_selector("html.ready")
        assert light.page.get_attribute("[data-theme=dark]", "aria-checked") == "true"


def test_small_parts_can_be_enlarged(browser: Browser, small: tuple[bytes, Path]) -> None:
    with open_page(browser, small[1]) as session:
        session.page.click("text=Enlarge small parts")
        session.page.wait_for_timeout(100)
        at, places = 0, []
        for section in bs.inspection.build_anatomy(small[0]).sections:
            for size in section.byte_ranges.lengths_bytes.tolist():
                places.append(session.page.evaluate("byte => anatomy.placeOf(byte, 2).x", at))
                at += size
        assert min(np.diff(places)) > 2


@pytest.mark.parametrize("width", [320, 390, 800, 1920])
def test_the_page_does_not_scroll_horizontally(browser: Browser, small: tuple[bytes, Path], width: int) -> None:
    with open_page(browser, small[1], width=width) as session:
        session.select_byte(1200)
        assert session.page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    schema = pa.schema([pa.field(HOSTILE, pa.string(), metadata={HOSTILE: HOSTILE})], metadata={HOSTILE: HOSTILE})
    raw = written_by_pyarrow(pa.table([pa.array([HOSTILE, None])], schema=schema), "file")
    with open_page(browser, page_of(raw, tmp_path, name="page.html")) as session:
        batch = next(
            section
            for section in bs.inspection.build_anatomy(raw).sections
            if section.kind is FileSectionKind.RECORD_BATCH
        )
        at = batch.start
        for size in batch.byte_ranges.lengths_bytes.tolist():
            text = session.select_byte(at)
            at += size
        session.page.click("[data-column]")
        assert HOSTILE in session.page.inner_text("body")
        assert HOSTILE in text
        assert session.page.locator("img").count() == 0
        assert session.problems == []
        assert len(session.requests) == 1


def test_an_error_is_shown_with_its_offset(browser: Browser, tmp_path: Path) -> None:
    raw, offset = damage_second_header(three_batches())
    with open_page(browser, page_of(raw, tmp_path)) as session:
        assert "1 error" in session.page.inner_text(".errors")
        session.page.click("[data-byte]")
        session.page.wait_for_selector("#detail .warn")
        assert f"At byte {offset:,}" in session.page.inner_text("#detail .warn")
        assert "could not be read" in session.page.inner_text("#detail h2")
        assert session.problems == []


def test_an_invalid_value_is_listed_at_the_top_and_marked_on_the_map(browser: Browser, tmp_path: Path) -> None:
    raw = three_batches()
    at = raw.index(b"Grace")
    with open_page(browser, page_of(raw[:at] + b"\xff" + raw[at + 1 :], tmp_path)) as session:
        assert session.page.title() == "Damaged: Anatomy of bytes"
        assert session.page.inner_text(".lede").startswith("A damaged Arrow file")
        assert "record batch 0, column 'name': values[2]" in session.page.inner_text(".errors")
        session.page.click(".errors [data-byte]")
        session.page.wait_for_selector("#detail .warn")
        assert "values[2]" in session.page.inner_text("#detail .warn")
        assert session.problems == []


def test_a_column_and_a_role_can_be_highlighted(browser: Browser, small: tuple[bytes, Path]) -> None:
    with open_page(browser, small[1]) as session:
        page = session.page
        before = page.locator("#chart").screenshot()
        page.click(".columns >> text=name")
        page.wait_for_timeout(100)
        assert page.locator("#chart").screenshot() != before
        assert "Only the column name is highlighted" in page.inner_text("#note")
        page.click("#legend >> text=offsets")
        assert page.get_attribute("#legend button:has-text('offsets')", "aria-pressed") == "true"
        assert page.locator(".columns [aria-pressed=true]").count() == 0


# Many batches


def test_a_page_of_ten_thousand_batches_is_usable(browser: Browser, large: tuple[Path, Path]) -> None:
    assert large[1].stat().st_size < 3_000_000
    began = time.monotonic()
    with open_page(browser, large[1]) as session:
        assert time.monotonic() - began < 20
        page = session.page
        assert page.evaluate("anatomy.leaves") > BATCHES * COLUMNS
        assert page.evaluate("document.querySelectorAll('*').length") < 2000
        assert "narrower than a pixel" in page.inner_text("#note")
        sections = [text.split("\n")[0] for text in page.locator("#detail .contents li").all_inner_texts()]
        assert sections[-4:] == ["Record batch 15", "… 9,984 more, on the map", "End of stream", "Footer"]
        page.fill("#goto-number", "9,999")
        page.keyboard.press("Enter")
        page.wait_for_selector("#detail h2:has-text('Record batch 9,999')")
        began = time.monotonic()
        for name in ("zoom-all", "zoom-in", "go-back", "zoom-out", "zoom-all"):
            page.click(f"#{name}")
            page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert time.monotonic() - began < 10
        assert session.problems == []


def test_bytes_that_are_not_on_the_page_are_read_from_the_file(
    browser: Browser, large: tuple[Path, Path], tmp_path: Path
) -> None:
    anatomy = bs.inspection.build_anatomy(large[0])
    section = next(
        section
        for section in anatomy.sections
        if section.kind is FileSectionKind.RECORD_BATCH and section.number == 5000
    )
    start, stop = buffer_ranges(anatomy, section)["number 3", "data"]
    with open_page(browser, large[1]) as session:
        assert "This page does not carry these" in session.select_byte(start)
        (tmp_path / "other.arrow").write_bytes(b"another file")
        session.page.set_input_files("#detail input[type=file]", tmp_path / "other.arrow")
        session.page.wait_for_selector("text=That file has 12 bytes")
        session.page.set_input_files("#detail input[type=file]", large[0])
        session.page.wait_for_selector("#detail .hex")
        assert session.bytes_to_printable() == large[0].read_bytes()[start:stop][:256]
        assert len(session.requests) == 1


# Every layout


def test_every_leaf_of_every_layout_can_be_selected(browser: Browser, tmp_path: Path) -> None:
    table = bs.table(
        {
            "union": bs.array([1, "x", None], bs.dense_union([("i", bs.int32()), ("s", bs.string())])),
            "sparse": bs.array([1, "x", 2], bs.sparse_union([("i", bs.int32()), ("s", bs.string())])),
            "views": bs.array(["short", "longer than twelve bytes", None], bs.string_view()),
            "runs": bs.array([7, 7, 8], bs.run_end_encoded(bs.int32(), bs.int64())),
            "list views": bs.array([[1], [], None], bs.list_view(bs.int16())),
            "pairs": bs.array([[1, 2], None, [3, 4]], bs.list_(bs.int8())),
            "structs": [{"a": 1, "b": [True]}, None, {"a": None, "b": []}],
            "half": bs.array([1.5, None, -2.0], bs.float16()),
            "bits": [True, None, False],
            "bytes": [b"\x00\xff", None, b""],
        }
    )
    for form, options in (("file", {}), ("stream", {"compression": "zstd"})):
        raw = written_by_bowstring(table, form, **options)
        anatomy, texts, at = bs.inspection.build_anatomy(raw), {}, 0
        with open_page(browser, page_of(raw, tmp_path)) as session:
            for section in anatomy.sections:
                for size, kind in zip(
                    section.byte_ranges.lengths_bytes.tolist(), section.byte_ranges.kinds.tolist(), strict=True
                ):
                    texts[at] = session.select_byte(at)
                    assert "«" in texts[at]
                    at += size
                    assert kind != ByteRangeKind.BODY
            assert session.problems == []
        whole = "\n".join(texts.values())
        for heading in ("Dense Union", "ListView Layout", "Variable-size Binary View Layout", "Variadic buffers"):
            assert f"«{heading}»" in whole
        assert ("bytes come out of" in whole or "stored as it is" in whole) == ("compression" in options)


def test_big_endian_values_are_shown_correctly(browser: Browser, shared_folder: Path, tmp_path: Path) -> None:
    path = next((shared_folder / "corpus" / "golden" / "1.0.0-bigendian").glob("*.arrow_file"))
    with open_page(browser, page_of(path, tmp_path)) as session:
        assert "big" in session.page.inner_text(".facts")
        anatomy = bs.inspection.build_anatomy(path)
        for section in anatomy.sections[:6]:
            session.select_byte(section.stop - 1)
        assert session.problems == []


def test_fuzzed_files_are_shown_without_script_errors(browser: Browser, shared_folder: Path, tmp_path: Path) -> None:
    paths = [path for path in sorted((shared_folder / "corpus" / "fuzz").rglob("*")) if path.is_file()]
    seen_pages = 0
    for path in paths[::5]:
        try:
            page = page_of(path, tmp_path)
        except BowstringError:
            continue
        seen_pages += 1
        with open_page(browser, page) as session:
            session.page.evaluate(
                "async () => { for (let i = 0; i < Math.min(anatomy.leaves, 30); i++) await anatomy.selectLeaf(i); }"
            )
            assert (path.name, session.problems) == (path.name, [])
    assert seen_pages > 3
