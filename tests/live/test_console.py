"""The console in a real browser: what appears, what can be answered, and that hostile text stays text."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from live.console_browser import Visitor, visiting
from live.console_scene import HOSTILE, Scene, open_scene
from live.server_process import ServerFolder
from playwright.sync_api import Browser, expect

from fumehood.agents import call
from fumehood.audit.store import Query
from fumehood.server.identity.principals import Scope

HOOD = [sys.executable, "-m", "fumehood"]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with open_scene() as opened:
        yield opened


@pytest.fixture
def visitor(browser: Browser, scene: Scene) -> Iterator[Visitor]:
    with visiting(browser, scene.url) as opened:
        opened.sign_in(scene.person)
        yield opened


def test_a_run_appears_without_reloading_and_leads_to_what_happened(
    browser: Browser, visitor: Visitor, scene: Scene
) -> None:
    page = visitor.page
    visitor.wait_live()
    page.evaluate("window.isTheSame = true")
    run = scene.run("print(6 * 7)")["run_id"]
    row = page.locator(f"#row-{run}")
    expect(row.locator(".state")).to_have_text("success")
    assert page.evaluate("window.isTheSame")
    row.locator("a").click()
    expect(page.locator(".step-title")).to_have_text(["Asked for", "Started", "Ended"])
    expect(page.locator(".code")).to_contain_text("print(6 * 7)")
    expect(page.locator(".output")).to_contain_text("42")
    viewed = scene.newest("console.viewed")
    assert (viewed.data["what"], viewed.data["subject"]) == ("run", run)
    before = viewed.seq
    with visiting(browser, scene.url) as own:  # what is one's own is not recorded
        own.sign_in(scene.agent, f"/runs/{run}")
        expect(own.page.locator(".output")).to_contain_text("42")
    assert scene.newest("console.viewed").seq == before


def test_a_denial_leads_to_its_rule_and_the_smallest_change(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    visitor.wait_live()
    code = "import urllib.request as u\ntry:\n    u.urlopen('https://collect.example/up')\nexcept OSError:\n    pass\n"
    scene.run(code)
    denial = page.locator("#denials li").first
    expect(denial).to_contain_text("collect.example")
    denial.locator("a").click()
    step = page.locator(".step.bad", has_text="Denied on the way out").first
    expect(step.locator(".remedy")).to_contain_text("add {host: collect.example, ports: [443]} to network.allow")
    step.get_by_role("link", name="network.allow").click()
    expect(page.locator("#policy")).to_be_in_viewport()
    expect(page.locator(".policy").first).to_contain_text("api.example")


def test_an_approval_is_given_once_and_a_stale_page_cannot_answer(visitor: Visitor, scene: Scene) -> None:
    page, second = visitor.page, visitor.open_tab()
    visitor.go("/approvals")
    visitor.wait_live()
    asked = scene.ask("print('a\u202eb')")
    place = f"/console/approvals/{asked['id']}"
    page.locator(f"a[href='{place}']").click()  # it has appeared
    expect(page.locator(".wrong").first).to_contain_text("hidden characters")
    expect(page.locator(".c-strange")).to_have_text("⟨U+202E⟩")
    second.goto(scene.url + place)
    second.route("**/news*", lambda route: route.abort())  # a page that hears of nothing
    second.reload()
    page.fill("#reason", "looks harmless")
    page.get_by_role("button", name="Approve once").click()
    expect(page.locator("#approval-state")).to_contain_text("approved by")
    second.get_by_role("button", name="Approve once").click()
    expect(second.locator("h1")).to_have_text("This page is out of date")
    used = [scene.api.post(f"/approvals/{asked['id']}:use", json={"digest": asked["digest"]}) for _ in range(2)]
    assert [answer.status_code for answer in used] == [200, 403]
    assert used[0].json()["reason"] == "looks harmless"
    kinds = [record.kind for record in scene.server.log.find(Query(kind="approval", text=asked["id"]))]
    assert kinds.count("approval.given") == kinds.count("approval.used") == 1


def test_an_answer_is_sent_once_however_often_its_button_is_pressed(visitor: Visitor, scene: Scene) -> None:
    asked = scene.ask("print('twice')")
    visitor.go(f"/approvals/{asked['id']}")
    visitor.page.get_by_role("button", name="Approve once").dblclick()
    expect(visitor.page.locator("#approval-state")).to_contain_text("approved by")
    kinds = [record.kind for record in scene.server.log.find(Query(kind="approval", text=asked["id"]))]
    assert kinds.count("approval.given") == 1


def test_all_of_a_long_call_stands_above_the_answer(visitor: Visitor, scene: Scene) -> None:
    """What has to be scrolled to in a box of its own is approved unread."""
    asked = scene.ask("\n".join(f"print({number})" for number in range(300)))
    visitor.go(f"/approvals/{asked['id']}")
    page = visitor.page
    expect(page.get_by_role("heading", name="What would be carried out: 300 lines")).to_be_visible()
    assert page.locator("pre.code").evaluate("each => each.scrollHeight - each.clientHeight") == 0
    assert page.locator("#answer").bounding_box()["y"] > 300 * 15  # type: ignore[index]


def test_after_a_sign_out_no_page_comes_back(visitor: Visitor, scene: Scene) -> None:
    run = scene.run("print('secret of a page')")["run_id"]
    page = visitor.page
    visitor.go(f"/runs/{run}")
    expect(page.locator("main")).to_contain_text("secret of a page")
    visitor.go("/audit")
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("h1")).to_have_text("Sign in")
    for _ in range(3):
        page.go_back()
        expect(page.locator("h1")).to_have_text("Sign in")
        assert "secret of a page" not in page.content()


def test_an_edited_call_is_what_is_approved_and_nothing_else(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    asked = scene.ask("print('one')\nprint('two')")
    visitor.go(f"/approvals/{asked['id']}")
    page.locator("summary").click()
    page.fill("#text", "print('one')")
    page.get_by_role("button", name="Approve this text once").click()
    expect(page.locator("#approval-state")).to_contain_text("approved with changes")
    place = f"/approvals/{asked['id']}"
    assert scene.api.post(f"{place}:use", json={"digest": asked["digest"]}).status_code == 409
    approved = scene.api.get(place).json()["approved"]
    assert approved["arguments"] == {"code": "print('one')"}
    assert scene.api.post(f"{place}:use", json={"digest": approved["digest"]}).status_code == 200


def test_the_one_who_asked_cannot_answer_and_pages_are_for_scopes(browser: Browser, scene: Scene) -> None:
    asked = scene.ask("print(1)")
    with visiting(browser, scene.url) as visitor:
        visitor.sign_in(scene.agent, f"/approvals/{asked['id']}")
        expect(visitor.page.locator("#answer")).to_contain_text("cannot answer")
    with visiting(browser, scene.url) as visitor:
        visitor.sign_in(scene.server.make_key([Scope.RUN]))
        shown = visitor.page.locator("nav a").all_text_contents()
        assert {"Now", "Tasks"} <= set(shown)
        assert not {"Approvals", "Audit", "Tenants", "Workers"} & set(shown)
        expect(visitor.page.locator("#runs tr")).to_have_count(0)  # runs of other keys
        for path in ("/audit", f"/approvals/{asked['id']}"):
            visitor.go(path)
            expect(visitor.page.locator("h1")).to_have_text("Not allowed")
        visitor.go(f"/runs/{scene.run('print(1)')['run_id']}")
        expect(visitor.page.locator("h1")).to_have_text("Not found")
        visitor.go("/")
        visitor.page.get_by_role("button", name="Sign out").click()
        visitor.go("/")
        expect(visitor.page.locator("h1")).to_have_text("Sign in")


def test_hostile_text_stays_text_everywhere(visitor: Visitor, scene: Scene) -> None:
    """That there was no dialog, no report and no error is asserted by every visitor."""
    page = visitor.page
    visitor.wait_live()
    name = "<img src=x onerror=alert(3)>.csv"
    code = f"import pathlib\np = pathlib.Path('out'); p.mkdir()\n(p / {name!r}).write_text('x')\nprint({HOSTILE!r})\n"
    run = scene.run(f"# {HOSTILE}\n{code}")["run_id"]
    page.locator(f"#row-{run} .state.good").wait_for()
    visitor.go(f"/runs/{run}")
    expect(page.locator(".output")).to_contain_text("<img src=x onerror=alert(1)><script>alert(2)</script>⟨U+001B⟩[31m")
    expect(page.locator(".artifacts")).to_contain_text(name)
    scene.run_agent({f"Read this. {HOSTILE}": ([HOSTILE, call("python", code=f"print({HOSTILE!r})")], HOSTILE)})
    asked = scene.ask(f"# {HOSTILE}", tool="<b>tool</b>")
    task = scene.newest("task.started").parse()["ids"]["task"]
    pages = ("/", "/tasks", f"/tasks/{task}", "/approvals", f"/approvals/{asked['id']}", "/audit?text=<script>")
    for path in (*pages, f"/audit?kind={HOSTILE[:60]}", "/audit?kind=model"):
        visitor.go(path)
        assert page.locator("main img, main script, main b").count() == 0, path
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(overflow) <= 0, path
    seq = scene.newest("model.answered").seq
    visitor.go(f"/audit/records/{seq}")
    expect(page.locator("main")).to_contain_text("<script>alert(2)</script>")


def test_a_task_is_a_story_and_grows_while_it_runs(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    visitor.go("/tasks")
    visitor.wait_live()
    scene.run_agent({"Add up.": (["I add it up.", call("python", code="print(6 * 7)")], "It is 42.")})
    task = scene.newest("task.ended").parse()["ids"]["task"]
    expect(page.locator(f"#task-{task} .state")).to_have_text("done")
    page.locator(f"#task-{task} a").click()
    titles = ["Task", "Told", "Model", "Tool called", "Run: asked for", "Run: ended"]
    titles += ["Tool returned", "Model", "Task ended"]
    expect(page.locator(".step-title")).to_have_text(titles)
    expect(page.locator(".k-message-received .output")).to_contain_text("Add up.")
    expect(page.locator(".k-model-answered .output").last).to_contain_text("It is 42.")
    expect(page.locator("#task-head")).to_contain_text("2 turns, 1 call,")


def test_the_link_of_a_story_is_for_those_of_its_tenant(browser: Browser, visitor: Visitor, scene: Scene) -> None:
    scene.run_agent({"Share it.": ("It is 42.",)})
    task = scene.newest("task.ended").parse()["ids"]["task"]
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.go(f"/tasks/{task}?after=0")
    visitor.page.get_by_role("button", name="Copy the link").click()
    expect(visitor.page.get_by_role("button", name="Copied")).to_be_visible()
    link = visitor.page.evaluate("navigator.clipboard.readText()")
    assert link == f"{scene.url}/console/tasks/{task}"
    operator = {"Authorization": f"Bearer {scene.operator}"}
    assert scene.api.post("/tenants", json={"name": "elsewhere"}, headers=operator).status_code == 201
    stranger = scene.server.make_key([Scope.RUN, Scope.AUDIT], "elsewhere")
    for key, shown in ((scene.server.make_key([Scope.AUDIT]), "It is 42."), (stranger, "There is nothing here")):
        with visiting(browser, scene.url) as other:
            other.page.goto(link)
            other.page.fill("#key", key)
            other.page.keyboard.press("Enter")
            expect(other.page.locator("main")).to_contain_text(shown)


HOSTILE_DISPLAYS = f"""
class Plot:
    def _repr_png_(self): return b"<script>alert(4)</script>"
    def _repr_svg_(self): return "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(5)'/>"
    def _repr_html_(self): return {HOSTILE!r}
    def __repr__(self): return {HOSTILE!r}
