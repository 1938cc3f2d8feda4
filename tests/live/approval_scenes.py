"""The walk of docs/approvals.md, played at a real terminal. `python tests/live/approval_scenes.py` prints it anew."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from live.cli_host import open_terminal

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "approvals.md"
PROMPT = b"details ? "
# What somebody presses, one key after the other.
SCENES = {"denied": "d", "approved": "a", "edited": "ea", "expired": ""}
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
SCENE = re.compile(r"<!-- scene: (\w+) -->\n```text\n\$ (hood [^\n]+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def play(command: str, keys: str) -> str:
    """What is on the terminal at the end, with the files of the document in the current folder."""
    with staged() as place, open_terminal(*command.split()[1:], env=place) as terminal:
        shown = b""
        for key in keys:
            terminal.wait_for(PROMPT)
            shown, terminal.seen = shown + terminal.seen, b""
            terminal.type(key.encode())
        terminal.wait_for_end()
        shown += terminal.seen
    return shown.decode().replace("\r\n", "\n").strip("\n") + "\n"


@contextmanager
def staged() -> Iterator[dict[str, str]]:
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILE.findall(DOCUMENT.read_text()):
            (Path(folder) / name).write_text(text)
        os.chdir(folder)
        try:
            yield {
                **os.environ,
                "FUMEHOOD_APPROVALS": f"{folder}/approvals",
                "FUMEHOOD_AUDIT": f"{folder}/audit",
                "EDITOR": f"sh {folder}/editor",
                "NO_COLOR": "1",
            }
        finally:
            os.chdir(before)


def same(text: str) -> str:
    """Without what is another every time: ids, digests, times, and who it is."""
    text = re.sub(r"ask_[0-9a-f]{16}", "ask_ID", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "DIGEST", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\b\d\d:\d\d:\d\d", "TIME", text)
    return re.sub(r"(asked by: +|(?:approved|denied|changes) by )[\w.-]+", r"\1USER", text)


def scenes() -> Iterator[tuple[str, str, str]]:
    """Name, command, and what the document shows."""
    yield from SCENE.findall(DOCUMENT.read_text())


if __name__ == "__main__":
    DOCUMENT.write_text(
        SCENE.sub(
            lambda scene: f"<!-- scene: {scene[1]} -->\n```text\n$ {scene[2]}\n{play(scene[2], SCENES[scene[1]])}```",
            DOCUMENT.read_text(),
        )
    )
