"""What a guest answers about a run is checked for its form: nobody behind has to."""

from __future__ import annotations

import json
import math

import pytest

from fumehood.backends.runs.answers import parse_answer

TROUBLE = {
    "refusal": None,
    "processes": 1,
    "exhausted": "",
    "disk_full": False,
    "out_of_memory_kills": 0,
    "refused_processes": None,
}
ENDED = {"status": 256, "ended_by": "exit", "cpu_ms": 1.5, "peak_memory_bytes": 4096, "trouble": TROUBLE}


@pytest.mark.parametrize(
    "answer",
    [
        ENDED,
        {**ENDED, "status": 0, "trouble": None},
        {**ENDED, "status": None, "ended_by": "kill"},
        {**ENDED, "trouble": {**TROUBLE, "refusal": {"refused": "why"}}},
        {"failed": "a step", "detail": "why"},
        {"usage": {"cpu_ms": 1, "peak_memory_bytes": 0}},
    ],
)
def test_an_answer_arrives_as_it_is(answer: dict[str, object]) -> None:
    assert parse_answer(json.dumps(answer).encode()) == answer


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"[" * 60_000,
        b"[]",
        b"{}",
        *(
            json.dumps(answer).encode()
            for answer in (
                {**ENDED, "status": "0"},
                {**ENDED, "status": 0x7F},
                {**ENDED, "status": -(2**80)},
                {**ENDED, "trouble": None},
                {**ENDED, "trouble": {}},
                {**ENDED, "trouble": {**TROUBLE, "refusal": {"what": "ever"}}},
                {**ENDED, "more": 1},
                {"usage": {}},
                {"failed": 1, "detail": "why"},
                *({**ENDED, "cpu_ms": lie} for lie in (math.nan, math.inf, -1e9, 10**400)),
                *({**ENDED, "peak_memory_bytes": lie} for lie in (-1, 2**64)),
                {**ENDED, "trouble": {**TROUBLE, "out_of_memory_kills": 10**400}},
                {"usage": {"cpu_ms": math.nan, "peak_memory_bytes": 0}},
            )
        ),
    ],
)
def test_an_answer_of_another_form_is_a_step_that_failed(data: bytes) -> None:
    assert parse_answer(data)["failed"] == "reading a guest's answer"
