"""The way of a call: found, checked, admitted, carried out, told. With a real sandbox."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fumehood import AsyncSandbox, Policy, UsageError
from fumehood.audit import AuditLog, Query, Trail
from fumehood.audit.records import Entry
from fumehood.tools import (
    PYTHON,
    SHELL,
    STANDARD,
    GateAnswer,
    Risk,
    Tool,
    Toolbox,
    ToolCall,
    ToolOutput,
    ToolResult,
    ToolStatus,
)
from fumehood.tools.filters import Pipeline
from fumehood.tools.runs import PythonArguments
from fumehood.tools.tool import ToolContext

pytestmark = pytest.mark.anyio


@pytest.fixture
async def box() -> AsyncIterator[AsyncSandbox]:
    policy = Policy(filesystem={"outputs": ["out/**"]}, commands={"allow": ["ls", "seq"]}, resources={"timeout": "20s"})
    async with AsyncSandbox(policy) as opened:
        yield opened


@pytest.fixture
def toolbox(box: AsyncSandbox) -> Toolbox:
    return Toolbox(box, *STANDARD)


async def test_every_tool_has_a_schema_a_description_and_a_risk(toolbox: Toolbox) -> None:
    schemas = toolbox.schemas()
    assert {schema["name"]: schema["risk"] for schema in schemas} == {
        "python": "high",
        "shell": "high",
        "write_file": "medium",
        "edit_file": "medium",
        "read_file": "low",
        "list_files": "low",
    }
    for schema in schemas:
        assert schema["description"]
        assert schema["parameters"]["additionalProperties"] is False
        assert all(part.get("description") for part in schema["parameters"]["properties"].values())
        assert '"title"' not in json.dumps(schema)


async def test_python_tells_what_it_printed_and_which_files_it_left(toolbox: Toolbox) -> None:
    code = "import os; os.mkdir('out'); open('out/x.csv', 'w').write('a,b'); print(6 * 7)"
    result = await toolbox.call("python", {"code": code})
    assert result.ok
    assert result.text == "Success.\nstdout:\n42\nfiles: out/x.csv (3B, text/csv)"
    assert result.run is not None
    assert result.run.stdout == "42\n"


async def test_arguments_may_be_the_text_that_a_model_wrote(toolbox: Toolbox) -> None:
    assert (await toolbox.call("shell", '{"command": "seq 2"}')).text == "Success.\nstdout:\n1\n2"


async def test_a_failure_is_told_with_its_code_and_what_it_said(toolbox: Toolbox) -> None:
    result = await toolbox.call("python", {"code": "raise SystemExit('no luck')"})
    assert (result.status, result.text) == (ToolStatus.ERROR, "Failed with exit code 1.\nstderr:\nno luck")


async def test_a_denied_command_says_why_and_starts_nothing(toolbox: Toolbox) -> None:
    result = await toolbox.call("shell", {"command": "ls; rm -rf x; git push"})
    assert result.status is ToolStatus.DENIED
    first, second = result.text.splitlines()
    assert first.startswith(
        "Denied by the policy, nothing was started: rm -rf x: rm is not allowed; add 'rm' to commands"
    )
    assert second == "- git push: git push is not allowed; add 'git push' to commands.allow"


async def test_a_time_limit_is_told_in_words_and_cannot_be_raised(toolbox: Toolbox) -> None:
    result = await toolbox.call("python", {"code": "while True: pass", "timeout": 0.2})
    assert result.text.startswith("Failed (timeout, wall_time): it ran longer than")
    assert (await toolbox.call("python", {"code": "print(1)", "timeout": 10_000})).ok


async def test_long_output_has_a_beginning_an_end_and_what_was_left_out(toolbox: Toolbox) -> None:
    text = (await toolbox.call("shell", {"command": "seq 100000"})).text
    lines = text.splitlines()
    assert lines[:3] == ["Success.", "stdout:", "1"]
    assert lines[-1] == "100000"
    assert len(text) < 13_000
    (gap,) = [line for line in lines if "left out" in line]
    left_out = int(gap.split()[1])
    assert left_out + len(text) == pytest.approx(588_895, abs=200)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("pyton", {}, "There is no tool 'pyton'. Did you mean python?"),
        ("nothing-like-it", {}, "The tools are: python, shell,"),
        ("python", "{not json", "The arguments are not JSON"),
        ("python", "[1]", "The arguments are list, not an object"),
        ("python", "", "code: Field required"),
        ("python", {"code": ""}, "code: String should have at least 1 character"),
        ("python", {"code": 5}, "code: Input should be a valid string"),
        ("python", {"code": "1", "timeout": -1}, "timeout: Input should be greater than 0"),
        ("python", {"code": "1", "timeout": "NaN"}, "timeout"),
        ("python", {"source": "1"}, "source: Extra inputs are not permitted"),
        ("python", {"code": object()}, "not JSON serializable"),
        ("python", {"code": "\ud800"}, "code"),
        ("read_file", {"path": "x", "lines": 0}, "lines: Input should be greater than or equal to 1"),
        ("python", "[" * 100_000, "The arguments are not JSON"),
    ],
)
async def test_a_call_that_makes_no_sense_is_a_result_that_says_what_to_do(
    toolbox: Toolbox, name: str, arguments: Mapping[str, Any] | str, words: str
) -> None:
    result = await toolbox.call(name, arguments)
    assert result.status is ToolStatus.INVALID
    assert words in result.text


async def test_two_tools_of_one_name_are_the_applications_mistake(box: AsyncSandbox) -> None:
    with pytest.raises(UsageError, match="same name"):
        Toolbox(box, PYTHON, PYTHON)


class Doorkeeper:
    """Answers as it was told, and remembers."""

    def __init__(self, answer: GateAnswer) -> None:
        self.answer = answer
        self.asked: list[ToolCall] = []
        self.told: list[tuple[ToolCall, ToolResult]] = []

    async def admit(self, call: ToolCall) -> GateAnswer:
        self.asked.append(call)
        return self.answer

    async def finished(self, call: ToolCall, result: ToolResult) -> None:
        self.told.append((call, result))


async def test_a_gate_is_asked_about_exactly_what_would_be_done(box: AsyncSandbox) -> None:
    gate = Doorkeeper(GateAnswer(allowed=True))
    toolbox = Toolbox(box, SHELL, gate=gate)
    await toolbox.call("shell", {"command": "ls"})
    await toolbox.call("shell", '{ "command" : "ls", "cwd": "" }')
    await toolbox.call("shell", {"command": "ls "})
    first, second, third = gate.asked
    assert (first.tool, first.risk, first.policy_digest) == ("shell", Risk.HIGH, box.policy.digest)
    assert first.arguments == {"command": "ls", "cwd": "", "timeout": None}
    assert first.digest == second.digest != third.digest
    assert first.call_id != second.call_id
    assert [result.status for _, result in gate.told] == [ToolStatus.SUCCESS] * 3


async def test_a_gate_that_says_no_keeps_the_call_from_being_carried_out(box: AsyncSandbox) -> None:
    gate = Doorkeeper(GateAnswer(allowed=False, reason="not today"))
    result = await Toolbox(box, *STANDARD, gate=gate).call("write_file", {"path": "x", "content": "y"})
    assert (result.status, result.text) == (ToolStatus.DENIED, "Denied: not today.")
    assert await box.files.list() == []
    assert gate.told[0][1] is result


async def test_edited_arguments_are_another_call(box: AsyncSandbox) -> None:
    gate = Doorkeeper(GateAnswer(allowed=True, arguments={"command": "seq 1"}))
    result = await Toolbox(box, SHELL, gate=gate).call("shell", {"command": "seq 5"})
    assert result.text == "Success.\nstdout:\n1"
    assert gate.told[0][0].digest != gate.asked[0].digest
    gate.answer = GateAnswer(allowed=True, arguments={"comand": "seq 1"})
    with pytest.raises(UsageError, match="edited arguments"):
        await Toolbox(box, SHELL, gate=gate).call("shell", {"command": "seq 5"})


async def test_a_call_that_makes_no_sense_does_not_bother_the_gate(box: AsyncSandbox) -> None:
    gate = Doorkeeper(GateAnswer(allowed=True))
    await Toolbox(box, SHELL, gate=gate).call("shell", {})
    assert gate.asked == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", '"inf"', "1e999"])
async def test_numbers_that_json_does_not_have_are_refused(number: str) -> None:
    async with AsyncSandbox() as box:
        toolbox = Toolbox(box, PYTHON)
        for arguments in (f'{{"code": "1", "timeout": {number}}}', {"code": "1", "timeout": float(number.strip('"'))}):
            assert (await toolbox.call("python", arguments)).status is ToolStatus.INVALID


async def test_a_call_that_makes_no_sense_is_on_record(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path)
    async with AsyncSandbox(audit=log) as box:
        await Toolbox(box, PYTHON).call("pyhton" * 1000, "{}")
        await Toolbox(box, PYTHON).call("\ud800", "{}")
        await Toolbox(box, PYTHON).call("python", '{"cod": 1}')
    refused = [record.data for record in log.find(Query(kind="tool.refused"))]
    assert [data["tool"][:6] for data in refused] == ["pyhton", "\\ud800", "python"]
    assert all(len(data["tool"]) < 300 and len(data["reason"]) < 300 for data in refused)


def kinds(log: AuditLog) -> list[str]:
    return [record.kind for record in log.find(Query()) if record.kind.startswith(("tool.", "run.", "filter."))]


class Counted(AuditLog):
    """A log that counts its commits."""

    commits = 0

    def _extend(self, entries: Sequence[Entry]) -> int:
        self.commits += 1
        return super()._extend(entries)


async def test_a_run_that_a_tool_makes_costs_one_commit_more_than_the_run(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    log.__class__ = Counted
    assert isinstance(log, Counted)
    async with AsyncSandbox(audit=log) as box:
        toolbox = Toolbox(box, PYTHON)
        await toolbox.call("python", {"code": "print(1)"})
        before, records = log.commits, len(kinds(log))
        await toolbox.call("python", {"code": "print(1)"})
        assert kinds(log)[records:] == ["tool.called", "run.requested", "run.started", "run.finished", "tool.returned"]
        assert log.commits - before <= 4  # 3, and one for the start of a run that takes long


async def test_a_call_is_on_record_before_it_has_any_effect(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")
    seen: list[list[str]] = []

    class Gatekeeper(Doorkeeper):
        async def admit(self, call: ToolCall) -> GateAnswer:
            seen.append(kinds(log))
            return await super().admit(call)

    def note(text: str) -> str:
        """Notes a text."""
        seen.append(kinds(log))
        return text

    async with AsyncSandbox(audit=log) as box:
        await Toolbox(box, note).call("note", {"text": "x"})
        await Toolbox(box, PYTHON, gate=Gatekeeper(GateAnswer(allowed=False))).call("python", {"code": "1"})
        alarmed = Pipeline(box.policy, canaries={"c": "canary-0123456789"}, on_alarm=lambda _: seen.append(kinds(log)))
        await Toolbox(box, PYTHON, filters=alarmed).call("python", {"code": "'canary-0123456789'"})
    assert [each[-1] for each in seen] == ["tool.called"] * 3


async def test_a_call_that_comes_to_nothing_is_on_record_all_the_same(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "audit")

    async def fail(context: ToolContext, given: PythonArguments) -> ToolOutput:
        raise RuntimeError("before anything was run")

    broken = Tool("python", "Fails.", PythonArguments, Risk.HIGH, fail, is_recorded_first=True)
    async with AsyncSandbox(audit=log) as box:
        with pytest.raises(RuntimeError):
            await Toolbox(box, broken).call("python", {"code": "1"})
        assert kinds(log) == ["tool.called"]


async def test_a_call_is_on_record_at_once_where_its_run_is_in_another_log(tmp_path: Path) -> None:
    log, other = AuditLog.at(tmp_path / "audit"), AuditLog.at(tmp_path / "other")
    seen: list[list[str]] = []

    async def look(context: ToolContext, given: PythonArguments) -> ToolOutput:
        seen.append(kinds(other))
        return ToolOutput("")

    tool = Tool("python", "Looks.", PythonArguments, Risk.HIGH, look, is_recorded_first=True)
    async with AsyncSandbox(audit=log) as box:
        await Toolbox(box, tool, trail=Trail(other, who="me")).call("python", {"code": "1"})
    assert seen == [["tool.called"]]
