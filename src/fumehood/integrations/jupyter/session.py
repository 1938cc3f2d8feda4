"""The sandbox of a notebook: opened by the first cell, kept from cell to cell."""

from __future__ import annotations

import atexit
from collections.abc import Iterator

from fumehood.blocking import Sandbox, Session
from fumehood.events import Event, Finished
from fumehood.integrations.adapter import with_reason
from fumehood.notebook_output import CellError, CellOutput, CellStreams, cell_error
from fumehood.policy import AnyPolicy, Policy, Seconds, read_policy
from fumehood.sandbox.module_hint import ADVICE

_TO_POLICY = r"add \1 to environment.packages of the policy"
_RESTARTED = "(the session was lost before this cell: it began without state)\n"


class NotebookSandbox:
    """One sandbox, and one session of Python in it. Without a policy nothing is allowed."""

    def __init__(self, policy: AnyPolicy | None = None, package_advice: str = _TO_POLICY) -> None:
        """`package_advice` is what to do for want of a package: `\\1` is its name."""
        self.policy = read_policy(policy) or Policy()
        self._package_advice = package_advice
        self._box: Sandbox | None = None
        self._session: Session | None = None

    def run(
        self, code: str, output: CellOutput, *, language: str = "python", timeout: Seconds | None = None
    ) -> CellError | None:
        """Runs a cell to its end. Interrupted by Ctrl-C, it ends inside, too, and the state is kept."""
        streams, result = CellStreams(output), None
        for event in self._events(code, language, timeout):
            if isinstance(event, Finished):
                result = event.result
            else:
                streams.show(event)
        streams.finish()
        assert result is not None
        if told := (_RESTARTED if result.restarted else "") + ("" if result.ok else with_reason("", result)):
            output.text("stderr", ADVICE.sub(self._package_advice, told))
        return None if result.ok else cell_error(result, streams.stderr)

    def _events(self, code: str, language: str, timeout: Seconds | None) -> Iterator[Event]:
        box, session = self._open()
        if language == "python":
            return session.stream(code, timeout=timeout)
        return box.stream(code, language=language, timeout=timeout)

    def _open(self) -> tuple[Sandbox, Session]:
        if self._box is None or self._session is None:
            self._box = Sandbox(self.policy, keep_tmp=True).__enter__()
            # Registered after the loop that it needs, so that it is called before the loop ends.
            atexit.register(self.close)
            self._session = Session(self._box.loop, self._box.target.session())
        return self._box, self._session

    def interrupt(self) -> None:
        """From another thread: the cell under way ends as with Ctrl-C."""
        if self._session is not None:
            self._session.interrupt()

    def restart(self) -> None:
        """The next cell begins without state; files stay."""
        if self._session is not None:
            self._session.restart()

    def close(self) -> None:
        box, self._box, self._session = self._box, None, None
        if box is not None:
            atexit.unregister(self.close)
            box.__exit__(None, None, None)
