"""A real Chromium that complains: about errors in the console and about everything that the policy blocks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.tidy.source import ROOT

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NEEDED = pytest.mark.skipif(shutil.which(CHROMIUM) is None, reason="needs Debian's chromium at /usr/bin/chromium")
LOST = (
    "ERR_INCOMPLETE_CHUNKED_ENCODING",
    "ERR_CONNECTION_",
    "ERR_EMPTY_RESPONSE",
    "htmx:sse:error",
    "Failed to fetch",
)
"""What a browser says when a server goes away, which some tests want."""


@contextmanager
def launch_browser() -> Iterator[Browser]:
    """Start the browser. It runs no code of ours, so pytest may keep its loop."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS), timeout=60_000)
        yield browser
        browser.close()


class Eye:
    """One person's browser window, signed in."""

    def __init__(self, browser: Browser, origin: str, cookies: dict[str, str], theme: str = "light") -> None:
        self.complaints: list[str] = []
        self._origin = origin
        self.context: BrowserContext = browser.new_context(
            base_url=origin,
            color_scheme="dark" if theme == "dark" else "light",
            viewport={"width": 1440, "height": 900},
        )
        self.context.set_default_timeout(30_000)
        self.context.add_cookies([{"name": name, "value": value, "url": origin} for name, value in cookies.items()])
        self.page = self.open()

    def open(self) -> Page:
        """Open another tab."""
        page = self.context.new_page()
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("dialog", lambda dialog: (self._note("error", f"a dialog: {dialog.message}"), dialog.dismiss()))
        return page

    def go(self, path: str) -> Page:
        """Load a page."""
        answer = self.page.goto(path)
        assert answer is not None and answer.status == 200, (path, answer and answer.status)
        return self.page

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def expect_calm(self, *, lost: bool = False) -> None:
        """Fail if the browser has complained."""
        left = [one for one in self.complaints if not (lost and any(word in one for word in LOST))]
        assert left == []

    def close(self) -> None:
        self.context.close()


def axe_source() -> str | None:
    """Return the source of axe-core, if `make node-tools` has fetched it."""
    path = ROOT / "build/node/node_modules/axe-core/axe.min.js"
    return path.read_text("utf-8") if path.exists() else None
