"""The console in a real browser: what appears, what can be answered, and that hostile text stays text."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import httpx
import pytest
from hood_server import RunningServer, running_server
from live.console_browser import Visitor, open_browser, visiting
from playwright.sync_api import Browser, expect
from requirements import require

PAGES = ("/",)
"""Of a server; axe-core looks at each, and so do the screenshots of scripts/console-screenshots.py."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    require(shutil.which("chromium"), "chromium is not installed")
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(strict=False) as opened:
        yield opened


@pytest.fixture
def api(server: RunningServer) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {server.key}"}
    with httpx.Client(base_url=f"{server.url}/v1", headers=headers, timeout=60) as client:
        yield client


@pytest.fixture
def visitor(browser: Browser, server: RunningServer) -> Iterator[Visitor]:
    with visiting(browser, server.url) as opened:
        opened.sign_in(server.key)
        yield opened


def run(api: httpx.Client, code: str, policy: str = "build") -> None:
    sandbox = api.post("/sandboxes", json={"policy": policy}).json()["id"]
    assert api.post(f"/sandboxes/{sandbox}/runs", json={"code": code}).status_code == 200
    api.delete(f"/sandboxes/{sandbox}")


def test_a_run_appears_without_reloading_and_leads_to_what_happened(visitor: Visitor, api: httpx.Client) -> None:
    page = visitor.page
    visitor.wait_live()
    page.evaluate("window.isTheSame = true")
    run(api, "print(6 * 7)")
    row = page.locator("#runs tr").first
    expect(row.locator(".state")).to_have_text("success")
    assert page.evaluate("window.isTheSame")
    row.locator("a").click()
    expect(page.locator(".step-title")).to_have_text(["Asked for", "Started", "Ended"])
    expect(page.locator("#policy")).to_contain_text("build")
