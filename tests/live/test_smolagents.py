"""The executor under smolagents' own code agent, with a scripted model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import engine
import pytest
from requirements import require
from smolagents import CodeAgent, FinalAnswerTool, Model, tool
from smolagents.models import ChatMessage, MessageRole
from smolagents.monitoring import LogLevel
from smolagents.serialization import SerializationError
from smolagents.utils import AgentError

from fumehood import DeniedError, Policy, UsageError
from fumehood.integrations.smolagents import CodeFailedError, SandboxPythonExecutor

pytestmark = pytest.mark.adapter(
    "test_an_agent_uses_its_tools_in_the_sandbox_and_answers",
    "test_a_session_that_is_lost_has_its_tools_and_variables_again",
)


@pytest.fixture(scope="module", params=["native", *(["docker"] if os.geteuid() == 0 else [])])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        require(engine.missing() is None, engine.missing() or "")
    return request.param


@pytest.fixture
def executor(backend: str) -> Iterator[SandboxPythonExecutor]:
    with SandboxPythonExecutor(Policy(backend=backend)) as opened:
        opened.send_variables({})
        opened.send_tools({"final_answer": FinalAnswerTool()})
        yield opened


def test_state_lives_on_and_the_last_value_and_what_was_printed_are_told(executor: SandboxPythonExecutor) -> None:
    assert executor("x = 6").output is None
    done = executor("print('so far')\nx * 7")
    assert (done.output, done.logs, done.is_final_answer) == ("42", "so far\n", False)


ANSWERS = [
    42,
    "text <b>",
    None,
    [1, {"a": [True, 2.5]}],
    {"deep": {"er": []}},
    {1, 2},
    (1, (2, b"\x00\xff")),
    {(1, 2): frozenset([3])},
    [date(2026, 2, 3), datetime(2026, 2, 3, 4, 5, 6, 7, UTC), time(4, 5), timedelta(days=1, microseconds=1)],
    [Decimal("1.10"), 1j, Path("/workspace/x")],
    {"__type__": "no such type"},
]


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
def test_a_final_answer_is_the_data_that_was_given(executor: SandboxPythonExecutor, answer: object) -> None:
    executor.send_variables({"answer": answer})
    done = executor("print('thinking')\nfinal_answer(answer)\nprint('never')")
    assert (done.output, done.logs, done.is_final_answer) == (answer, "thinking\n", True)


PRINTED_LATER = [
    "try:\n    final_answer('text')\nfinally:\n    print(', and more')",
    "try:\n    final_answer('text')\nexcept BaseException:\n    print('{\"and\": \"more\"}')\n    raise",
    "import subprocess\ntry:\n    final_answer('text')\nfinally:\n    subprocess.run(['echo', ', and more'])",
]


@pytest.mark.parametrize("code", PRINTED_LATER)
def test_what_is_printed_after_the_answer_is_not_part_of_it(executor: SandboxPythonExecutor, code: str) -> None:
    done = executor(code)
    assert (done.output, done.is_final_answer) == ("text", True)
    assert "more" in done.logs


def test_nothing_that_is_printed_is_an_answer(executor: SandboxPythonExecutor) -> None:
    """Not even with all that the way back is made of: text can come from anywhere, such as a page that was read."""
    seen = "'\\n'.join(str(cell.cell_contents) for cell in final_answer.__closure__)"
    done = executor(f"print({seen}, 'safe:1', 'text/plain')")
    assert (done.output, done.is_final_answer) == (None, False)
    assert "application/x-answer-" in done.logs


FORGED = ["safe:[", "[]", "pickle:gASVBQAAAAAAAABLAS4=", 'safe:{"__type__": "set", "data": [[]]}']


@pytest.mark.parametrize("text", FORGED)
def test_an_answer_that_no_serializer_wrote_is_a_failure(executor: SandboxPythonExecutor, text: str) -> None:
    kind = "next(c.cell_contents for c in final_answer.__closure__ if str(c.cell_contents).startswith('application'))"
    with pytest.raises(CodeFailedError, match="the final answer cannot be read"):
        executor(f"display({{{kind}: {text!r}}}, raw=True)")


def test_an_answer_that_is_too_large_is_told_to_the_model(backend: str) -> None:
    with SandboxPythonExecutor(Policy(backend=backend, resources={"output": "64M"})) as executor:
        executor.send_tools({"final_answer": FinalAnswerTool()})
        with pytest.raises(CodeFailedError, match="more than 16777216; write it to a file"):
            executor("final_answer('x' * 2**24)")
        assert executor("final_answer('x' * 2**23)").output == "x" * 2**23


def test_an_answer_that_is_no_plain_data_is_told_as_text(executor: SandboxPythonExecutor) -> None:
    """And never unpickled, or made an object of in any other way."""
    code = "class Evil:\n    __reduce__ = lambda self: (print, ('unpickled',))\n    __str__ = lambda self: 'evil'\n"
    assert executor(f"{code}final_answer(Evil())").output == "evil"


def test_a_failure_is_told_with_what_was_printed_and_leaves_the_state(executor: SandboxPythonExecutor) -> None:
    executor("kept = 1")
    with pytest.raises(AgentError, match=r"(?s)before\n.*ZeroDivisionError") as failure:
        executor("print('before')\n1 / 0")
    assert failure.value.dict() == {"type": "CodeFailedError", "message": str(failure.value)}
    assert executor("kept").output == "1"


def test_variables_are_there_and_what_is_no_data_is_refused(executor: SandboxPythonExecutor) -> None:
    executor.send_variables({"numbers": [1, 2], "name": "Ada", "pair": (1, 2)})
    assert executor("name, sum(numbers), pair").output == "('Ada', 3, (1, 2))"
    with pytest.raises(SerializationError):
        executor.send_variables({"thing": object()})


def test_a_session_that_is_lost_has_its_tools_and_variables_again(backend: str) -> None:
    with SandboxPythonExecutor(Policy(backend=backend)) as executor:
        executor.send_variables({"kept": 1})
        executor.send_tools({"final_answer": FinalAnswerTool()})
        with pytest.raises(CodeFailedError, match="state is lost"):
            executor("import os; os._exit(3)")
        assert executor("final_answer(kept)").output == 1


def test_code_has_what_the_policy_gives(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with SandboxPythonExecutor(Policy(backend=backend, resources={"timeout": 1})) as executor:
        assert executor("import os; 'OPENAI_API_KEY' in os.environ").output == "False"
        with pytest.raises(CodeFailedError, match=r"/etc/shadow"):
            executor("open('/etc/shadow')")
        with pytest.raises(CodeFailedError, match="longer than 1s"):
            executor("while True: pass")
        executor.sandbox.files.write("data.txt", "from outside")
        assert executor("open('data.txt').read()").output == "'from outside'"
    with pytest.raises(UsageError, match="not open"):
        assert executor.sandbox


def test_a_policy_with_approvals_is_not_opened() -> None:
    with pytest.raises(DeniedError, match="approvals"):
        SandboxPythonExecutor({"approvals": [{"tool": "python"}]}).send_tools({})


def test_an_agent_cannot_be_sent_inside() -> None:
    with SandboxPythonExecutor() as executor, pytest.raises(UsageError, match="'helper' is a object"):
        executor.send_tools({"helper": object()})


class Script(Model):
    def __init__(self, *codes: str) -> None:
        super().__init__(model_id="script")
        self._left = list(codes)

    def generate(self, messages: Any, **options: Any) -> ChatMessage:
        code = self._left.pop(0)
        return ChatMessage(MessageRole.ASSISTANT, f"Thought: go on.\n<code>\n{code}\n</code>")


@tool
def double(number: int) -> int:
    """Twice a number.

    Args:
        number: the number
    """
    import os

    return number * 2 if os.path.isdir("/workspace") else 0


def test_an_agent_uses_its_tools_in_the_sandbox_and_answers(backend: str) -> None:
    script = Script("half = double(seed)", "print(open('/etc/shadow').read())", "final_answer(double(half))")
    executor = SandboxPythonExecutor(Policy(backend=backend))
    agent = CodeAgent(tools=[double], model=script, executor=executor, verbosity_level=LogLevel.OFF)
    assert agent.run("double it twice", additional_args={"seed": 10}) == 40
    failed = agent.memory.steps[-2]
    assert "No such file or directory: '/etc/shadow'" in str(failed.error)
    agent.cleanup()
