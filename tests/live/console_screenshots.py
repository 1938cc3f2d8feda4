"""Screenshots of every page of the console, light and dark, desktop and phone, with what the examples do.

    .venv/bin/python tests/live/console_screenshots.py FOLDER

A server of its own, at the loopback; chromium has to be there. `docs/images` has some of them, made smaller.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from live.console_browser import open_browser, visiting  # noqa: E402
from live.console_scene import open_scene  # noqa: E402

SIZES = {"desktop": {"width": 1280, "height": 860}, "phone": {"width": 390, "height": 844}}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open_scene() as scene, open_browser() as browser:
        scene.fill()
        for size, viewport in SIZES.items():
            for colours in ("light", "dark"):
                with visiting(browser, scene.url, viewport=viewport, color_scheme=colours) as visitor:
                    visitor.go("/sign-in")
                    visitor.page.screenshot(path=folder / f"sign-in-{size}-{colours}.png")
                    visitor.sign_in(scene.person)
                    for name, path in scene.pages().items():
                        visitor.go(path)
                        visitor.page.screenshot(path=folder / f"{name}-{size}-{colours}.png", full_page=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
