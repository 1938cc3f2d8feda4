"""A browser for tests of the console: one for the session, a context of its own for each visitor.

Whatever a page does that no page of ours does (a dialog, an error, a report of the content policy, a request to another
place) fails the test of the visitor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

EXECUTABLE = "/usr/bin/chromium"
AXE = Path(__file__).resolve().parents[2] / ".venv" / "javascript" / "node_modules" / "axe-core" / "axe.min.js"
_REPORTS = (
    "addEventListener('securitypolicyviolation', e => console.error('CSP ' + e.violatedDirective + e.blockedURI))"
)
# What a browser says of an answer that is no page, which tests ask for on purpose.
_EXPECTED = ("Failed to load resource", "net::ERR_")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """As root it has no sandbox of its own; it opens nothing but our pages."""
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=options)
        yield browser
        browser.close()


class Visitor:
    """Somebody at a browser."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.url = context, url
        self.wrong: list[str] = []
        context.add_init_script(_REPORTS)
        context.set_default_timeout(20_000)
        self.page = self.open_tab()

    def open_tab(self) -> Page:
        page = self.context.new_page()
        page.on("dialog", self._dialog)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", self._asked)
        return page

    def _dialog(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(each in message.text for each in _EXPECTED):
            self.wrong.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.url):
            self.wrong.append(f"request to {request.url}")

    def sign_in(self, key: str, path: str = "/") -> None:
        self.page.goto(f"{self.url}/console{path}")
        self.page.fill("#key", key)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("header")

    def go(self, path: str) -> None:
        self.page.goto(f"{self.url}/console{path}")

    def wait_live(self) -> None:
        """Until the news of the page are read: what is recorded from now on has to appear."""
        self.page.wait_for_selector("#live-state[data-kind=good]")

    def problems(self) -> list[str]:
        """What axe-core finds that is serious; it is put into the page by the test, past the content policy."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {json.dumps([node['html'][:200] for node in each['nodes'][:3]])}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]


@contextmanager
def visiting(browser: Browser, url: str, **options: Any) -> Iterator[Visitor]:
    options.setdefault("viewport", {"width": 1280, "height": 800})
    context = browser.new_context(**options)
    visitor = Visitor(context, url)
    try:
        yield visitor
    finally:
        context.close()
    assert visitor.wrong == []
