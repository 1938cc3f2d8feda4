"""`hood audit`, as somebody at a terminal meets it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest
from unit.audit.logs import editing, make_log, write
from unit.audit.tamperings import TAMPERINGS

from fumehood import Policy, Sandbox
from fumehood.audit import AuditLog, Trail
from fumehood.audit.events import RunStarted
from fumehood.audit.records import Entry, read_record
from fumehood.audit.words import Shown, summary
from fumehood.characters import width_of
from fumehood.cli import exitcodes
from fumehood.cli.entry import run_command

WIDTH = 80
KINDS = (
    *("sandbox.opened", "run.requested", "run.finished", "file.in", "artifacts.found", "message.sent", "grant.denied"),
    *("task.started", "task.ended", "tool.called", "approval.asked", "log.checkpoint", "request.denied"),
)
Hood = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def hood(folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Hood:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("FUMEHOOD_AUDIT", str(folder))

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run_command(["audit", *arguments])
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def run_id(folder: Path) -> str:
    """Of a run that has code, output and a name that would do something to a terminal."""
    policy = Policy(name="analyst", audit={"code": "full", "output": "full"})
    with Sandbox(policy, audit=folder) as box:
        return box.run("print('\\x1b[2J shown')").run_id


def test_tail_shows_the_newest_and_cuts_nothing_off_in_a_pipe(hood: Hood, run_id: str, folder: Path) -> None:
    anyio.run(write, AuditLog.at(folder), "long " * 100 + "end")
    code, out, _ = hood("tail")
    day, *rest = out.splitlines()
    assert code == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", day)
    kinds = ["run.requested", "run.started", "run.finished", "sandbox.closed", "test.told"]
    assert [line.split()[2] for line in rest[-5:]] == kinds
    assert run_id in rest[-3]
    assert rest[-1].endswith("long end")
    assert hood("tail", "-n", "1")[1].splitlines()[1:] == rest[-1:]


def test_tail_fits_the_terminal_that_it_is_shown_on(run_id: str, folder: Path) -> None:
    anyio.run(write, AuditLog.at(folder), "\u5b57" * 100, "long " * 100 + "end")
    master, slave = os.openpty()
    environment = {**os.environ, "FUMEHOOD_AUDIT": str(folder), "COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-W", "ignore", "-m", "fumehood", "audit", "tail", "-n", "4"]
    subprocess.run(command, stdout=slave, env=environment, check=True)
    os.close(slave)
    lines = os.read(master, 1 << 16).decode().splitlines()
    os.close(master)
    assert all(width_of(line) <= WIDTH for line in lines)
    assert lines[-1].endswith("...")


HOSTILE = "a\n02:36:06.043  run_1  run.finished     success\r\x1b[2K\u202e\x9b\u2028b"


@pytest.mark.parametrize("command", [["tail"], ["search", "run_1"], ["show", "run_1"], ["show", "box_1"]])
def test_nothing_in_a_record_makes_a_line_of_its_own_or_reaches_the_terminal(
    hood: Hood, folder: Path, command: list[str]
) -> None:
    """In every place of a record that somebody else can fill."""
    log = AuditLog.at(folder)
    trail = Trail(log, who=HOSTILE).within(run="run_1", sandbox="box_1", agent=HOSTILE)
    for kind in (*KINDS, HOSTILE):
        data = dict.fromkeys(
            ("path", "command", "policy_name", "detail", "status", "problem", "reason", HOSTILE), HOSTILE
        )
        log.append([trail.stamp(RunStarted())._replace(kind=kind, data=data)])
    anyio.run(partial(write, log, kept=HOSTILE.encode()), HOSTILE)
    code, out, _ = hood(*command)
    assert code == 0
    assert out.count("02:36:06.043") > 1
    assert not [line for line in out.split("\n") if line.startswith("02:36:06.043")]
    assert [character for character in out if character != "\n" and not character.isprintable()] == []


def test_a_damaged_record_does_not_keep_the_others_from_being_shown(hood: Hood, folder: Path) -> None:
    anyio.run(make_log, folder)
    with editing(folder) as connection:
        connection.execute("UPDATE records SET time = 'never', kind = 'run.finished' WHERE seq = 5")
        connection.execute("UPDATE records SET body = x'00ff' WHERE seq = 6")
        connection.execute(
            """UPDATE records SET body = '{"data":{"duration_us":"x"}}', kind = 'run.finished' WHERE seq = 7"""
        )
    code, out, _ = hood("tail")
    assert (code, "fourteen" in out, "??:??:??.???" in out) == (0, True, True)
    assert hood("show", "run_1")[0] == 0


def test_show_last_is_the_newest_run(hood: Hood, run_id: str, folder: Path) -> None:
    assert hood("show", "last") == hood("show", run_id)
    code, _, error = hood("show", "last", "--log", str(folder.parent / "none"))
    assert (code, "there is no audit log" in error) == (2, True)
    AuditLog.at(folder.parent / "none")
    code, _, error = hood("show", "last", "--log", str(folder.parent / "none"))
    assert (code, "no run is in the log" in error) == (2, True)


def test_show_tells_the_story_of_a_run(hood: Hood, run_id: str) -> None:
    code, out, _ = hood("show", run_id[:10])
    assert code == 0
    assert out.startswith(run_id)
    assert "analyst" in out.splitlines()[1]
    assert "    | print('\\x1b[2J shown')" in out
    assert "    | ⟨U+001B⟩[2J shown" in out
    assert "\x1b" not in out
    assert "status: success" in out


def test_show_knows_sandboxes_and_says_what_it_does_not_know(hood: Hood, run_id: str) -> None:
    records = [json.loads(line)["record"] for line in hood("show", run_id, "--json")[1].splitlines()]
    sandbox = records[0]["ids"]["sandbox"]
    assert "sandbox.closed" in hood("show", sandbox)[1]
    code, _, error = hood("show", "run_none")
    assert (code, "no run or sandbox 'run_none'" in error) == (2, True)


def test_search_finds_by_what_is_asked(hood: Hood, run_id: str) -> None:
    for conditions in (
        ["--status", "success"],
        ["--run", run_id, "--kind", "run.finished"],
        ["--since", "1h", "success"],
    ):
        code, out, _ = hood("search", *conditions, "--json")
        assert code == 0
        assert [json.loads(line)["record"]["kind"] for line in out.splitlines()] == ["run.finished"]
    assert hood("search", "--status", "timeout") == (1, "", "hood: no record matches\n")
    assert hood("search", "--until", "2020-01-01") == (1, "", "hood: no record matches\n")
    code, _, error = hood("search", "--since", "yesterday")
    assert (code, "'yesterday' is not a time" in error) == (2, True)


def test_search_by_status_finds_whatever_was_denied(hood: Hood, folder: Path) -> None:
    log = AuditLog.at(folder)
    trail = Trail(log, who="me").within(run="run_1")
    denied = {
        "request.denied": {"action": "run", "error": "DeniedError", "reason": "not allowed"},
        "sandbox.refused": {"reason": "cannot be enforced"},
        "run.finished": {"status": "denied", "cause": "policy"},
        "grant.denied": {"action": "send to"},
    }
    others = {"run.broke": {"reason": "denied"}, "run.denied.not": {}, "run.requested": {"command": "denied"}}
    for kind, data in {**denied, **others}.items():
        log.append([trail.stamp(RunStarted())._replace(kind=kind, data=data)])
    code, out, _ = hood("search", "--status", "denied", "--json")
    assert code == 0
    assert [json.loads(line)["record"]["kind"] for line in out.splitlines()] == list(denied)


def test_show_keeps_tabs_and_blanks_apart(hood: Hood, folder: Path) -> None:
    anyio.run(partial(write, AuditLog.at(folder), kept=b"\ta \n    a\n"), "one")
    _, out, _ = hood("show", "run_1")
    assert "    | →   a·\n    |     a\n" in out


def test_verify_says_what_was_changed_and_by_its_exit_code(hood: Hood, folder: Path) -> None:
    anyio.run(make_log, folder)
    code, out, _ = hood("verify")
    whole = "as they were written, signed"
    assert (code, out) == (
        0,
        f"records 1 to 11: {whole}; records 12 to 14: not signed yet, and can be changed until then\n",
    )
    TAMPERINGS["remove a record"](folder)
    code, out, _ = hood("verify")
    assert code == 1
    assert out.splitlines()[0] == "changed: record 6: removed: record 5 is missing before it"
    assert out.splitlines()[-1] == "records 1 to 14: do not verify"


def test_a_checkpoint_and_a_key_can_be_kept_elsewhere(hood: Hood, folder: Path, tmp_path: Path) -> None:
    anyio.run(make_log, folder)
    (tmp_path / "kept").write_text(hood("checkpoint")[1])
    (tmp_path / "key").write_text(hood("key")[1])
    assert hood("verify", "--key", str(tmp_path / "key"), "--checkpoint", str(tmp_path / "kept"))[0] == 0
    TAMPERINGS["cut off the end with a checkpoint, and the note of the end"](folder)
    code, out, _ = hood("verify", "--key", str(tmp_path / "key"), "--checkpoint", str(tmp_path / "kept"))
    assert (code, "rolled back, or cut off" in out) == (1, True)


def test_an_export_is_verified_where_the_log_is_not(hood: Hood, folder: Path, tmp_path: Path) -> None:
    anyio.run(make_log, folder)
    export = str(tmp_path / "export.jsonl")
    assert hood("export", "--output", export)[0] == 0
    assert hood("export", "--output", export)[0] == 2
    assert hood("export")[1] == Path(export).read_text()
    code, out, _ = hood("verify", export)
    assert (code, out.startswith("note: checked with the key of your own log")) == (0, True)
    verified = hood("verify", export, "--key", str(folder / "key.pub"))
    assert verified == (0, "records 1 to 15: as they were written, signed\n", "")


def test_an_export_that_cannot_be_signed_says_so(hood: Hood, folder: Path, tmp_path: Path) -> None:
    anyio.run(make_log, folder)
    (folder / "key.pem").rename(tmp_path / "key.pem")
    AuditLog.at(folder).close()
    code, out, error = hood("export", "--log", str(folder))
    assert (code, len(out.splitlines())) == (0, 15)
    assert "the newest records are not signed" in error


def test_prune_removes_and_archives(hood: Hood, folder: Path, tmp_path: Path) -> None:
    anyio.run(make_log, folder)
    assert hood("prune", "--older-than", "30d")[1] == "nothing to remove: no checkpoint is that old\n"
    archive = str(tmp_path / "old.jsonl")
    assert hood("prune", "--older-than", "1ms", "--archive", archive)[1] == "removed 10 records\n"
    assert hood("verify")[0] == hood("verify", archive)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tail"], "there is no audit log in"),
        (["verify"], "there is no audit log in"),
        (["verify", "/nowhere"], "/nowhere does not exist"),
        (["prune"], "--older-than"),
        (["verify", "--key", "/nowhere"], "there is no audit log in"),
    ],
)
def test_a_mistake_is_one_clear_line_and_makes_nothing(
    hood: Hood, folder: Path, arguments: list[str], said: str
) -> None:
    code, out, error = hood(*arguments)
    assert (code, out) == (2, "")
    assert said in error
    assert len(error.splitlines()) == 1
    assert not folder.exists()


@pytest.mark.parametrize(
    ("kind", "data", "told"),
    [
        ("message.sent", {"type": "Order", "to": "b/x"}, "Order from the application to b/x"),
        (
            "message.published",
            {"type": "News", "sender": "a/x", "topic": "n/s", "recipients": ["b/s", "c/s"]},
            "News from a/x to n/s, for b/s; c/s",
        ),
        ("message.published", {"type": "News", "topic": "n/s", "recipients": []}, "to n/s, for no agent"),
        ("grant.denied", {"action": "send to", "target": "b/x"}, "a/x may not send to b/x"),
    ],
)
def test_messages_and_denials_are_told_in_words(kind: str, data: dict[str, object], told: str) -> None:
    entry = Entry("2026-11-16T00:00:00.000000Z", kind, "tester", None, {"agent": "a/x"}, data)
    assert told in summary(Shown.of(read_record(entry.placed(1), b"")))


def test_tail_follows_what_is_written(folder: Path) -> None:
    log = AuditLog.at(folder)
    command = [sys.executable, "-W", "ignore", "-m", "fumehood", "audit", "tail", "-n", "1", "-f", "--json"]
    environment = {**os.environ, "FUMEHOOD_AUDIT": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as tail:
        try:
            assert tail.stdout is not None
            assert json.loads(tail.stdout.readline())["record"]["kind"] == "log.checkpoint"
            anyio.run(write, log, "here it comes")
            assert json.loads(tail.stdout.readline())["record"]["data"]["text"] == "here it comes"
        finally:
            tail.kill()


def test_tail_ends_when_the_log_is_replaced(folder: Path) -> None:
    """It would follow a file that no process writes to any more."""
    AuditLog.at(folder)
    command = [sys.executable, "-W", "ignore", "-m", "fumehood", "audit", "tail", "-n", "1", "-f", "--json"]
    environment = {**os.environ, "FUMEHOOD_AUDIT": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as tail:
        try:
            assert tail.stdout is not None
            assert json.loads(tail.stdout.readline())["record"]["kind"] == "log.checkpoint"
            folder.rename(folder.parent / "away")
            _, error = tail.communicate(timeout=30)
            assert "was removed or replaced" in error
        finally:
            tail.kill()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """An OTLP collector on this machine: the sizes of what it got, and it answers with the status in front."""
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answers.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(answers[0])
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield answers
        server.shutdown()
        thread.join()


def test_spans_are_counted_when_a_collector_took_them(hood: Hood, run_id: str, collector: list[int]) -> None:
    collector.append(200)
    code, _, error = hood("export", "--otel")
    assert (code, error) == (0, "hood: sent 1 spans\n")
    assert collector[1] > 100


def test_a_collector_that_refuses_is_an_error(hood: Hood, run_id: str, collector: list[int]) -> None:
    collector.append(400)
    code, out, error = hood("export", "--otel")
    assert (code, out) == (exitcodes.OWN_FAILURE, "")
    assert "the collector did not take the spans; 0 were sent before" in error


def test_no_collector_is_an_error(hood: Hood, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        code, _, error = hood("export", "--otel")
    assert code == exitcodes.OWN_FAILURE
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in error


def test_a_run_that_cannot_be_recorded_is_an_error_also_after_a_signal(folder: Path) -> None:
    """The program ends by itself when it gets the signal, and the log is gone by then."""
    code = "import time\nprint('begun', flush=True)\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    pass"
    AuditLog.at(folder).close()
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "fumehood", "run", "-c", code],
        env={**os.environ, "FUMEHOOD_AUDIT": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        folder.rename(folder.with_name("aside"))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, "was removed or replaced" in said) == (exitcodes.OWN_FAILURE, True), said
