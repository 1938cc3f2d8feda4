"""Trials of the audit log, on a log of the proof's own."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from fumehood.audit.inspection import check
from fumehood.audit.location import DATABASE
from fumehood.audit.store import Query
from fumehood.errors import AuditError
from fumehood.proof.laboratory import Laboratory
from fumehood.proof.trial import BrokenError, Trial, attack, use
from fumehood.sandbox.async_sandbox import AsyncSandbox

_LATER = "UPDATE records SET {change} WHERE seq = (SELECT max(seq) / 2 FROM records)"
_CHANGES = {
    "a record edited": _LATER.format(change="body = replace(body, '1', '2')"),
    "a record removed": "DELETE FROM records WHERE seq = (SELECT max(seq) / 2 FROM records)",
    "a time changed": _LATER.format(change="time = '2001-01-01T00:00:00.000000Z'"),
    "the end cut off": "DELETE FROM records WHERE seq > (SELECT max(seq) - 2 FROM records)",
    "the beginning cut off": "DELETE FROM records WHERE seq < 4",
    "a trigger added": "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END",
}


@attack("audit", "Change a copy of the log in six ways that leave the file readable.")
async def change_the_log(lab: Laboratory) -> str:
    lab.log.checkpoint()
    for name, statement in _CHANGES.items():
        if check(_changed(lab, statement), lab.folder / "audit" / "key.pub", []).ok:
            raise BrokenError(f"{name}: verification did not notice")
    return f"noticed: {', '.join(_CHANGES)}"


def _changed(lab: Laboratory, statement: str) -> Path:
    copy = lab.folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(lab.folder / "audit", copy)
    copy.chmod(0o700)
    with closing(sqlite3.connect(copy / DATABASE)) as connection, connection:
        if not connection.execute(statement).rowcount:
            raise BrokenError(f"the trial changed nothing by: {statement}")
    return copy


@attack("audit", "Open a sandbox whose log cannot be written.")
async def run_without_a_log(lab: Laboratory) -> str:
    place = lab.folder / "not-a-folder"
    place.write_text("in the way")
    try:
        async with AsyncSandbox(lab.policy, audit=place / "audit") as box:
            await box.run("print(1)")
    except AuditError as error:
        return f"refused: {str(error)[:160]}"
    raise BrokenError("a program ran, and its log could not be written")


@use("audit", "Find every run of the proof in its log, and verify the log.")
async def verify_the_log(lab: Laboratory) -> str:
    result = await lab.run("print(1)")
    kinds = [record.kind for record in lab.log.find(Query(run_id=result.run_id))]
    lab.log.checkpoint()
    report = check(lab.folder / "audit", None, [])
    if not report.ok or not {"run.requested", "run.finished"} <= set(kinds):
        raise BrokenError(f"records of a run: {kinds}; problems: {[problem.text for problem in report.problems]}")
    return f"a run has the records {', '.join(kinds)}; {report.records} records verify"


TRIALS: tuple[Trial, ...] = (change_the_log, run_without_a_log, verify_the_log)
