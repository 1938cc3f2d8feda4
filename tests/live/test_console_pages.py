"""Pages of the console for those who manage: policies, egress, usage, keys, tenants and workers, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from hood_cluster import running_cluster, wait_for_workers, wait_until
from hood_server import RunningServer, running_server
from live.console_browser import Visitor, visiting
from playwright.sync_api import Browser, expect

from fumehood.audit.events import EgressDenied
from fumehood.audit.trail import Trail
from fumehood.server.identity.principals import OF_TENANTS, Scope

PAGES = (
    *("/egress", "/policies", "/policies/closed", "/policies/closed/change", "/usage", "/keys", "/tenants"),
    *("/tenants/acme", "/workers"),
)
HOSTILE = "<img src=x onerror=alert(1)>"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(strict=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def operator(server: RunningServer) -> str:
    return server.make_key([*OF_TENANTS, Scope.OPERATE])


@pytest.fixture
def api(server: RunningServer) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {server.key}"}
    with httpx.Client(base_url=f"{server.url}/v1", headers=headers, timeout=60) as client:
        yield client


@pytest.fixture
def visitor(browser: Browser, server: RunningServer, operator: str) -> Iterator[Visitor]:
    with visiting(browser, server.url) as opened:
        opened.sign_in(operator)
        yield opened


def run(api: httpx.Client, code: str, policy: str) -> None:
    sandbox = api.post("/sandboxes", json={"policy": policy}).json()["id"]
    assert api.post(f"/sandboxes/{sandbox}/runs", json={"code": code}).status_code == 200
    api.delete(f"/sandboxes/{sandbox}")


def test_a_denial_becomes_the_next_version_of_its_policy(visitor: Visitor, api: httpx.Client) -> None:
    text = "# kept\nnetwork:\n  allow:\n    - {host: known.example, ports: [443]}  # kept, too\n"
    assert api.put("/policies/reader", json={"text": text}).status_code == 200
    code = "import socket\ntry: socket.create_connection(('denied.example', 443), 5)\nexcept OSError as e: print(e)"
    run(api, code, "reader")
    page = visitor.page
    visitor.go("/egress?host=denied.example")
    expect(page.locator("tbody tr")).to_contain_text("add {host: denied.example, ports: [443]} to network.allow")
    page.get_by_role("link", name="Propose it for reader").click()
    expect(page.get_by_label("What it means")).to_contain_text("denied.example")
    expect(page.locator(".state").first).to_have_text("allowed")
    stale = visitor.open_tab()
    stale.goto(page.url)
    page.get_by_role("button", name="Save as version 2").click()
    expect(page.locator("h1")).to_have_text("reader version 2")
    expect(page.locator("main")).not_to_contain_text("Denied lately")  # it is allowed now
    saved = api.get("/policies/reader").json()["text"]
    assert saved == f"{text}    - {{host: denied.example, ports: [443]}}\n"
    stale.get_by_role("button", name="Save as version 2").click()
    expect(stale.locator("main")).to_contain_text("Version 2 was saved since")
    assert api.get("/policies/reader").json()["version"] == 2


def test_what_was_denied_is_proposed_together_line_by_line(visitor: Visitor, api: httpx.Client) -> None:
    text = "network:\n  allow:\n    - {host: known.example, ports: [443]}\n"
    assert api.put("/policies/learner", json={"text": text}).status_code == 200
    attempts = "for host in ('one.example', 'two.example', '10.1.2.3'):\n    try: s.create_connection((host, 443), 5)\n"
    run(api, f"import socket as s\n{attempts}    except OSError: pass", "learner")
    page = visitor.page
    visitor.go("/policies/learner")
    for host in ("one.example", "10.1.2.3"):
        page.get_by_label(host).check()
    page.get_by_role("button", name="Propose those").click()
    came = sorted(line.strip() for line in page.locator(".diff .came").all_inner_texts() if "host" in line)
    assert came == [
        "+     - {host: 10.1.2.3, ports: [443], private: true}",
        "+     - {host: one.example, ports: [443]}",
    ]
    expect(page.locator(".risks")).to_contain_text("behind the firewall")
    expect(page.get_by_role("alert")).to_contain_text("No sandbox of acme opens with it")


def test_a_worker_is_drained(browser: Browser) -> None:
    with running_cluster() as cluster:
        server = cluster.server()
        cluster.worker("w1", "--label", f"note={HOSTILE}")
        wait_for_workers(server, 1)
        with visiting(browser, server.url) as visitor:
            visitor.sign_in(server.make_key([Scope.OPERATE]), "/workers")
            row = visitor.page.locator("#worker-w1")
            expect(row).to_contain_text("onerror")
            visitor.page.get_by_role("button", name="Drain w1").click()
            wait_until(lambda: not server.workers() or server.workers()[0]["state"] == "draining")
            visitor.go("/workers")
            expect(visitor.page.get_by_role("button", name="Drain w1")).to_have_count(0)
            assert visitor.problems() == []


def test_a_change_whose_tests_fail_is_not_offered(visitor: Visitor, api: httpx.Client) -> None:
    text = "tests:\n  - {connect: 'a.example:443', expect: deny}\n"
    assert api.put("/policies/tested", json={"text": text}).status_code == 200
    visitor.go("/policies/tested/change?attempt=connect%20a.example:443")
    page = visitor.page
    expect(page.locator(".state", has_text="failed")).to_be_visible()
    expect(page.get_by_role("button", name="Save as")).to_have_count(0)


def test_a_long_text_is_shown_and_saved_whole(visitor: Visitor, api: httpx.Client) -> None:
    text = "".join(f"# line {number} of a long comment\n" for number in range(600))
    assert api.put("/policies/long", json={"text": text}).status_code == 200
    visitor.go("/policies/long/change?attempt=connect%20a.example:443")
    visitor.page.get_by_role("button", name="Save as version 2").click()
    expect(visitor.page.locator("h1")).to_have_text("long version 2")
    assert api.get("/policies/long").json()["text"].startswith(text)


def test_hostile_text_stays_text(visitor: Visitor, api: httpx.Client, server: RunningServer) -> None:
    visitor.go("/policies/closed/change")
    page = visitor.page
    page.fill("#text", f"name: {HOSTILE!r}\n{HOSTILE}: </textarea>{HOSTILE}\n")
    page.get_by_role("button", name="Show what it means").click()
    expect(page.get_by_role("alert")).to_contain_text("onerror")
    expect(page.locator("#text")).to_have_value(re.compile("</textarea>"))
    assert api.post("/keys", json={"name": HOSTILE, "scopes": ["run"]}).status_code == 201
    visitor.go("/keys")
    expect(page.locator("td.what", has_text="onerror")).to_have_count(1)
    trail = Trail(server.log, "key:other").within(run="run_hostile", sandbox="box_hostile")
    host = f"{HOSTILE}\u202egnp.exe\x1b[31m{'x' * 500}"
    trail.write_blocking(EgressDenied("connect", f"connect {host}:443", f"no rule opens {host}", HOSTILE, 1))
    for path in ("/", "/egress", "/runs/run_hostile", "/tenants/acme", "/audit?kind=egress"):
        visitor.go(path)
        expect(page.locator("main")).to_contain_text("<img src=x onerror=alert(1)>⟨U+202E⟩gnp.exe⟨U+001B⟩")
        assert page.locator("main img").count() == 0, path
        assert page.evaluate(OVERFLOW) <= 0, path


def test_a_key_is_made_shown_once_and_revoked(visitor: Visitor, server: RunningServer) -> None:
    visitor.go("/keys")
    page = visitor.page
    page.fill("#name", "for the laptop")
    page.check("[name=scope-run]")
    page.get_by_role("button", name="Make the key").click()
    key = page.locator(".once pre").inner_text().strip()
    own = {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{server.url}/v1/policies", headers=own).status_code == 200
    visitor.go("/keys")
    assert key not in page.content()
    page.get_by_role("button", name=f"Revoke {key.split('_')[1]}").click()
    expect(page.locator("tr", has_text=key.split("_")[1]).locator(".state")).to_have_text("revoked")
    assert httpx.get(f"{server.url}/v1/policies", headers=own).status_code == 401


def test_an_operator_makes_a_tenant_and_sets_a_quota(visitor: Visitor) -> None:
    visitor.go("/tenants")
    page = visitor.page
    page.fill("#name", "globex")
    page.get_by_role("button", name="Make it").click()
    expect(page.locator("h1")).to_have_text("globex")
    page.select_option("#quota", "sandboxes")
    page.fill("#value", "7")
    page.get_by_role("button", name="Set it").click()
    expect(page.locator("tbody tr", has_text="sandboxes").first).to_contain_text("7")
    page.fill("#confirm", "another")
    page.get_by_role("button", name="Remove the tenant").click()
    expect(page.locator("main")).to_contain_text("type the name")


def test_what_was_used_is_plotted_and_exported(visitor: Visitor, api: httpx.Client) -> None:
    run(api, "print(1)", "closed")
    visitor.go("/usage")
    expect(visitor.page.locator("figcaption", has_text="Sandboxes opened")).to_be_visible()
    exported = visitor.context.request.get(f"{visitor.url}/console/usage.csv?period=7d")
    assert "openings" in exported.text()


def test_pages_of_others_than_the_viewer_may_see_are_not_there(browser: Browser, server: RunningServer) -> None:
    with visiting(browser, server.url) as plain:
        plain.sign_in(server.make_key([Scope.RUN]))
        expect(plain.page.locator("nav")).not_to_contain_text("Tenants")
        for path in ("/tenants", "/keys", "/workers", "/policies/closed/change"):
            assert plain.context.request.get(f"{plain.url}/console{path}").status in (403, 404)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_of_those_who_are_not_signed_in_or_ask_for_nothing_can_be_used_by_all(
    browser: Browser, server: RunningServer, operator: str, theme: str
) -> None:
    with visiting(browser, server.url, color_scheme=theme) as visitor:
        visitor.go("/sign-in")
        assert visitor.problems() == []
        visitor.sign_in(operator)
        for path in ("/runs/run_0", "/audit?since=yesterday", "/audit?text=nothing-has-this"):
            visitor.go(path)
            assert (path, visitor.problems()) == (path, [])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_is_wrong_with_a_page_for_those_who_use_other_means(visitor: Visitor, theme: str) -> None:
    visitor.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    for path in PAGES:
        visitor.go(path)
        assert (path, visitor.problems()) == (path, [])
    visitor.page.set_viewport_size({"width": 390, "height": 800})
    for path in PAGES:
        visitor.go(path)
        assert visitor.page.evaluate(OVERFLOW) <= 0, path
