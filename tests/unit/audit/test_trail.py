"""What a trail writes: who, which ids, and nothing that is secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from unit.audit.logs import Told, verdict

from fumehood.audit import Attachment, AuditEvent, AuditLog, Digest, Query, Trail
from fumehood.errors import AuditError
from fumehood.policy import Policy
from fumehood.policy.secret import ProcessSecrets
from fumehood.secret_scan.redaction import Redaction

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True)
class Everything(AuditEvent):
    kind = "test.everything"

    text: str
    number: int
    truth: bool
    nothing: None
    many: tuple[str, ...]
    table: Mapping[str, object]
    digest: Digest
    attachment: Attachment


@dataclass(frozen=True, slots=True)
class Fraction(AuditEvent):
    kind = "test.fraction"

    value: float


SECRET = "hunter2 \N{LATIN SMALL LETTER U WITH DIAERESIS}ber"


async def test_an_event_becomes_a_record(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "log")
    trail = Trail(log, who="alice", tenant="acme").within(task="task_1").within(run="run_1")
    event = Everything("a", 1, True, None, ("x", "y"), {"k": {"n": 1}}, Digest.of(b"abc"), Attachment(b"kept"))
    await trail.write(event)
    (record,) = log.find(Query(run_id="run_1"))
    assert record.parse()["who"], record.parse()["tenant"] == ("alice", "acme")
    assert record.parse()["ids"] == {"task": "task_1", "run": "run_1"}
    assert record.data["many"] == ["x", "y"]
    assert record.data["table"] == {"k": {"n": 1}}
    assert record.data["digest"] == {"sha256": Digest.of(b"abc").sha256, "size": 3}
    assert "nothing" not in record.data
    assert log.attachment(record.data["attachment"]["stored"]) == b"kept"


async def test_what_has_no_single_spelling_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot hold float"):
        await Trail(AuditLog.at(tmp_path / "log")).write(Fraction(0.5))


@dataclass(frozen=True, slots=True)
class Stored(AuditEvent):
    kind = "test.stored"

    stored: str


@dataclass(frozen=True, slots=True)
class Table(AuditEvent):
    kind = "test.table"

    table: Mapping[str, object]


@pytest.mark.parametrize("event", [Stored("0" * 64), Table({"stored": "0" * 64}), Table({"a": [{"stored": "0" * 64}]})])
async def test_no_event_claims_an_attachment_that_it_does_not_have(tmp_path: Path, event: AuditEvent) -> None:
    """Verification would miss it."""
    log = AuditLog.at(tmp_path / "log")
    with pytest.raises(TypeError, match="cannot have a field or a key 'stored'"):
        await Trail(log).write(event)
    await Trail(log).write(Table({"text": '"stored":"' + "0" * 64 + '"'}))
    log.checkpoint()
    assert verdict(log.folder) == []


async def test_secrets_are_blacked_out_wherever_they_are(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "log")
    trail = Trail(log, who="me").redacting(Redaction.of([SECRET, "hunter2"]))
    event = Everything(
        f"<{SECRET}>",
        1,
        True,
        None,
        (SECRET,),
        {SECRET: [SECRET]},
        Digest.of(b""),
        Attachment(f"print('{SECRET}')".encode()),
    )
    await trail.write(event)
    (record,) = log.find(Query(kind="test"))
    kept = log.attachment(record.data["attachment"]["stored"])
    assert kept == b"print('[redacted]')"
    assert record.data["text"] == "<[redacted]>"
    assert record.data["table"] == {"[redacted]": ["[redacted]"]}
    for file in log.folder.iterdir():
        assert SECRET.encode() not in file.read_bytes()
        assert b"hunter2" not in file.read_bytes()
    assert record.data["attachment"]["sha256"] == Digest.of(event.attachment.data).sha256


async def test_without_redaction_the_secret_would_be_there(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "log")
    await Trail(log, who="me").write(Told("hunter2", Attachment(b"hunter2")))
    assert any(b"hunter2" in file.read_bytes() for file in log.folder.iterdir())


def test_the_secrets_are_those_of_the_policy(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-a-file\n")
    policy = Policy(
        secrets=[
            {"name": "A", "from_env": "TOKEN", "inject": {"host": "api.example.com", "header": "X-A"}},
            {"name": "B", "from_file": str(file), "inject": {"host": "api.example.com", "header": "X-B"}},
            {"name": "C", "from_env": "NOT_SET", "inject": {"host": "api.example.com", "header": "X-C"}},
        ],
        network={"allow": [{"host": "api.example.com", "ports": [443]}]},
    )
    redaction = Redaction.for_policy(policy, ProcessSecrets({"TOKEN": "from-a-variable"}))
    assert redaction.text("from-a-variable, from-a-file.") == "[redacted], [redacted]."


def test_a_secret_is_blacked_out_in_any_case_of_letters() -> None:
    """A name that is looked up is written in small ones."""
    redaction = Redaction.of(["Ghp_Token"])
    assert redaction.text("dns ghp_token.evil.com: no rule") == "dns [redacted].evil.com: no rule"
    assert redaction.data(b"GHP_TOKEN") == b"[redacted]"


async def test_without_a_log_nothing_is_written_and_nothing_fails() -> None:
    trail = Trail()
    assert not trail.is_on
    await trail.write(Told("nobody hears"))


def told(log: AuditLog) -> list[str]:
    return [record.data["text"] for record in log.find(Query(kind="test.told"))]


async def test_what_is_deferred_is_written_with_the_next_record_and_before_it(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "log")
    trail, other = Trail(log, who="alice"), Trail(log, who="bob")
    await trail.defer(Told("first"))
    await trail.defer(Told("second"))
    assert told(log) == []
    await other.write(Told("third"))
    assert told(log) == ["first", "second", "third"]
    await trail.defer(Told("fourth"))
    await trail.flush()
    await trail.flush()
    assert told(log)[3:] == ["fourth"]
    assert {record.parse()["who"] for record in log.find(Query(text="fourth"))} == {"alice"}
    assert verdict(log.folder) == []


async def test_what_was_deferred_and_cannot_be_written_keeps_what_follows_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All or none: what has led to a record is never missing before it."""
    log = AuditLog.at(tmp_path / "log")
    trail = Trail(log, who="alice")
    await trail.defer(Told("the call"))
    with monkeypatch.context() as full:
        full.setattr(log, "_store", FullDisk())
        with pytest.raises(AuditError, match="the disk is full"):
            await trail.write(Told("the run"))
        with pytest.raises(AuditError, match="the disk is full"):
            await trail.flush()
    assert told(log) == []
    await trail.write(Told("another run"))
    assert told(log) == ["the call", "another run"]


async def test_not_everything_is_deferred_when_the_log_cannot_be_written_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog.at(tmp_path / "log")
    trail = Trail(log, who="alice")
    monkeypatch.setattr(log, "_store", FullDisk())
    for _ in range(64):
        await trail.defer(Told("waits"))
    with pytest.raises(AuditError, match="the disk is full"):
        await trail.defer(Told("one too many"))


async def test_a_log_that_is_closed_has_what_was_deferred(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "log")
    await Trail(log, who="alice").defer(Told("at last"))
    log.close()
    assert told(AuditLog.at(tmp_path / "log")) == ["at last"]


class FullDisk:
    def extend(self, *args: object, **options: object) -> None:
        raise AuditError("the disk is full")
