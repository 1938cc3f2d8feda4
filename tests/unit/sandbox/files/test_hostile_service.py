"""Suppose that the service itself were taken over: the host believes nothing that it says."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.sandbox.files.rooms import EVERYTHING, files_through, talking_to

from fumehood.errors import FumehoodError, SandboxError
from fumehood.guest.contract.frames import encode
from fumehood.policy import Policy
from fumehood.sandbox.files.entries import is_name, parse_entries

pytestmark = pytest.mark.anyio

EMPTY = hashlib.sha256(b"").hexdigest()
FOLDER = {"name": ".", "kind": "folder", "size": 0, "mode": 0o755, "modified_ns": 0, "target": None, "version": [1, 1]}
FOLDER |= {"uid": 1000, "gid": 1000}


def saying(*messages: bytes) -> Callable[[socket.socket], None]:
    """Answers each request with the next of these, whatever was asked."""

    def serve(stream: socket.socket) -> None:
        for message in messages:
            if not stream.recv(65536):
                return
            try:
                stream.sendall(message)
            except OSError:
                return

    return serve


def entry(**fields: object) -> dict[str, Any]:
    return {**FOLDER, "name": "x", "kind": "file", **fields}


def listing(*entries: dict[str, Any]) -> bytes:
    return encode({"entries": True}, json.dumps(entries).encode()) + encode({"done": {}})


LIES = {
    "a name that goes up": listing(entry(name="..")),
    "a name with a slash": listing(entry(name="../../etc/cron.d/evil")),
    "an absolute name": listing(entry(name="/etc/passwd")),
    "an empty name": listing(entry(name="")),
    "the folder itself": listing(entry(name=".")),
    "a name with NUL": listing(entry(name="a\0b")),
    "a name that is too long": listing(entry(name="x" * 256)),
    "a name that is a number": listing(entry(name=5)),
    "half a character": listing(entry(name="\ud800")),
    "an unknown kind": listing(entry(kind="virus")),
    "a kind that is a list": listing(entry(kind=[])),
    "a size below nothing": listing(entry(size=-1)),
    "a size that is no number": listing(entry(size="1")),
    "a size that is true": listing(entry(size=True)),
    "half an entry": listing({"name": "x"}),
    "no entry": listing(5),  # type: ignore[arg-type]
    "a version of three": listing(entry(version=[1, 2, 3])),
    "no list": encode({"entries": True}, b"{}"),
    "no JSON": encode({"entries": True}, b"["),
    "nested without end": encode({"entries": True}, b"[" * 500_000),
    "more than was asked for": encode({"entries": True}, json.dumps([entry(name=str(n)) for n in range(8000)]).encode())
    * 13,
    "a list in countless pieces": encode({"entries": True}, b"[]") * 1000,
    "a list that is too long": encode({"entries": True}, json.dumps([entry(target="x" * 4000)] * 250).encode()) * 34,
    "an answer of another kind": encode({"data": True}, b"x"),
    "done with nothing": encode({"done": None}),
    "an error that is no object": encode({"error": "ENOENT"}),
    "a header without end": struct.pack("!II", 2**31, 0),
    "a body without end": struct.pack("!II", 2, 2**31) + b"{}",
    "silence": b"",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
async def test_a_list_that_makes_no_sense_is_refused(lie: bytes) -> None:
    async with talking_to(saying(lie)) as conversation:
        files = files_through(Policy(**EVERYTHING), lambda: nullcontext(conversation))
        with pytest.raises(SandboxError):
            await files.list("x")
        assert conversation.is_abandoned


EVIL_TREES = {
    "a path out": [listing(entry(name="../../evil"))],
    "the same name twice": [
        listing(entry(name="a"), entry(name="a")),
        *[encode({"done": {"size": 0, "sha256": EMPTY}})] * 2,
    ],
    "a link, then a file through it": [
        listing(entry(name="a", kind="link", target="../outside"), entry(name="a", kind="folder")),
        listing(entry(name="evil")),
        encode({"done": {"size": 0, "sha256": EMPTY}}),
    ],
    "a wrong digest": [listing(entry(name="a")), encode({"done": {"size": 0, "sha256": "0" * 64}})],
    "no digest": [listing(entry(name="a")), encode({"done": {}})],
    "another size": [listing(entry(name="a")), encode({"done": {"size": 1, "sha256": EMPTY}})],
    "data without end": [listing(entry(name="a")), encode({"data": True}, bytes(2**20)) * 300],
}


@pytest.mark.parametrize("answers", EVIL_TREES.values(), ids=EVIL_TREES.keys())
async def test_a_download_writes_nothing_but_its_target(tmp_path: Path, answers: list[bytes]) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "host").mkdir()
    async with talking_to(saying(encode({"done": FOLDER}), *answers)) as conversation:
        files = files_through(Policy(**EVERYTHING), lambda: nullcontext(conversation))
        try:
            await files.download("out", tmp_path / "host" / "target")
        except FumehoodError:
            assert os.listdir(tmp_path / "host") == []
    assert os.listdir(tmp_path / "outside") == []
    assert set(os.listdir(tmp_path)) == {"outside", "host"}
    assert not any(path.is_symlink() and ".." in os.readlink(path) for path in tmp_path.rglob("*"))


async def test_a_tree_without_end_has_one(tmp_path: Path) -> None:
    """Every folder holds another one, and each is named in the list of what was left out."""
    endless = listing(entry(name="deeper", kind="folder"))
    async with talking_to(saying(encode({"done": FOLDER}), *[endless] * 1000)) as conversation:
        files = files_through(Policy(**EVERYTHING), lambda: nullcontext(conversation))
        transfer = await files.download("out", tmp_path / "target")
    assert transfer.files == 0
    assert transfer.skipped_count == 1


@given(st.binary(max_size=200))
def test_no_list_is_anything_but_entries_or_an_error(body: bytes) -> None:
    with suppress(SandboxError):
        assert all(is_name(item.name) for item in parse_entries(body))


@given(st.text())
def test_a_name_is_never_more_than_one_step(name: str) -> None:
    if is_name(name):
        assert os.path.normpath(f"/top/{name}").count("/") == 2
        assert os.path.dirname(os.path.normpath(f"/top/{name}")) == "/top"
