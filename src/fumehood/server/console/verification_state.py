"""Whether the record is true: the newest verification of a log, kept, because one goes through all of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from fumehood.audit.verification import Problem, Report
from fumehood.frozen import frozen
from fumehood.server.console.threads import Blocking

AT_ONCE_RECORDS = 20_000
"""Up to so many a log is verified when somebody looks at it; a longer one when they ask for it."""
_FRESH_SECONDS = 30.0


@frozen
class VerifiedLog:
    report: Report
    time: float

    @property
    def is_true(self) -> bool:
        return self.report.ok

    def state_of(self, seq: int) -> tuple[str, str]:
        """Of one record, in a word and with what is to be said of it."""
        if found := self.problem_of(seq):
            return "bad", found.text
        if seq > self.report.last:
            return "", "written since the log was verified"
        if seq <= self.report.signed:
            return "good", f"verified, signed by checkpoint {self.report.signed}"
        return "", "in the chain, not signed yet"

    def problem_of(self, seq: int) -> Problem | None:
        return next((problem for problem in self.report.problems if problem.seq == seq), None)


class Verification:
    """Of one log; one at a time."""

    def __init__(self, verify: Callable[[], Report], blocking: Blocking) -> None:
        self._verify, self._blocking, self._turn = verify, blocking, asyncio.Lock()
        self.newest: VerifiedLog | None = None

    async def run(self, *, anew: bool) -> VerifiedLog:
        """With `anew` as it is now, else as it was a moment ago."""
        asked = time.time()
        async with self._turn:
            oldest = asked if anew else asked - _FRESH_SECONDS
            if self.newest is None or self.newest.time < oldest:
                began = time.time()
                self.newest = VerifiedLog(await self._blocking(self._verify), began)
            return self.newest