display(Plot())
{HOSTILE!r}
"""


def test_a_story_shows_its_figures_and_what_it_cost_and_hostile_ones_stay_files(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    scene.draw()
    task = scene.newest("task.ended").parse()["ids"]["task"]
    visitor.go(f"/tasks/{task}")
    expect(page.locator("#task-head")).to_contain_text("4,130 tokens, $0.0088")
    expect(page.locator(".k-artifacts-found")).to_contain_text("out/totals.png")
    sizes = "Promise.all([...document.images].map(async each => { await each.decode(); return each.naturalWidth }))"
    assert page.evaluate(sizes) == [180, 180]
    place = page.locator(".figure").first.get_attribute("href")
    answer = visitor.context.request.get(f"{visitor.url}{place}")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; sandbox")
    visitor.go("/usage")
    expect(page.locator("figcaption", has_text="Cost of models")).to_contain_text("$0.0")
    scene.run_agent({"Show it.": (call("python", code=HOSTILE_DISPLAYS), "Done.")}, session=True)
    task = scene.newest("task.ended").parse()["ids"]["task"]
    visitor.go(f"/tasks/{task}")
    expect(page.locator(".k-run-finished")).to_contain_text("Also displayed as image/svg+xml, text/html")
    expect(page.locator(".b-value")).to_contain_text("<script>alert(2)</script>")
    assert page.locator("main svg, main script, main b, main iframe").count() == 0
    place = page.locator(".figure").get_attribute("href")
    page.goto(f"{visitor.url}{place}")
    expect(page.locator("h1")).to_have_text("That does not work")


def test_every_page_by_keyboard_alone_and_without_a_serious_problem(visitor: Visitor, scene: Scene) -> None:
    if not list(scene.server.log.find(Query(kind="egress.denied", limit=1))):
        scene.fill()
    scene.ask("print('for a person')")
    page = visitor.page
    for key, title in (("t", "Tasks"), ("a", "Approvals"), ("l", "Audit"), ("n", "Now")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("h1")).to_have_text(title)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*")
    page.keyboard.press("?")
    expect(page.locator("#key-help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#key-help")).to_be_hidden()
    for _ in range(2):
        page.keyboard.press("?")
        page.keyboard.press("Enter")  # on its button
        expect(page.locator("#key-help")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/approvals")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/approvals/*")
    page.focus("#reason")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#approval-state")).to_contain_text("denied by")
    for colours in ("dark", "light"):
        page.emulate_media(color_scheme=colours)
        for name, path in scene.pages().items():
            visitor.go(path)
            assert visitor.problems() == [], (name, colours)
    page.set_viewport_size({"width": 390, "height": 800})
    for name, path in scene.pages().items():
        visitor.go(path)
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(overflow) <= 0, name


def test_a_page_goes_on_after_the_server_was_started_anew(browser: Browser, tmp_path: Path) -> None:
    place = ServerFolder.at(tmp_path / "state")
    with ThreadPoolExecutor(1) as thread:  # Playwright has an event loop in this one
        keys = thread.submit(place.add_tenant, "acme").result()
    settings = {"strict": False}
    with place.served(settings) as first, visiting(browser, first.url) as visitor:
        visitor.sign_in(keys.own)
        visitor.wait_live()
        seen = [_run(first.url, keys.own)]
        page = visitor.page
        expect(page.locator("#runs tr")).to_have_count(1)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        expect(page.locator("#live-state")).to_have_text("reconnecting")
        with place.served(settings) as second:
            seen.append(_run(second.url, keys.own))  # while the page may not be there yet
            expect(page.locator("#runs tr")).to_have_count(2)
            seen.append(_run(second.url, keys.own))
            expect(page.locator("#runs tr")).to_have_count(3)
            ids = page.eval_on_selector_all("#runs tr", "rows => rows.map(row => row.id)")
            assert ids == [f"row-{run}" for run in reversed(seen)]
            expect(page.locator("#runs .state.good")).to_have_count(3)


def _run(url: str, key: str) -> str:
    with httpx.Client(base_url=f"{url}/v1", headers={"Authorization": f"Bearer {key}"}, timeout=60) as api:
        sandbox = api.post("/sandboxes", json={}).json()["id"]
        return api.post(f"/sandboxes/{sandbox}/runs", json={"code": "print(1)"}).json()["run_id"]


@contextmanager
def console(folder: Path, *options: str) -> Iterator[str]:
    """`hood console` for a log and approvals below the folder; its link."""
    variables = {**os.environ, **log_variables(folder)}
    command = [*HOOD, "console", "--no-browser", *options]
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def log_variables(folder: Path) -> dict[str, str]:
    return {"FUMEHOOD_AUDIT": str(folder / "audit"), "FUMEHOOD_APPROVALS": str(folder / "approvals")}


def hood(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **log_variables(folder), "FUMEHOOD_KEEPER": "off"}
    return subprocess.run([*HOOD, *words], env=variables, capture_output=True, text=True, timeout=100)


def test_the_console_of_one_user_shows_the_log_and_an_answer_there_runs_the_code_once(
    browser: Browser, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\napprovals: [{tool: python, expires: 5m}]\naudit: {output: full}\n")
    with console(tmp_path) as link:
        url = link.partition("/console")[0]
        with visiting(browser, url) as visitor:
            page = visitor.page
            page.goto(link)
            visitor.go("/approvals")
            visitor.wait_live()
            command = [*HOOD, "run", "--policy", str(policy), "-c", "print('ran')"]
            variables = {**os.environ, **log_variables(tmp_path), "FUMEHOOD_KEEPER": "off"}
            with subprocess.Popen(
                command,
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
            ) as run:
                page.locator("#asked a").click()
                page.get_by_role("button", name="Approve once").click()
                expect(page.locator("#approval-state")).to_contain_text(re.compile("approved|used"))
                output, told = run.communicate(timeout=60)
            assert (output, run.returncode) == ("ran\n", 0), told
            visitor.go("/")
            expect(page.locator("#runs tr")).to_have_count(1)
        with visiting(browser, url) as other:  # the link works once, and nobody else has the cookie
            other.page.goto(link)
            expect(other.page.locator("h1")).to_have_text("This page is out of date")
            other.go("/audit")
            expect(other.page.locator("h1")).to_have_text("This page is out of date")
        assert httpx.get(f"{url}/console/", headers={"Host": "evil.example"}).status_code == 421


def test_a_tampered_log_is_shown_as_such(browser: Browser, tmp_path: Path) -> None:
    hood(tmp_path, "run", "-c", "print(1)")
    with console(tmp_path) as link, visiting(browser, link.partition("/console")[0]) as visitor:
        page = visitor.page
        page.goto(link)
        visitor.go("/audit")
        expect(page.locator(".bar .state")).to_have_text("verified")
        assert page.locator(".broken").count() == 0
        with closing(sqlite3.connect(tmp_path / "audit" / "audit.db")) as log, log:
            log.execute("UPDATE records SET body = replace(body, 'python', 'pythom') WHERE kind = 'run.requested'")
        page.get_by_role("button", name="Verify now").click()
        expect(page.locator(".tampered")).to_contain_text("This log was changed")
        for colours in ("dark", "light"):
            page.emulate_media(color_scheme=colours)
            assert visitor.problems() == [], colours
        expect(page.locator("tr.broken")).to_contain_text("edited")
        page.locator("tr.broken td a").first.click()
        expect(page.locator(".state.bad")).to_contain_text("edited")


def test_an_export_of_the_console_verifies_and_is_recorded(visitor: Visitor, scene: Scene, tmp_path: Path) -> None:
    from fumehood.audit.inspection import check

    visitor.go("/audit")
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="Export").click()
    file = tmp_path / "export.jsonl"
    download.value.save_as(file)
    assert check(file, scene.server.folder / "tenants" / "acme" / "audit" / "key.pub").problems == ()
    with visitor.page.expect_download():  # the page is still there, and does it again
        visitor.page.get_by_role("button", name="Export").click()
    assert scene.newest("console.viewed").data["what"] == "export"
