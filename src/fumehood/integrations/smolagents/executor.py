"""smolagents' interface to executors, and a session of a sandbox behind it."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from smolagents import Tool, serialization  # pyright: ignore[reportMissingTypeStubs]
from smolagents.local_python_executor import CodeOutput, PythonExecutor  # pyright: ignore[reportMissingTypeStubs]
from smolagents.serialization import SafeSerializer  # pyright: ignore[reportMissingTypeStubs]
from smolagents.tools import get_tools_definition_code  # pyright: ignore[reportMissingTypeStubs]
from smolagents.utils import AgentError  # pyright: ignore[reportMissingTypeStubs]

from fumehood.blocking import Sandbox, Session
from fumehood.errors import UsageError
from fumehood.guest.contract.bundle import MAX_DISPLAY_BYTES
from fumehood.integrations.adapter import with_reason
from fumehood.integrations.smolagents.answers import read_answer
from fumehood.policy import AnyPolicy, Policy, read_policy
from fumehood.results import RunResult

# An answer is a display of a media type that only this executor knows: nothing that is printed joins it or passes for
# one. The serializer's module needs nothing but the standard library, and lives outside of the agent's namespace.
_FINAL_ANSWER = """
def _answering(given, display, media_type, serializer_source, most_bytes):
    class FinalAnswer(BaseException):
        pass

    serializer = {"__name__": "serialization"}
    exec(serializer_source, serializer)
    dumps, refusal = serializer["SafeSerializer"].dumps, serializer["SerializationError"]

    def final_answer(*args, **kwargs):
        answer = given(*args, **kwargs)
        try:
            text = dumps(answer)
        except (refusal, TypeError, ValueError):
            text = dumps(str(answer))
        if len(text) > most_bytes:
            raise ValueError(f"the final answer has {len(text)} bytes, more than {most_bytes}; write it to a file")
        display({media_type: text}, raw=True)
        raise FinalAnswer

    return final_answer
"""


def tools_source(tools: Mapping[str, object], media_type: str) -> str:
    """The tools themselves run in the sandbox: what they may do is what the policy allows."""
    own: dict[str, Tool] = {}
    for name, tool in tools.items():
        if not isinstance(tool, Tool):
            kind = type(tool).__name__
            raise UsageError(f"{name!r} is a {kind} and cannot run in a sandbox; give the agent tools that can")
        own[name] = tool
    source = get_tools_definition_code(own)
    return source + _final_answer_source(media_type) if "final_answer" in own else source


def variables_source(variables: Mapping[str, object]) -> str:
    """Source that sets variables from data, never from pickles; raises SerializationError for other values."""
    data = SafeSerializer.dumps(dict(variables), allow_pickle=False)
    return f"{SafeSerializer.get_deserializer_code(False)}\nglobals().update(_deserialize({data!r}))\n"


def _final_answer_source(media_type: str) -> str:
    serializer = inspect.getsource(serialization)
    arguments = f"final_answer, display, {media_type!r}, {serializer!r}, {MAX_DISPLAY_BYTES}"
    return f"{_FINAL_ANSWER}\nfinal_answer = _answering({arguments})\ndel _answering\n"


class CodeFailedError(AgentError):
    """The code of an agent failed, or was ended; the text is for the model."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)  # AgentError's own would log it, and so does the agent
        self.message = message


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
            self._session = self._lifetime.enter_context(Session(box.loop, box.target.session()))
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
