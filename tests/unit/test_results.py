"""Results are plain frozen data with the words that callers branch on."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.results import Cause, Display, Outcome, RunFailedError, RunOutput, RunResult, Status

OUTCOME = Outcome(
    status=Status.SUCCESS,
    cause=Cause.EXIT,
    exit_code=0,
    signal=None,
    detail="",
    truncated=False,
    duration_ms=1.5,
    cpu_ms=2.5,
    peak_memory_bytes=1000,
)
PICTURE = Display({"image/png": b"\x89PN", "text/plain": "a", "application/json": [1]}, {})


def result(stdout: bytes = b"", stderr: bytes = b"", **changes: object) -> RunResult:
    outcome = dataclasses.replace(OUTCOME, **changes)  # type: ignore[arg-type]
    return RunResult.of(RunOutput(outcome, stdout, stderr), "run_1", "sha256:0")


def test_the_words_are_those_of_the_documentation() -> None:
    assert [*Status] == ["success", "error", "timeout", "resource_exceeded", "denied", "cancelled"]
    assert [*Cause] == [
        "exit",
        "signal",
        "wall_time",
        "cpu_time",
        "memory",
        "processes",
        "disk",
        "output",
        "policy",
        "cancelled",
        "lost",
    ]


def test_an_outcome_is_taken_over_field_by_field() -> None:
    outcome = Outcome(Status.ERROR, Cause.SIGNAL, 139, "SIGSEGV", "why", True, 1.0, 2.0, 3)
    made = RunResult.of(RunOutput(outcome, b"out", b"err", (PICTURE,)), "run_x", "sha256:1")
    for field in dataclasses.fields(Outcome):
        assert getattr(made, field.name) == getattr(outcome, field.name)
    assert (made.stdout_bytes, made.stderr_bytes, made.run_id, made.policy_digest) == (
        b"out",
        b"err",
        "run_x",
        "sha256:1",
    )
    assert made.displays == (PICTURE,)


def test_a_picture_is_base64_in_json() -> None:
    shown = json.loads(json.dumps(dataclasses.replace(result(), displays=(PICTURE,)).to_dict()))["displays"]
    assert shown == [{"data": {"image/png": "iVBO", "text/plain": "a", "application/json": [1]}, "metadata": {}}]


@pytest.mark.parametrize("status", Status)
def test_only_success_is_ok(status: Status) -> None:
    assert result(status=status).ok is (status is Status.SUCCESS)


@given(st.binary(), st.binary())
def test_any_output_has_a_text(stdout: bytes, stderr: bytes) -> None:
    made = result(stdout, stderr)
    assert made.stdout == stdout.decode("utf-8", "replace")
    assert (made.stdout_bytes, made.stderr_bytes) == (stdout, stderr)
    told = json.loads(json.dumps(made.to_dict()))
    assert (told["stdout"], told["stderr"]) == (made.stdout, made.stderr)


def test_a_result_as_json_has_every_field_and_no_bytes() -> None:
    told = result(b"\xff").to_dict()
    named = {
        field.name.removesuffix("_bytes") if "std" in field.name else field.name
        for field in dataclasses.fields(RunResult)
    }
    assert set(told) == named
    assert json.loads(json.dumps(told))["status"] == "success"


def test_a_compilation_is_json_inside_of_its_result() -> None:
    made = dataclasses.replace(result(b"program"), compilation=result(b"compiler", b"\xff"))
    told = json.loads(json.dumps(made.to_dict()))
    assert (told["stdout"], told["compilation"]["stdout"]) == ("program", "compiler")
    assert (told["compilation"]["stderr"], told["compilation"]["compilation"]) == ("\ufffd", None)


def test_a_result_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        result().exit_code = 1  # type: ignore[misc]


def test_a_result_can_be_copied_and_sent() -> None:
    made = result(b"out")
    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(copy.copy(made))


def test_a_checked_success_is_the_result_itself() -> None:
    succeeded = result(status=Status.SUCCESS)
    assert succeeded.check() is succeeded


def test_a_checked_failure_raises_with_the_end_of_the_output() -> None:
    lines = "\n".join(f"line {number}" for number in range(100))
    failed = result(stderr=lines.encode(), status=Status.ERROR, exit_code=3)
    with pytest.raises(
        RunFailedError, match=r"the run ended with error: exit code 3\nline 90\n[\s\S]*line 99$"
    ) as caught:
        failed.check()
    assert caught.value.result is failed


def test_a_checked_failure_prefers_the_reason_to_the_exit_code() -> None:
    failed = result(status=Status.TIMEOUT, cause=Cause.WALL_TIME, detail="it took longer than 5s; raise --timeout")
    with pytest.raises(RunFailedError, match="ended with timeout: it took longer than 5s"):
        failed.check()
