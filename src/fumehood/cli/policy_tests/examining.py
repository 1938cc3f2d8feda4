"""One file's tests, and how each came out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fumehood.errors import FumehoodError, PolicyError
from fumehood.policy.file import PolicyFile
from fumehood.policy.source import visible
from fumehood.policy.testing import TestResult, run_tests


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened in a real sandbox; without a verdict it was not tried, and `detail` says why."""

    verdict: Literal["allow", "deny"] | None
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test: what the policy says, and what a sandbox did if one was asked."""

    result: TestResult
    line: int
    seen: Seen | None = None

    @property
    def is_seen_otherwise(self) -> bool:
        expected = self.result.expectation.expect
        return self.seen is not None and self.seen.verdict not in (None, expected)

    @property
    def passed(self) -> bool:
        return self.result.passed and not self.is_seen_otherwise


@dataclass(frozen=True, slots=True)
class Examination:
    """`problems`: why the file has no outcomes, or its tests could not be tried."""

    name: str
    file: PolicyFile | None
    outcomes: tuple[Outcome, ...]
    problems: tuple[str, ...]
    seconds: float

    @property
    def failures(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.passed]


def examine(name: str, *, is_live: bool, backend: str | None) -> Examination:
    started = time.perf_counter()
    problems: list[str] = []
    file, outcomes = None, list[Outcome]()
    try:
        file = PolicyFile.load(name)
        results = list(run_tests(file.policy))
        seen = _rehearse(file, results, backend, problems) if is_live and results else dict[int, Seen]()
        outcomes = [
            Outcome(result, file.line_of(f"tests[{result.index}]") or 1, seen.get(result.index)) for result in results
        ]
    except PolicyError as error:
        problems += error.problems
    return Examination(visible(name), file, tuple(outcomes), tuple(problems), time.perf_counter() - started)


def _rehearse(
    file: PolicyFile, results: list[TestResult], backend: str | None, problems: list[str]
) -> Mapping[int, Seen]:
    # Here and not above: most of the time nobody asks for a sandbox, and its parts take a while to import.
    from fumehood.cli.policy_tests.rehearsal import rehearse

    policy = file.policy if backend is None else file.policy.override({"backend": backend})
    try:
        return rehearse(policy, results)
    except FumehoodError as error:
        problems.append(f"{file.name}: cannot be tried in a sandbox: {error}")
        return {}
