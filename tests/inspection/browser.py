"""A real browser for tests of pages: Chromium, driven by Playwright; where either is missing, tests skip."""

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
    """A running browser: the one that BOWSTRING_CHROMIUM names, or the first on the path."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (it is in the extra test)")
    path = os.environ.get("BOWSTRING_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip(
            "there is no Chromium on the path (on Debian: apt install chromium), nor does BOWSTRING_CHROMIUM name one"
        )
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*_ARGUMENTS, *sandbox])
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page in the browser, and what it did that it should not do: errors, messages, requests, dialogs."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html.ready", timeout=30_000)

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def choose(self, byte: int) -> str:
        """Choose the leaf that a byte belongs to; what the panel says then."""
        self.page.evaluate("byte => anatomy.selectByte(byte)", byte)
        return self.page.inner_text("#detail")

    def click(self, byte: int, level: int) -> None:
        """Click on the map where a byte is: at the level of messages (0), columns (1) or buffers (2)."""
        place: dict[str, float] = self.page.evaluate("([byte, level]) => anatomy.placeOf(byte, level)", [byte, level])
        self.page.mouse.click(place["x"], place["y"])

    def printable_bytes(self) -> bytes:
        """The bytes of the panel's hexadecimal dump."""
        runs: list[str] = self.page.eval_on_selector_all("#detail .hex b", "found => found.map(run => run.textContent)")
        return bytes.fromhex("".join(runs))

    def style(self, selector: str, name: str) -> str:
        """A computed style."""
        value: str = self.page.eval_on_selector(selector, "(found, name) => getComputedStyle(found)[name]", name)
        return value


@contextmanager
def visit(
    browser: Browser, path: Path, width: int = 1280, scheme: Literal["light", "dark"] = "light", **options: Any
) -> Iterator[Visit]:
    """Open a page in a window of its own."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce", **options
    )
    try:
        yield Visit(context.new_page(), path)
    finally:
        context.close()
