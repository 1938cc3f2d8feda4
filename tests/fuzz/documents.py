"""Targets that read files and texts which a stranger may have written. See targets.py."""

from __future__ import annotations

import atexit
import html
import io
import json
import re
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from fumehood.audit.export import Export
from fumehood.audit.records import read_record
from fumehood.characters import neutralise
from fumehood.cli.notebook import read_notebook
from fumehood.cli.script_header import read_header
from fumehood.errors import PolicyError, UsageError
from fumehood.notebook_output.html import harmless_html
from fumehood.policy import Commands, Policy
from fumehood.policy.commands import judge
from fumehood.proof.report import read_report
from fumehood.sandbox.archive import ArchiveError, read_archive
from fumehood.server.console.code_view import highlighted, plain_lines
from fumehood.snapshots import SnapshotStore

_RULES = Commands(allow=("ls", "git status", "echo *", "grep *", "find *"), deny=("git push",))
_MOST_LINE = 4096


def shell_line(data: bytes) -> None:
    text = data[:_MOST_LINE].decode("utf-8", "surrogateescape")
    for is_bash in (True, False):
        decision = judge(_RULES, text, is_bash=is_bash)
        assert decision.allowed or decision.denied


def policy_file(data: bytes) -> None:
    try:
        policy = Policy.loads(data, base="/")
    except PolicyError:
        return
    assert Policy.loads(data, base="/").digest == policy.digest


def audit_record(data: bytes) -> None:
    with suppress(ValueError):  # which a text that is not UTF-8 is, too
        record = read_record(data.decode(), b"\0" * 32)
        assert read_record(record.body, record.hash) == record


def audit_export(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(data)
        file.flush()
        with suppress(UsageError):
            export = Export(Path(file.name))
            list(export.records())
            list(export.attachments())


class _Tags(HTMLParser):
    """What a browser's reader would find, by another reader than ours."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, [name for name, _ in attrs]))

    handle_startendtag = handle_starttag


_EXECUTED = {
    "script",
    "svg",
    "iframe",
    "a",
    "object",
    "embed",
    "style",
    "form",
    "link",
    "meta",
    "base",
    "math",
    "input",
}


def notebook_html(data: bytes) -> None:
    reader = _Tags()
    reader.feed(harmless_html(data.decode("utf-8", "replace")))
    for tag, attributes in reader.found:
        assert tag not in _EXECUTED
        assert not any(name.startswith("on") or name in ("href", "srcset", "srcdoc", "action") for name in attributes)


def console_code(data: bytes) -> None:
    """What the page has between its own tags is the text, with every character that hides itself as a number."""
    text = data.decode("utf-8", "replace")
    for markup in (plain_lines(text), highlighted(text, "python"), highlighted(text, "shell"), highlighted(text)):
        reader = _Tags()
        reader.feed(markup)
        assert {tag for tag, _ in reader.found} <= {"pre", "span"}
        assert all(set(names) <= {"class", "tabindex", "data-n"} for _, names in reader.found)
        shown = html.unescape(re.sub(r"<[^<>]*>", "", markup))
        assert all(neutralise(line) == line for line in shown.split("\n"))


def script_header(data: bytes) -> None:
    with suppress(UsageError):
        read_header(data, "script.py")
        read_header(b"# /// script\n# " + data.replace(b"\n", b"\n# ") + b"\n# ///\n", "script.py")


def notebook_file(data: bytes) -> None:
    with suppress(UsageError):
        notebook = read_notebook(data, "a.ipynb")
        assert json.loads(notebook.to_bytes())["nbformat"] == 4


def snapshot_archive(data: bytes) -> None:
    """What is taken of an archive has plain names alone."""
    stream = io.BufferedReader(io.BytesIO(data))  # pyright: ignore[reportArgumentType]
    with suppress(ArchiveError), _store().writing() as writer:
        for entry in read_archive(stream, writer, _ARCHIVE_POLICY).entries:
            assert not {"", ".", ".."} & set(entry.path.split("/"))
            assert entry.mode & ~0o777 == 0


_ARCHIVE_POLICY = Policy(resources={"inodes": 1000, "disk": "1M"})


@cache
def _store() -> SnapshotStore:
    folder = tempfile.mkdtemp(prefix="hood-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return SnapshotStore(Path(folder) / "store")


def proof_report(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(data)
        file.flush()
        with suppress(UsageError):
            report = read_report(Path(file.name))
            assert report.verdict in ("held", "partial", "broken", "incomplete")
            # What another reader finds in the file is what is signed, and nothing besides.
            assert json.loads(data) == json.loads(report.to_json())
