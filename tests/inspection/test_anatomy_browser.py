"""The page of `bowstring.anatomy_page` in a real browser: what one sees, clicks and presses."""

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
from bowstring.inspection.anatomy.model import Leaf, Segment
from tests.inspection.browser import chromium, visit
from tests.inspection.test_anatomy import buffers_of
from tests.inspection.test_anatomy_page import HOSTILE
from tests.inspection.test_inspect import written_by_bowstring, written_by_pyarrow

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BATCHES, COLUMNS = 10_000, 20


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def page_of(raw: Any, folder: Path, name: str = "page.html", **options: Any) -> Path:
    path = folder / name
    path.write_text(bs.anatomy_page(raw, **options), "utf-8")
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


def test_the_page_loads_without_an_error_and_fetches_nothing(browser: Browser, small: tuple[bytes, Path]) -> None:
    with visit(browser, small[1]) as seen:
        seen.page.wait_for_timeout(300)
        assert seen.complaints == []
        assert seen.requests == [small[1].as_uri()]
        assert seen.page.evaluate("anatomy.total") == len(small[0])


def test_a_click_on_a_buffer_tells_its_meaning_and_its_bytes(browser: Browser, small: tuple[bytes, Path]) -> None:
    raw, path = small
    found = bs.anatomy(raw)
    batch = [part for part in found.parts if part.kind is Segment.RECORD_BATCH][1]
    places = buffers_of(found, batch)
    with visit(browser, path) as seen:
        start, stop = places["id", "data"]
        seen.click(start + 4, 2)
        seen.page.wait_for_selector("#detail h2:has-text('Values')")
        assert seen.printable_bytes() == raw[start:stop][:256]
        text = seen.page.inner_text("#detail")
        assert "«Fixed-size Primitive Layout»" in text
        assert f"{start:,} to {stop - 1:,}" in text
        assert re.search(r"Record batch 1\s*›\s*id", text)
        assert seen.page.locator(".values li").first.inner_text() == "01040"
        assert "The first 32 of 40." in text
        text = seen.choose(places["name", "validity"][0])
        assert "«Validity bitmaps»" in text
        assert "40, 10 of them null" in text
        assert seen.page.locator(".values li.null").count() == 10
        text = seen.choose(places["name", "data"][0])
        assert re.search(r"0\s*“Ada”\s*1\s*null\s*2\s*“Grace”\s*3\s*“李明”", text)
        assert "2023-11-14 22:13:20.000040 UTC" in seen.choose(places["at", "data"][0])
        assert "«Dictionary-encoded Layout»" in seen.choose(places["colour", "indices"][0])


def test_headers_and_the_footer_tell_what_they_hold(browser: Browser, small: tuple[bytes, Path]) -> None:
    raw, path = small
    found = bs.anatomy(raw)
    batches = [part for part in found.parts if part.kind is Segment.RECORD_BATCH]
    with visit(browser, path) as seen:
        text = seen.choose(batches[0].start + 20)
        assert re.search(r"1\s*id values: 320 at 0", text)
        assert re.search(r"1\s*name: 40, 10 null", text)
        assert re.search(r"0\s*id validity: nothing", text)
        text = seen.choose(found.total_bytes - 20)
        for number, part in enumerate(batches):
            assert re.search(rf"batch {number}\s*at {part.start:,}: ", text)


def test_the_address_remembers_the_leaf_that_is_chosen(browser: Browser, small: tuple[bytes, Path]) -> None:
    with visit(browser, small[1]) as seen:
        before = seen.choose(len(small[0]) - 1)
        assert seen.page.url.endswith(f"#byte={len(small[0]) - 6}")
        seen.page.reload()
        seen.page.wait_for_selector("#detail h2:has-text('Magic string')")
        assert seen.page.inner_text("#detail") == before


