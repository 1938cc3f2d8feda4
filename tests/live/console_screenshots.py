"""Screenshots of every page of the console, light and dark, desktop and phone, with what the examples do.

    .venv/bin/python tests/live/console_screenshots.py FOLDER [NAME...]

A server of its own, at the loopback, and a cluster with two workers; chromium and nats-server have to be there. Then a
denied attempt on its way to a rule, step by step, and `hood console`. `docs/images` has some of them, made smaller.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from hood_cluster import running_cluster, wait_for_workers  # noqa: E402
from live.console_browser import Visitor, open_browser, visiting  # noqa: E402
from live.console_scene import HOSTILE, Scene, open_scene  # noqa: E402
from live.test_console import console, hood, log_variables  # noqa: E402
from playwright.sync_api import Browser  # noqa: E402

from fumehood.server.identity.principals import OF_TENANTS, Scope  # noqa: E402

SIZES = {"desktop": {"width": 1280, "height": 860}, "phone": {"width": 390, "height": 844}}
THEMES = ("light", "dark")
_LOADED = (
    """Promise.all([...document.images].map(each => { each.loading = "eager"; return each.decode().catch(() => 0) }))"""
)


class Camera:
    def __init__(self, folder: Path, names: list[str]) -> None:
        self._folder, self._names = folder, names
        folder.mkdir(parents=True, exist_ok=True)

    def wants(self, *names: str) -> bool:
        return not self._names or any(name in self._names for name in names)

    def take(self, visitor: Visitor, name: str, size: str, theme: str) -> None:
        if self.wants(name):
            place = self._folder / f"{name}-{size}-{theme}.png"
            visitor.page.evaluate(_LOADED)
            visitor.page.screenshot(path=place, full_page=True)


def take_pages(camera: Camera, browser: Browser, scene: Scene) -> None:
    pages: Mapping[str, str] = {**scene.pages(), **scene.managing()}
    problems = {"not-found": "/runs/run_0", "empty-search": "/audit?text=nothing-has-this"}
    for size, viewport in SIZES.items():
        for theme in THEMES:
            with visiting(browser, scene.url, viewport=viewport, color_scheme=theme) as visitor:
                visitor.go("/sign-in")
                camera.take(visitor, "sign-in", size, theme)
                visitor.sign_in(scene.operator)
                for name, path in {**pages, **problems}.items():
                    if camera.wants(name):
                        visitor.go(path)
                        camera.take(visitor, name, size, theme)
                if camera.wants("key-help"):
                    visitor.go("/")
                    visitor.page.keyboard.press("?")
                    camera.take(visitor, "key-help", size, theme)
                if camera.wants("new-key"):
                    visitor.go("/keys")
                    visitor.page.fill("#name", "for the laptop")
                    visitor.page.check("[name=scope-run]")
                    visitor.page.get_by_role("button", name="Make the key").click()
                    camera.take(visitor, "new-key", size, theme)


def take_troubles(camera: Camera, browser: Browser, scene: Scene) -> None:
    """What is not for the viewer, a session that is over, a call of high risk after a while, hostile text."""
    for size, viewport in SIZES.items():
        for theme in THEMES:
            with visiting(browser, scene.url, viewport=viewport, color_scheme=theme) as visitor:
                visitor.sign_in(scene.server.make_key([Scope.RUN]))
                visitor.go("/audit")
                camera.take(visitor, "denied", size, theme)
            with visiting(browser, scene.url, viewport=viewport, color_scheme=theme) as visitor:
                visitor.sign_in(scene.operator, "/audit?since=yesterday")
                camera.take(visitor, "wrong", size, theme)
                asked = scene.ask(f"# {HOSTILE}\nprint('a\u202eb')")["id"]
                visitor.go(f"/approvals/{asked}")
                camera.take(visitor, "hostile", size, theme)
                visitor.context.clear_cookies()
                visitor.page.get_by_role("button", name="Approve once").click()
                camera.take(visitor, "expired", size, theme)


def take_empty(camera: Camera, browser: Browser, scene: Scene) -> None:
    """A tenant in which nothing has happened yet, for its first key."""
    key = scene.server.make_key([Scope.RUN])
    for size, viewport in SIZES.items():
        with visiting(browser, scene.url, viewport=viewport, color_scheme="light") as visitor:
            visitor.sign_in(key)
            for name, path in {"empty-now": "/", "empty-tasks": "/tasks", "empty-egress": "/egress"}.items():
                visitor.go(path)
                camera.take(visitor, name, size, "light")


def take_steps(camera: Camera, browser: Browser, scene: Scene) -> None:
    """A denied attempt, what it would take, the text with the rule, and the version that was saved."""
    with visiting(browser, scene.url, viewport=SIZES["desktop"], color_scheme="light") as visitor:
        page = visitor.page
        visitor.sign_in(scene.operator)
        camera.take(visitor, "step-1-now", "desktop", "light")
        page.locator("#denials li a", has_text="collect.example").last.click()
        camera.take(visitor, "step-2-run", "desktop", "light")
        page.get_by_role("link", name="Propose it").first.click()
        camera.take(visitor, "step-3-change", "desktop", "light")
        page.get_by_role("button", name="Save as version").click()
        camera.take(visitor, "step-4-saved", "desktop", "light")
        scene.run(
            "import socket\ntry: socket.create_connection(('collect.example', 443), 5)\nexcept OSError as e: print(e)"
        )
        visitor.go("/egress?host=collect.example")
        camera.take(visitor, "step-5-egress", "desktop", "light")


def take_workers(camera: Camera, browser: Browser) -> None:
    with running_cluster() as cluster:
        server = cluster.server()
        for name, slots in (("rack-1-node-04", "16"), ("rack-2-node-11", "64")):
            cluster.worker(name, "--slots", slots, "--label", "zone=eu-central-1a")
        wait_for_workers(server, 2)
        key = server.make_key([*OF_TENANTS, Scope.OPERATE])
        for size, viewport in SIZES.items():
            for theme in THEMES:
                with visiting(browser, server.url, viewport=viewport, color_scheme=theme) as visitor:
                    visitor.sign_in(key)
                    visitor.go("/workers")
                    camera.take(visitor, "workers", size, theme)
        with visiting(browser, server.url, viewport=SIZES["desktop"], color_scheme="light") as visitor:
            visitor.sign_in(key)
            visitor.go("/workers")
            visitor.page.get_by_role("button", name="Drain rack-1-node-04").click()
            camera.take(visitor, "workers-drained", "desktop", "light")


def take_local(camera: Camera, browser: Browser, folder: Path) -> None:
    """`hood console`, with a run, a denial and a task of an example in the log."""
    folder.mkdir(parents=True, exist_ok=True)
    hood(folder, "run", "-c", "print(6 * 7)")
    hood(folder, "run", "-c", "import socket; socket.create_connection(('203.0.113.10', 443))")
    script = str(ROOT / "examples" / "agent" / "solve.py")
    subprocess.run(
        [sys.executable, script],
        env={**os.environ, **log_variables(folder)},
        capture_output=True,
        timeout=200,
        check=False,
    )
    for size, viewport in SIZES.items():
        with console(folder) as link:
            url = link.partition("/console")[0]
            with visiting(browser, url, viewport=viewport, color_scheme="light") as visitor:
                visitor.page.goto(link)
                for name, path in {
                    "now": "/",
                    "tasks": "/tasks",
                    "egress": "/egress",
                    "audit": "/audit",
                    "usage": "/usage",
                }.items():
                    visitor.go(path)
                    camera.take(visitor, f"local-{name}", size, "light")
    with closing(sqlite3.connect(folder / "audit" / "audit.db")) as log, log:
        log.execute("UPDATE records SET body = replace(body, 'python', 'pythom') WHERE kind = 'run.requested'")
    for size, viewport in SIZES.items():
        for theme in THEMES:
            with console(folder) as link:
                url = link.partition("/console")[0]
                with visiting(browser, url, viewport=viewport, color_scheme=theme) as visitor:
                    visitor.page.goto(link)
                    visitor.go("/audit")
                    camera.take(visitor, "tampered", size, theme)


def main(folder: Path, names: list[str]) -> None:
    camera = Camera(folder, names)
    with open_browser() as browser:
        if camera.wants("workers", "workers-drained"):
            take_workers(camera, browser)
        with open_scene() as scene:
            scene.fill()
            scene.furnish()
            take_empty(camera, browser, scene)
            take_pages(camera, browser, scene)
            take_steps(camera, browser, scene)
            take_troubles(camera, browser, scene)
        if not names or any(name.startswith("local") for name in names):
            take_local(camera, browser, folder / "state")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
