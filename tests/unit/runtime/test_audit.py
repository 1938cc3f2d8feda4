"""What happens in a runtime is in the audit log before anybody gets to know; when it cannot be, it does not happen."""

from __future__ import annotations

import errno
import hashlib
from collections import Counter as Count
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from unit.runtime.sample_agents import READING, Errand, Greeter, Greeting, MakeRuntime, News, Order, Reader, Reply

from fumehood import AuditError
from fumehood.audit import AuditLog, Query, Trail, checkpoints
from fumehood.audit import log as log_module
from fumehood.audit.checkpoints import EVERY_RECORDS
from fumehood.audit.checkpoints import read as read_checkpoint
from fumehood.audit.inspection import check
from fumehood.audit.records import Entry
from fumehood.runtime import AgentFailedError, AgentId, Grants, LocalRuntime, NotGrantedError, Reason, handles

pytestmark = pytest.mark.anyio


def kinds(log: AuditLog) -> list[str]:
    return [record.kind for record in log.find(Query()) if not record.kind.startswith("log.")]


async def test_a_conversation_can_be_followed_from_record_to_record(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    async with make_runtime(audit=Trail(log, who="tester")) as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("errand", Errand, grants=Grants(agents=["greeter"]))
        await runtime.send(Order(what="greet", target="greeter/g"), to="errand/e")
    assert kinds(log) == [
        *("runtime.started", "agent.registered", "agent.registered"),
        *("message.sent", "agent.created", "message.sent", "agent.created"),
        *("message.handled", "message.handled"),
        *("agent.stopped", "agent.stopped", "runtime.stopped"),
    ]
    outer, inner = log.find(Query(kind="message.sent"))
    assert (outer.data["type"], outer.data["to"], "sender" in outer.data) == ("Order", "errand/e", False)
    assert (inner.data["type"], inner.data["sender"], inner.data["to"]) == ("Greeting", "errand/e", "greeter/g")
    assert inner.data["cause"] == outer.parse()["ids"]["message"]
    assert {record.parse()["who"] for record in log.find(Query(kind="message"))} == {"tester"}
    assert len({record.parse()["ids"]["runtime"] for record in log.find(Query(kind="agent"))}) == 1
    assert check(tmp_path / "audit", None).ok


async def test_content_is_in_the_log_as_a_digest_unless_said_otherwise(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    body = b'{"name":"confidential"}'
    digest = hashlib.sha256(body).hexdigest()
    for keep, expected in (
        ("digest", {"sha256": digest, "size": len(body)}),
        ("full", {"sha256": digest, "size": len(body), "stored": digest}),
        ("none", None),
    ):
        log = AuditLog.at(tmp_path / keep)
        async with make_runtime(audit=log, keep=keep) as runtime:
            await runtime.register("greeter", Greeter)
            await runtime.send(Greeting(name="confidential"), to="greeter")
        (record,) = log.find(Query(kind="message.sent"))
        assert record.data.get("body") == expected
        assert log.attachment(digest) == (body if keep == "full" else None)
        assert not any("confidential" in record.body for record in log.find(Query()))


async def test_a_publication_names_who_gets_it(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    async with make_runtime(audit=log) as runtime:
        for name in ("one", "two"):
            await runtime.register(name, Reader, grants=READING)
        await runtime.publish(News(headline=""), topic="news.a/s")
    (record,) = log.find(Query(kind="message.published"))
    assert (record.data["topic"], record.data["recipients"]) == ("news.a/s", ["one/s", "two/s"])
    ids = [record.parse()["ids"] for record in log.find(Query(kind="message.handled"))]
    assert sorted(each["agent"] for each in ids) == ["one/s", "two/s"]
    assert {each["message"] for each in ids} == {record.parse()["ids"]["message"]}


async def test_what_went_wrong_is_recorded_without_the_words_of_an_error(
    make_runtime: MakeRuntime, tmp_path: Path
) -> None:
    log = AuditLog.at(tmp_path / "audit")
    async with make_runtime(audit=log) as runtime:
        await runtime.register("errand", Errand)
        with pytest.raises(AgentFailedError):
            await runtime.send(Order(what="whisper passwords"), to="errand")
        await runtime.grant("errand", Grants(agents=["errand"]))
    (record,) = log.find(Query(kind="message.dead"))
    assert {**record.data} == {"type": "Order", "target": "errand/default", "reason": "failed", "error": "ValueError"}
    (granted,) = log.find(Query(kind="agent.granted"))
    assert (granted.data["agent"], granted.data["grants"]["agents"]) == ("errand", ["errand"])


class Failing(AuditLog):
    """A log whose disk is full from some moment on, or whenever it is to take a record of some kind."""

    is_full = False
    refuses = ""

    def append(self, entries: Sequence[Entry]) -> None:
        if self.is_full or any(entry.kind == self.refuses for entry in entries):
            raise AuditError("the disk is full")
        super().append(entries)


@pytest.fixture
def failing(tmp_path: Path) -> Failing:
    log = AuditLog.at(tmp_path / "audit")
    log.__class__ = Failing
    assert isinstance(log, Failing)
    return log


async def test_when_the_log_cannot_be_written_nothing_is_delivered(make_runtime: MakeRuntime, failing: Failing) -> None:
    handled: list[str] = []

    @handles
    async def take(message: Greeting | News) -> None:
        handled.append(type(message).__name__)

    async with make_runtime(audit=failing) as runtime:
        await runtime.register("taker", take, grants=READING, subscriptions=["news.*"])
        await runtime.send(Greeting(name=""), to="taker")
        failing.is_full = True
        with pytest.raises(AuditError, match="the disk is full"):
            await runtime.send(Greeting(name=""), to="taker")
        with pytest.raises(AuditError, match="the disk is full"):
            await runtime.publish(News(headline=""), topic="news.a")
        with pytest.raises(AuditError, match="the disk is full"):
            await runtime.register("another", Greeter)
        with pytest.raises(AuditError, match="the disk is full"):
            await runtime.grant("taker", Grants(agents=["*"]))
        # A denial that cannot be recorded is no permission.
        with pytest.raises(AuditError, match="the disk is full"):
            await runtime.send(Greeting(name=""), to="taker", sender=AgentId("taker"))
        failing.is_full = False
        with pytest.raises(NotGrantedError):
            await runtime.send(Greeting(name=""), to="taker", sender=AgentId("taker"))
        await runtime.send(Greeting(name=""), to="taker")
    assert handled == ["Greeting", "Greeting"]
    assert Count(letter.reason for letter in runtime.dead_letters) == {Reason.UNRECORDED: 2}


@pytest.mark.parametrize("refused", ["message.handled", "agent.created"])
async def test_an_answer_that_cannot_be_recorded_is_not_handed_over(
    make_runtime: MakeRuntime, failing: Failing, refused: str
) -> None:
    async with make_runtime(audit=failing) as runtime:
        await runtime.register("greeter", Greeter)
        failing.refuses = refused
        with pytest.raises(AuditError, match="the disk is full"):
            await runtime.send(Greeting(name=""), to="greeter")
        failing.refuses = ""
        assert isinstance(await runtime.send(Greeting(name=""), to="greeter"), Reply)
    assert [letter.reason for letter in runtime.dead_letters] == [Reason.UNRECORDED]


async def test_messages_of_the_same_moment_share_a_commit(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    commits = 0
    append = log.append

    def counting(*args: object) -> None:
        nonlocal commits
        commits += 1
        append(*args)  # type: ignore[arg-type]

    log.append = counting  # type: ignore[method-assign]
    async with LocalRuntime(audit=log) as runtime:
        await runtime.register("greeter", Greeter)
        before = commits
        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(lambda number=number: runtime.send(Greeting(name=""), to=f"greeter/{number}"))
        taken = commits - before
    assert sum(kind.startswith(("message.", "agent.created")) for kind in kinds(log)) == 150
    assert taken <= 6


async def test_many_messages_are_signed_in_time_and_the_signature_is_on_the_disk(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    async with LocalRuntime(audit=log) as runtime:
        await runtime.register("greeter", Greeter, at_once=64)
        async with anyio.create_task_group() as group:
            for _ in range(600):
                group.start_soon(lambda: runtime.send(Greeting(name=""), to="greeter"))
    signed = [record.seq for record in log.find(Query(kind="log.checkpoint"))]
    assert len(signed) > 3
    assert max(after - before for before, after in pairwise(signed)) < 2 * EVERY_RECORDS
    assert read_checkpoint(log.folder / "checkpoint.json").seq == signed[-1]
    assert check(log.folder, None).ok


@pytest.mark.parametrize("harm", ["unsigned", "unkept"])
async def test_what_cannot_be_signed_or_kept_stops_the_messages_that_follow(
    tmp_path: Path, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signature is made after the answers of its batch were returned."""
    log = AuditLog.at(tmp_path / "audit")
    async with LocalRuntime(audit=log) as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.send(Greeting(name=""), to="greeter")
        with monkeypatch.context() as broken:
            broken.setattr(log_module, "EVERY_RECORDS", 1)
            if harm == "unsigned":
                (log.folder / "key.pem").rename(tmp_path / "key.pem")
                log._key = None
            else:
                broken.setattr(checkpoints, "keep", full_disk)
            with pytest.raises(AuditError, match=r"key\.pem|cannot be kept"):
                await greet_often(runtime)
            if harm == "unsigned":
                (tmp_path / "key.pem").rename(log.folder / "key.pem")
        with suppress(AuditError):  # one that was begun before it was mended
            await runtime.send(Greeting(name=""), to="greeter")
        assert isinstance(await runtime.send(Greeting(name=""), to="greeter"), Reply)
    assert check(log.folder, None).ok


async def greet_often(runtime: LocalRuntime) -> None:
    for _ in range(3):
        await runtime.send(Greeting(name=""), to="greeter")


def full_disk(*args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