def test_clicks_on_the_upper_rows_choose_messages_and_columns(browser: Browser, small: tuple[bytes, Path]) -> None:
    raw, path = small
    batch = next(part for part in bs.anatomy(raw).parts if part.kind is Segment.RECORD_BATCH)
    with visit(browser, path) as seen:
        seen.click(batch.stop - 10, 0)
        seen.page.wait_for_selector("#detail h2:has-text('Record batch 0')")
        assert "«RecordBatch message»" in seen.page.inner_text("#detail")
        seen.click(batch.stop - 10, 1)
        seen.page.wait_for_selector("#detail h2:text-is('at')")
        seen.page.click("#detail .parts >> text=values")
        seen.page.wait_for_selector("#detail h2:has-text('Values')")
        seen.page.click(".crumbs >> text=whole file")
        seen.page.wait_for_selector("#detail h2:has-text('An Arrow file')")


def test_every_leaf_shows_the_bytes_that_it_is_made_of(browser: Browser, small: tuple[bytes, Path]) -> None:
    raw, path = small
    at, wanted = 0, []
    for part in bs.anatomy(raw).parts:
        for size in part.leaves.lengths_bytes.tolist():
            wanted.append((at, raw[at : at + min(size, 256)]))
            at += size
    with visit(browser, path) as seen:
        assert seen.page.evaluate("anatomy.leaves") == len(wanted)
        for start, held in wanted:
            seen.choose(start)
            assert (start, seen.printable_bytes()) == (start, held)


