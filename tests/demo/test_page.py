"""The demo's page: self-contained, and legible in a browser with light and dark colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

pytest.importorskip("rich")
pytest.importorskip("pyspark")
pytest.importorskip("jinja2")

from examples.demo.page import build_page
from tests.demo.reports import compare, create_report
from tests.inspection.browser import chromium, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as chromium_browser:
        yield chromium_browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "demo.html"
    path.write_text(build_page(create_report(), "flights.arrow"), encoding="utf-8")
    return path


def luminance(colour: str) -> float:
    channels = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_the_page_loads_nothing_and_has_no_scripts(page: Path) -> None:
    text = page.read_text("utf-8")
    assert not re.search(r"<script|<link|<img|@import|url\(|\bsrc=|\bhref=", text)
    assert "default-src 'none'" in unescape(text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_is_legible_in_a_browser(
    browser: Browser, page: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    with open_page(browser, page, width, scheme, ready_selector="#rows") as session:
        assert session.problems == []
        assert session.requests == [page.as_uri()]
        assert (luminance(session.style("body", "backgroundColor")) < 0.5) == (scheme == "dark")
        paper = session.style("svg", "backgroundColor")
        for selector in ("svg text", "svg .tick", "text.publishing", "text.toarrow", "text.parquet"):
            assert contrast(session.style(selector, "fill"), paper) >= 4.5, selector
        assert contrast(session.style(".quiet", "color"), session.style("body", "backgroundColor")) >= 4.5
        wider = session.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0
        assert session.page.inner_text(".verdict") == create_report().verdict
        overlaps = session.page.evaluate(
            """() => [...document.querySelectorAll("svg")].flatMap(svg => {
                const frame = svg.getBoundingClientRect();
                return [...svg.querySelectorAll("text, rect, circle")].filter(mark => {
                    const box = mark.getBoundingClientRect();
                    return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
                }).map(mark => mark.outerHTML);
            })"""
        )
        assert overlaps == []


def test_bars_are_as_long_as_medians_and_every_round_has_a_dot(browser: Browser, page: Path) -> None:
    with open_page(browser, page, ready_selector="#rows") as session:
        lengths = session.page.eval_on_selector_all(
            "#time svg:last-of-type rect", "marks => marks.map(mark => Number(mark.getAttribute('width')))"
        )
        assert lengths[2] / lengths[0] == pytest.approx(6.0 / 1.4, rel=0.02)
        assert len(session.page.query_selector_all("#time svg:last-of-type circle")) == 21


def test_text_of_the_input_is_not_markup() -> None:
    text = build_page(create_report(names=[HOSTILE] * 9, sample=[[HOSTILE] * 9]), HOSTILE)
    assert "<script" not in text
    assert "and 1 more column<" in text
    assert "a reader reads &lt;all&gt; [bold]rows" in text


def test_equal_and_zero_measurements_and_one_round_have_a_page() -> None:
    zero = compare(0, (0.1, 0.0, 0.0), (0.1, 0.0, 0.0), (0.1, 0.0, 0.0))
    assert "Time by the number of reads" in build_page(create_report(main=zero), "x.csv")
    once = compare(0, (0.1, 0.0, 0.0), (0.1, 0.0, 0.0), (0.1, 0.0, 0.0), noise=(1.0,))
    assert "at least 6 rounds are necessary" in build_page(create_report(main=once), "x.csv")
