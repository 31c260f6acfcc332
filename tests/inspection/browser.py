"""Tests of pages in Chromium, driven by Playwright. They are skipped if either is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser that BOWSTRING_CHROMIUM names, or the first one on the path."""
    api = pytest.importorskip("playwright.sync_api", reason="requires playwright, of the extra test")
    path = os.environ.get("BOWSTRING_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("requires Chromium on the path (on Debian: apt install chromium) or in BOWSTRING_CHROMIUM")
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*_ARGUMENTS, *sandbox])
        try:
            yield browser
        finally:
            browser.close()


class PageSession:
    """A page in the browser, with its requests and its problems: errors, console messages, dialogs."""

    def __init__(self, page: Page, path: Path, ready_selector: str) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector(ready_selector, timeout=30_000)

    def _dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def select_byte(self, byte: int) -> str:
        """Select the leaf of a byte; return the text of the detail panel."""
        self.page.evaluate("byte => anatomy.selectByte(byte)", byte)
        return self.page.inner_text("#detail")

    def click(self, byte: int, level: int) -> None:
        """Click on the map at a byte, in the row of messages (0), columns (1) or buffers (2)."""
        position: dict[str, float] = self.page.evaluate(
            "([byte, level]) => anatomy.placeOf(byte, level)", [byte, level]
        )
        self.page.mouse.click(position["x"], position["y"])

    def bytes_to_printable(self) -> bytes:
        """The bytes of the panel's hexadecimal dump."""
        runs: list[str] = self.page.eval_on_selector_all(
            "#detail .hex b", "elements => elements.map(run => run.textContent)"
        )
        return bytes.fromhex("".join(runs))

    def style(self, selector: str, name: str) -> str:
        """The computed style of an element."""
        value: str = self.page.eval_on_selector(selector, "(element, name) => getComputedStyle(element)[name]", name)
        return value


@contextmanager
def open_page(
    browser: Browser,
    path: Path,
    width: int = 1280,
    scheme: Literal["light", "dark"] = "light",
    ready_selector: str = "html.ready",
    **options: Any,
) -> Iterator[PageSession]:
    """Open a page in a new window."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce", **options
    )
    try:
        yield PageSession(context.new_page(), path, ready_selector)
    finally:
        context.close()