def test_the_keyboard_is_enough(browser: Browser, small: tuple[bytes, Path]) -> None:
    with visit(browser, small[1]) as seen:
        page, title = seen.page, seen.page.locator("#detail h2")
        page.focus("#chart")
        for key, wanted in (
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
            page.wait_for_function("wanted => document.querySelector('#detail h2').textContent === wanted", arg=wanted)
            assert title.inner_text() == wanted
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


def test_everything_that_can_be_pressed_can_be_reached_and_has_a_name(
    browser: Browser, small: tuple[bytes, Path]
) -> None:
    with visit(browser, small[1]) as seen:
        nameless = seen.page.eval_on_selector_all(
            "button, input, select, canvas:not([aria-hidden])",
            "all => all.filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)",
        )
        assert nameless == []
        reached = set()
        for _ in range(40):
            seen.page.keyboard.press("Tab")
            reached.add(seen.page.evaluate("document.activeElement.id"))
        assert {"zoom-in", "zoom-to", "goto-number", "chart"} <= reached


def colours(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in re.findall(r"[\d.]+", text)[:3])


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""

    def light(text: str) -> float:
        channels = [c / 255 for c in colours(text)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_shades(
    browser: Browser, small: tuple[bytes, Path], scheme: Literal["light", "dark"]
) -> None:
    with visit(browser, small[1], scheme=scheme) as seen:
        seen.choose(20)
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
            ratio = contrast(seen.style(selector, "color"), seen.style(behind, "backgroundColor"))
            assert ratio >= 4.5, selector


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_stand_out_from_the_colours_of_the_map(
    browser: Browser, small: tuple[bytes, Path], scheme: Literal["light", "dark"]
) -> None:
    roles = ("framing", "metadata", "validity", "offsets", "sizes", "type-ids", "views", "data", "indices")
    with visit(browser, small[1], scheme=scheme) as seen:
        found: dict[str, str] = seen.page.evaluate(
            "names => Object.fromEntries(names.map(name => {"
            "  document.body.style.outlineColor = `var(--${name})`;"
            "  return [name, getComputedStyle(document.body).outlineColor]; }))",
            ["on-role", "on-tint", "tint-b", *(f"c-{role}" for role in (*roles, "schema", "footer", "unread"))],
        )
    assert contrast(found["on-tint"], found["tint-b"]) >= 4.5
    fills = {name: colour for name, colour in found.items() if name.startswith("c-")}
    assert len(set(fills.values())) >= len(roles)
    assert {name for name, colour in fills.items() if contrast(found["on-role"], colour) < 4.5} == set()


def test_dark_and_light_differ_and_the_switch_is_kept(browser: Browser, small: tuple[bytes, Path]) -> None:
    with visit(browser, small[1]) as light, visit(browser, small[1], scheme="dark") as dark:
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


def test_all_parts_can_be_made_visible(browser: Browser, small: tuple[bytes, Path]) -> None:
    with visit(browser, small[1]) as seen:
        seen.page.click("text=Enlarge small parts")
        seen.page.wait_for_timeout(100)
        at, places = 0, []
        for part in bs.anatomy(small[0]).parts:
            for size in part.leaves.lengths_bytes.tolist():
                places.append(seen.page.evaluate("byte => anatomy.placeOf(byte, 2).x", at))
                at += size
        assert min(np.diff(places)) > 2


@pytest.mark.parametrize("width", [320, 390, 800, 1920])
def test_nothing_runs_out_of_the_window(browser: Browser, small: tuple[bytes, Path], width: int) -> None:
    with visit(browser, small[1], width=width) as seen:
        seen.choose(1200)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_are_shown_and_do_nothing(browser: Browser, tmp_path: Path) -> None:
    schema = pa.schema([pa.field(HOSTILE, pa.string(), metadata={HOSTILE: HOSTILE})], metadata={HOSTILE: HOSTILE})
    raw = written_by_pyarrow(pa.table([pa.array([HOSTILE, None])], schema=schema), "file")
    with visit(browser, page_of(raw, tmp_path, name="page.html")) as seen:
        batch = next(part for part in bs.anatomy(raw).parts if part.kind is Segment.RECORD_BATCH)
        at = batch.start
        for size in batch.leaves.lengths_bytes.tolist():
            text = seen.choose(at)
            at += size
        seen.page.click("[data-column]")
        assert HOSTILE in seen.page.inner_text("body")
        assert HOSTILE in text
        assert seen.page.locator("img").count() == 0
        assert seen.complaints == []
        assert len(seen.requests) == 1


def test_damage_is_told_and_its_place_is_shown(browser: Browser, tmp_path: Path) -> None:
    raw = bytearray(three_batches())
    second = [part for part in bs.anatomy(bytes(raw)).parts if part.kind is Segment.RECORD_BATCH][1]
    raw[second.start + 8 : second.start + 40] = b"\xab" * 32
    with visit(browser, page_of(bytes(raw), tmp_path)) as seen:
        assert "1 error" in seen.page.inner_text(".damage")
        seen.page.click("[data-byte]")
        seen.page.wait_for_selector("#detail .warn")
        assert f"At byte {second.start:,}" in seen.page.inner_text("#detail .warn")
        assert "could not be read" in seen.page.inner_text("#detail h2")
        assert seen.complaints == []


def test_a_damaged_value_is_told_at_the_top_and_marked_on_the_map(browser: Browser, tmp_path: Path) -> None:
    raw = three_batches()
    at = raw.index(b"Grace")
    with visit(browser, page_of(raw[:at] + b"\xff" + raw[at + 1 :], tmp_path)) as seen:
        assert seen.page.title() == "Damaged: Anatomy of bytes"
        assert seen.page.inner_text(".lede").startswith("A damaged Arrow file")
        assert "record batch 0, column 'name': values[2]" in seen.page.inner_text(".damage")
        seen.page.click(".damage [data-byte]")
        seen.page.wait_for_selector("#detail .warn")
        assert "values[2]" in seen.page.inner_text("#detail .warn")
        assert seen.complaints == []


def test_a_column_and_a_role_can_be_lit(browser: Browser, small: tuple[bytes, Path]) -> None:
    with visit(browser, small[1]) as seen:
        page = seen.page
        before = page.locator("#chart").screenshot()
        page.click(".columns >> text=name")
        page.wait_for_timeout(100)
        assert page.locator("#chart").screenshot() != before
        assert "Only the column name is lit" in page.inner_text("#note")
        page.click("#legend >> text=offsets")
        assert page.get_attribute("#legend button:has-text('offsets')", "aria-pressed") == "true"
        assert page.locator(".columns [aria-pressed=true]").count() == 0


# Many batches


def test_ten_thousand_batches_are_on_the_page_and_usable_soon(browser: Browser, large: tuple[Path, Path]) -> None:
    assert large[1].stat().st_size < 3_000_000
    began = time.monotonic()
    with visit(browser, large[1]) as seen:
        assert time.monotonic() - began < 20
        page = seen.page
        assert page.evaluate("anatomy.leaves") > BATCHES * COLUMNS
        assert page.evaluate("document.querySelectorAll('*').length") < 2000
        assert "narrower than a pixel" in page.inner_text("#note")
        parts = [text.split("\n")[0] for text in page.locator("#detail .parts li").all_inner_texts()]
        assert parts[-4:] == ["Record batch 15", "… 9,984 more, on the map", "End of stream", "Footer"]
        page.fill("#goto-number", "9,999")
        page.keyboard.press("Enter")
        page.wait_for_selector("#detail h2:has-text('Record batch 9,999')")
        began = time.monotonic()
        for name in ("zoom-all", "zoom-in", "go-back", "zoom-out", "zoom-all"):
            page.click(f"#{name}")
            page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert time.monotonic() - began < 10
        assert seen.complaints == []


def test_bytes_that_the_page_does_not_carry_are_read_from_the_file_itself(
    browser: Browser, large: tuple[Path, Path], tmp_path: Path
) -> None:
    found = bs.anatomy(large[0])
    part = next(part for part in found.parts if part.kind is Segment.RECORD_BATCH and part.number == 5000)
    start, stop = buffers_of(found, part)["number 3", "data"]
    with visit(browser, large[1]) as seen:
        assert "This page does not carry these" in seen.choose(start)
        (tmp_path / "other.arrow").write_bytes(b"another file")
        seen.page.set_input_files("#detail input[type=file]", tmp_path / "other.arrow")
        seen.page.wait_for_selector("text=That file has 12 bytes")
        seen.page.set_input_files("#detail input[type=file]", large[0])
        seen.page.wait_for_selector("#detail .hex")
        assert seen.printable_bytes() == large[0].read_bytes()[start:stop][:256]
        assert len(seen.requests) == 1


# Every layout


def test_each_leaf_of_each_layout_can_be_chosen(browser: Browser, tmp_path: Path) -> None:
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
        found, texts, at = bs.anatomy(raw), {}, 0
        with visit(browser, page_of(raw, tmp_path)) as seen:
            for part in found.parts:
                for size, kind in zip(part.leaves.lengths_bytes.tolist(), part.leaves.kinds.tolist(), strict=True):
                    texts[at] = seen.choose(at)
                    assert "«" in texts[at]
                    at += size
                    assert kind != Leaf.BODY
            assert seen.complaints == []
        whole = "\n".join(texts.values())
        for heading in ("Dense Union", "ListView Layout", "Variable-size Binary View Layout", "Variadic buffers"):
            assert f"«{heading}»" in whole
        assert ("bytes come out of" in whole or "stored as it is" in whole) == ("compression" in options)


def test_big_endian_values_are_read_as_such(browser: Browser, shared_folder: Path, tmp_path: Path) -> None:
    path = next((shared_folder / "corpus" / "golden" / "1.0.0-bigendian").glob("*.arrow_file"))
    with visit(browser, page_of(path, tmp_path)) as seen:
        assert "big" in seen.page.inner_text(".facts")
        found = bs.anatomy(path)
        for part in found.parts[:6]:
            seen.choose(part.stop - 1)
        assert seen.complaints == []


def test_what_fuzzers_made_is_shown_without_an_error(browser: Browser, shared_folder: Path, tmp_path: Path) -> None:
    paths = [path for path in sorted((shared_folder / "corpus" / "fuzz").rglob("*")) if path.is_file()]
    seen_pages = 0
    for path in paths[::5]:
        try:
            page = page_of(path, tmp_path)
        except BowstringError:
            continue
        seen_pages += 1
        with visit(browser, page) as seen:
            seen.page.evaluate(
                "async () => { for (let i = 0; i < Math.min(anatomy.leaves, 30); i++) await anatomy.selectLeaf(i); }"
            )
            assert (path.name, seen.complaints) == (path.name, [])
    assert seen_pages > 3
