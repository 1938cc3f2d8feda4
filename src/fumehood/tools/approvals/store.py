"""Requests for approval, kept so that they outlive the process that asked.

Owns what may follow what: asked -> approved -> used; asked -> denied; and as long as it is open -> expired, revoked or
withdrawn.
A step is one transaction, and the audit log is written inside of it: what cannot be recorded does not happen, and of
two answers at once one is too late, and its error has the other one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fumehood.audit.events import Attachment, Content, Digest
from fumehood.audit.log import current_user
from fumehood.audit.records import timestamp
from fumehood.audit.trail import OFF, Trail
from fumehood.errors import NotApprovedError, UsageError
from fumehood.host.processes import boot, identity, is_gone
from fumehood.keywords import known_keywords
from fumehood.policy import Policy
from fumehood.tools.approvals import events
from fumehood.tools.approvals.database import FOLDER, ApprovalDatabase, Execute, find_folder
from fumehood.tools.approvals.requests import (
    OPEN,
    ApprovalAnswer,
    ApprovalRequest,
    DamagedRequestError,
    Moment,
    Question,
    Row,
    State,
    new_row,
    read_request,
    tool_of,
    with_arguments,
)
from fumehood.tools.calls import ToolCall

DATABASE = "approvals.db"
MOST_OPEN = 100
"""Questions of one user, and tenant, that may wait for an answer at once."""
_KEPT_SECONDS = 30 * 24 * 3600.0
_MOST_KEPT = 2000

T = TypeVar("T")


class AnsweredError(UsageError):
    """Too late: it is decided already, as `request` says."""

    def __init__(self, request: ApprovalRequest) -> None:
        super().__init__(f"{request.id} cannot be answered any more: {request.told()}")
        self.request = request


class ApprovalStore:
    """Blocks. Any number of threads and processes may use it."""

    @known_keywords()
    def __init__(self, folder: str | os.PathLike[str] | None = None, *, now: Callable[[], Moment] = Moment.now) -> None:
        place = Path(folder) if folder is not None else find_folder(os.environ)
        FOLDER.make(place)
        self.path = place / DATABASE
        self._database = ApprovalDatabase(self.path, now)

    def ask(self, question: Question, trail: Trail = OFF) -> ApprovalRequest:
        """A new request; or the one of a process that asked for the very same call and has ended."""

        def step(execute: Execute, moment: Moment) -> ApprovalRequest:
            holder, call = identity(os.getpid()), question.call
            if (row := self._orphan(execute, question)) is not None:
                execute("UPDATE requests SET holder = ? WHERE id = ?", (holder, row["id"]))
                trail.write_blocking(events.ApprovalTakenUp(row["id"], call.tool, call.digest))
                return read_request(row)
            execute(
                "DELETE FROM requests WHERE expires_at < ? AND state NOT IN (?, ?)",
                (moment.wall - _KEPT_SECONDS, *OPEN),
            )
            execute(
                "DELETE FROM requests WHERE state NOT IN (?, ?) AND id NOT IN "
                "(SELECT id FROM requests ORDER BY asked_at DESC LIMIT ?)",
                (*OPEN, _MOST_KEPT),
            )
            _refuse_too_many(execute, question)
            fresh = new_row(question, moment, holder)
            execute(
                f"INSERT INTO requests ({', '.join(fresh)}) VALUES ({', '.join('?' * len(fresh))})", (*fresh.values(),)
            )
            trail.write_blocking(_asked(question, fresh))
            return read_request(_row(execute, fresh["id"]))

        return self._transact(step, trail)

    def release(self, identifier: str, trail: Trail = OFF) -> None:
        """No call waits for the answer any more; the very same call, made again, finds it."""

        def step(execute: Execute, _: Moment) -> None:
            execute("UPDATE requests SET holder = '' WHERE id = ?", (identifier,))

        self._transact(step, trail)

    def take_up(self, identifier: str, question: Question, trail: Trail = OFF) -> ApprovalRequest | None:
        """The request of that id, however it stands by now, if it was asked for the very same call by the same user."""

        def step(execute: Execute, _: Moment) -> ApprovalRequest | None:
            row = execute("SELECT * FROM requests WHERE id = ?", (identifier,)).fetchone()
            asked = question.call.digest, question.asked_by, question.tenant
            if row is None or (row["digest"], row["asked_by"], row["tenant"]) != asked:
                return None
            execute("UPDATE requests SET holder = ? WHERE id = ?", (identity(os.getpid()), identifier))
            trail.write_blocking(events.ApprovalTakenUp(identifier, question.call.tool, question.call.digest))
            return read_request(row)

        return self._transact(step, trail)

    def withdraw(self, identifier: str, trail: Trail = OFF) -> None:
        """Closes a request whose caller no longer waits. A request that is decided stays as it is."""

        def step(execute: Execute, _: Moment) -> None:
            request = read_request(_row(execute, identifier))
            if request.is_open:
                execute("UPDATE requests SET state = ? WHERE id = ?", (State.WITHDRAWN, identifier))
                trail.write_blocking(events.ApprovalWithdrawn(identifier, request.call.tool, request.call.digest))

        self._transact(step, trail)

    def get(self, identifier: str, trail: Trail = OFF) -> ApprovalRequest:
        """The request with this id, or with an id that begins like this."""

        def step(execute: Execute, _: Moment) -> ApprovalRequest:
            rows = execute(
                "SELECT * FROM requests WHERE substr(id, 1, ?) = ?", (len(identifier), identifier)
            ).fetchall()
            if len(rows) == 1:
                return read_request(rows[0])
            if rows and identifier:
                raise UsageError(f"{len(rows)} requests begin with {identifier!r}; write more of the id")
            raise UsageError(f"there is no request {identifier!r} in {self.path}; `hood approvals list` has them")

        return self._transact(step, trail)

    def find(self, trail: Trail = OFF, *, only_open: bool = True) -> list[ApprovalRequest]:
        """The oldest first; not those that are damaged."""

        def step(execute: Execute, _: Moment) -> list[ApprovalRequest]:
            wanted = OPEN if only_open else tuple(State)  # those that are closed are many, and read for nothing
            places = ", ".join("?" * len(wanted))
            text = f"SELECT * FROM requests WHERE state IN ({places}) ORDER BY asked_at, id"
            found = [_readable(row) for row in execute(text, wanted).fetchall()]
            return [each for each in found if isinstance(each, ApprovalRequest)]

        return self._transact(step, trail)

    def survey(self, trail: Trail = OFF, *, only_open: bool = True) -> list[ApprovalRequest | DamagedRequestError]:
        """The oldest first, and in the place of a damaged one what is to be said of it."""

        def step(execute: Execute, _: Moment) -> list[ApprovalRequest | DamagedRequestError]:
            rows = execute("SELECT * FROM requests ORDER BY asked_at, id").fetchall()
            found = [_readable(row) for row in rows]
            return [each for each in found if not only_open or isinstance(each, DamagedRequestError) or each.is_open]

        return self._transact(step, trail)

    def answer(
        self, identifier: str, answer: ApprovalAnswer, trail: Trail = OFF, review: events.ApprovalReviewed | None = None
    ) -> ApprovalRequest:
        """The first answer counts; AnsweredError for those that come later, or too late.

        `review` is what is recorded of a reviewer, whose answer it is.
        """

        def step(execute: Execute, moment: Moment) -> ApprovalRequest | AnsweredError:
            request = read_request(_row(execute, identifier))
            if request.state is not State.ASKED:
                return AnsweredError(request)
            by = answer.by or current_user()
            edited = _edited(request.call, answer)
            execute(
                "UPDATE requests SET state = ?, answered_by = ?, answered_at = ?, reason = ?, edited = ?, "
                "edited_digest = ? WHERE id = ?",
                (
                    State.APPROVED if answer.approved else State.DENIED,
                    *(by, moment.wall, answer.reason or None),
                    *((edited.canonical, edited.digest) if edited else (None, None)),
                    identifier,
                ),
            )
            told = identifier, request.call.tool, request.call.digest
            if review is not None:
                trail.write_blocking(review)
            if edited is not None:
                trail.write_blocking(events.ApprovalEdited(*told, by, edited.digest, _content(edited, request.policy)))
            kind = events.ApprovalGiven if answer.approved else events.ApprovalDenied
            trail.write_blocking(kind(*told, by, answer.reason or None))
            return read_request(_row(execute, identifier))

        return self._transact(step, trail)

    def use(self, identifier: str, digest: str, trail: Trail = OFF) -> ToolCall:
        """The call that was approved, exactly as it was; NotApprovedError if it was not, or for another digest."""

        def step(execute: Execute, _: Moment) -> ToolCall | NotApprovedError:
            request = read_request(_row(execute, identifier))
            if request.call.digest != digest:
                return NotApprovedError("denied", request.call.tool, "the approval is for another call")
            if request.state is not State.APPROVED:
                return NotApprovedError(request.state, request.call.tool, request.told())
            execute("UPDATE requests SET state = ? WHERE id = ?", (State.USED, identifier))
            trail.write_blocking(events.ApprovalUsed(identifier, request.call.tool, request.approved_call.digest))
            return request.approved_call

        return self._transact(step, trail)

    def revoke_other_policies(self, policy: Policy, tenant: str | None, trail: Trail = OFF) -> int:
        """What is still open under the same name of a policy with another content."""

        def step(execute: Execute, _: Moment) -> int:
            found = "policy_name = ? AND policy_digest != ? AND tenant IS ? AND state IN (?, ?)"
            values = policy.name, policy.digest, tenant, *OPEN
            rows = execute(f"SELECT * FROM requests WHERE {found}", values).fetchall()
            for row in rows:
                tool = tool_of(row)
                trail.write_blocking(events.ApprovalRevoked(row["id"], tool, row["digest"], policy.digest))
            execute(f"UPDATE requests SET state = '{State.REVOKED}' WHERE {found}", values)
            return len(rows)

        return self._transact(step, trail) if policy.name is not None else 0

    def _orphan(self, execute: Execute, question: Question) -> Row | None:
        rows = execute(
            "SELECT * FROM requests WHERE digest = ? AND asked_by = ? AND tenant IS ? AND state IN (?, ?)",
            (question.call.digest, question.asked_by, question.tenant, *OPEN),
        )
        return next((row for row in rows.fetchall() if _is_orphaned(row["holder"])), None)

    def _transact(self, step: Callable[[Execute, Moment], T | Exception], trail: Trail) -> T:
        """What `step` returns is kept, also when it is an error, which is raised then; what it raises undoes it."""

        def whole(execute: Execute, moment: Moment) -> T | Exception:
            _expire(execute, moment, trail)
            return step(execute, moment)

        result = self._database.transact(whole)
        if isinstance(result, Exception):
            raise result
        return result


def _expire(execute: Execute, moment: Moment, trail: Trail) -> None:
    # Across boots only the wall clock measures time; when it was set back, requests of another boot expire.
    due = "state IN (?, ?) AND (expires_at <= ? OR (boot = ? AND expires_since_boot <= ?) OR (boot != ? AND ?))"
    values = *OPEN, moment.wall, moment.boot, moment.since_boot, moment.boot, moment.is_behind
    for row in execute(f"SELECT rowid, * FROM requests WHERE {due}", values).fetchall():
        tool = tool_of(row)
        trail.write_blocking(events.ApprovalExpired(row["id"], tool, row["digest"], row["state"]))
        execute("UPDATE requests SET state = ? WHERE rowid = ?", (State.EXPIRED, row["rowid"]))


def _is_orphaned(holder: str) -> bool:
    """Whether the process that asked has ended for certain, or has let go of it. No process survives a boot."""
    return not holder.startswith(f"{boot()} ") or is_gone(holder)


def _readable(row: Row) -> ApprovalRequest | DamagedRequestError:
    try:
        return read_request(row)
    except DamagedRequestError as error:
        return error


def _row(execute: Execute, identifier: str) -> Row:
    row = execute("SELECT * FROM requests WHERE id = ?", (identifier,)).fetchone()
    if row is None:
        raise UsageError(f"there is no request {identifier!r}; `hood approvals list` has them")
    return row


def _refuse_too_many(execute: Execute, question: Question) -> None:
    """Limits the open requests: a person with too many of them approves without reading, and the disk could fill."""
    (count,) = execute(
        "SELECT count(*) FROM requests WHERE state = ? AND asked_by = ? AND tenant IS ?",
        (State.ASKED, question.asked_by, question.tenant),
    ).fetchone()
    if count >= MOST_OPEN:
        raise NotApprovedError(
            State.DENIED,
            question.call.tool,
            f"{count} questions of {question.asked_by} wait for an answer already, and more are not asked; "
            "answer them (`hood approvals list`), or wait until they expire",
        )


def _asked(question: Question, row: Row) -> events.ApprovalOpened:
    call, policy = question.call, question.policy
    return events.ApprovalOpened(
        row["id"],
        call.tool,
        call.digest,
        call.risk,
        policy.digest,
        policy.name,
        _content(call, policy),
        timestamp(row["expires_at"]),
    )


def _content(call: ToolCall, policy: Policy) -> Content:
    """The call's content for the log, as the policy keeps code."""
    data = call.canonical.encode("ascii")
    return {"full": Attachment(data), "digest": Digest.of(data), "none": None}[policy.audit.code]


def _edited(call: ToolCall, answer: ApprovalAnswer) -> ToolCall | None:
    """None when nothing is approved, or what was asked for."""
    if not answer.approved or answer.arguments is None:
        return None
    edited = with_arguments(call, answer.arguments)
    return edited if edited.digest != call.digest else None
