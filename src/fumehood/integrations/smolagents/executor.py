"""smolagents' interface to executors, and a session of a sandbox behind it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from smolagents.local_python_executor import CodeOutput, PythonExecutor  # pyright: ignore[reportMissingTypeStubs]

from fumehood.errors import UsageError
from fumehood.integrations.output import with_reason
from fumehood.integrations.smolagents.answers import read_answer
from fumehood.integrations.smolagents.source import tools_source, variables_source
from fumehood.policy import AnyPolicy, Policy, read_policy
from fumehood.results import RunResult
from fumehood.sandbox.blocking import Sandbox, Session


class CodeFailedError(Exception):
    """The code of an agent failed, or was ended; the text is for the model."""


class SandboxPythonExecutor(PythonExecutor):
    """Python state lives on between steps. The agent's tools run in the sandbox too, under the same policy.

    Without a policy nothing is allowed. Packages that tools need have to be in `environment.packages` of the policy.
    Opens with the first use, or with `with`; `cleanup`, which agents call in theirs, closes it.
    """

    def __init__(self, policy: AnyPolicy | None = None) -> None:
        self._policy = read_policy(policy) or Policy()
        self._answer_type = f"application/x-answer-{secrets.token_hex(16)}"
        self._tools: Mapping[str, object] = {}
        self._variables: dict[str, object] = {}
        self._session: Session | None = None
        self._sandbox: Sandbox | None = None
        self._lifetime = ExitStack()

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cleanup()

    @property
    def sandbox(self) -> Sandbox:
        """The open sandbox, to bring files in and out."""
        if self._sandbox is None:
            raise UsageError("the executor is not open yet; use it, or `with executor:`")
        return self._sandbox

    def cleanup(self) -> None:
        self._session = self._sandbox = None
        self._lifetime.close()

    def send_tools(self, tools: dict[str, Any]) -> None:
        self._tools = tools
        self._prepare(self._open())

    def send_variables(self, variables: dict[str, Any]) -> None:
        self._variables.update(variables)
        session = self._open()
        if variables:
            _expect(session.run(variables_source(variables)), "the agent's variables")

    def __call__(self, code_action: str) -> CodeOutput:
        session = self._open()
        # A session that was lost begins anew, and then without the tools: it is asked before the code needs them.
        if session.run("").restarted:
            self._prepare(session)
            session.run(variables_source(self._variables))
        result = session.run(code_action)
        answers = [display.data[self._answer_type] for display in result.displays if self._answer_type in display.data]
        if answers:
            return CodeOutput(output=_read(answers[0]), logs=result.stdout, is_final_answer=True)
        if not result.ok:
            raise CodeFailedError(_failure(result))
        return CodeOutput(output=_value(result), logs=_joined(result.stdout, result.stderr), is_final_answer=False)

    def _open(self) -> Session:
        if self._session is None:
            box = self._sandbox = self._lifetime.enter_context(Sandbox(self._policy, keep_tmp=True))
            self._session = self._lifetime.enter_context(Session(box.portal, box.target.session()))
        return self._session

    def _prepare(self, session: Session) -> None:
        if self._tools:
            _expect(session.run(tools_source(self._tools, self._answer_type)), "the agent's tools")


def _expect(result: RunResult, what: str) -> None:
    if not result.ok:
        raise UsageError(f"{what} failed in the sandbox: {_failure(result)}")


def _read(answer: object) -> object:
    try:
        return read_answer(answer)
    except UsageError as error:
        raise CodeFailedError(str(error)) from error


def _failure(result: RunResult) -> str:
    return with_reason(_joined(result.stdout, result.stderr), result).rstrip("\n")


def _joined(before: str, after: str) -> str:
    return f"{before}\n{after}" if before and after and not before.endswith("\n") else before + after


def _value(result: RunResult) -> object:
    """The value of the last expression, as text."""
    return result.displays[-1].data.get("text/plain") if result.displays else None
