"""The policies that are meant, their tests, and how each test came out.

A repository is full of YAML that is none of ours, and a policy with a mistake in it must not be passed over in silence.
So a file in a folder is known by a look at its lines, which works however broken the rest of it is.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from fumehood.cli import policy_choice
from fumehood.errors import FumehoodError, PolicyError
from fumehood.policy.decisions import TestResult, run_tests
from fumehood.policy.file import PolicyFile
from fumehood.policy.source import read_file, visible

_SUFFIXES = (".yaml", ".yml")
_VERSION = re.compile(rb"^\s*\{?\s*[\"']?version[\"']?:\s*1\s*(?:[#,}]|$)", re.MULTILINE)
_SECTION = re.compile(
    rb"^(?:backend|strict|filesystem|network|resources|environment|secrets|commands|approvals|docker|tests):",
    re.MULTILINE,
)
_TEST = re.compile(rb"\bexpect[\"']?:\s*[\"']?(?:allow|deny)\b")


@dataclass(frozen=True, slots=True)
class FoundPolicies:
    policies: list[str]
    problems: list[str]
    """What could not be looked at, one line each."""


def find_policies(paths: list[str]) -> FoundPolicies:
    policies, problems = dict[str, str](), list[str]()
    for path in paths:
        # Whatever is wrong with a file that was named, loading it will tell.
        for found in _search(path, problems) if os.path.isdir(path) else (path,):
            policies.setdefault(os.path.abspath(found), found)
    if not policies and not problems:
        problems.append(f"{', '.join(map(visible, paths))}: there is no policy here; name a file or another folder")
    return FoundPolicies(list(policies.values()), problems)


def _search(folder: str, problems: list[str]) -> Iterator[str]:
    def note(error: OSError) -> None:
        problems.append(f"{visible(str(error.filename))}: cannot be searched: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = os.path.normpath(os.path.join(place, name))
            try:
                if name == policy_choice.NAME or (name.endswith(_SUFFIXES) and _is_policy(read_file(path))):
                    yield path
            except PolicyError as error:
                problems += error.problems


def _is_policy(text: bytes) -> bool:
    return _TEST.search(text) is not None or (_VERSION.search(text) is not None and _SECTION.search(text) is not None)


@dataclass(frozen=True, slots=True)
class LiveResult:
    """What happened in a real sandbox; without a verdict it was not tried, and `detail` says why."""

    verdict: Literal["allow", "deny"] | None
    detail: str


@dataclass(frozen=True, slots=True)
class TestedCase:
    """One test: what the policy says, and what a sandbox did if one was asked."""

    result: TestResult
    line: int
    seen: LiveResult | None = None

    @property
    def is_seen_otherwise(self) -> bool:
        expected = self.result.expectation.expect
        return self.seen is not None and self.seen.verdict not in (None, expected)

    @property
    def passed(self) -> bool:
        return self.result.passed and not self.is_seen_otherwise


@dataclass(frozen=True, slots=True)
class TestedPolicy:
    """`problems`: why the file has no outcomes, or its tests could not be tried."""

    name: str
    file: PolicyFile | None
    outcomes: tuple[TestedCase, ...]
    problems: tuple[str, ...]
    seconds: float

    @property
    def failures(self) -> list[TestedCase]:
        return [outcome for outcome in self.outcomes if not outcome.passed]


def examine(name: str, *, is_live: bool, backend: str | None) -> TestedPolicy:
    started = time.perf_counter()
    problems: list[str] = []
    file, outcomes = None, list[TestedCase]()
    try:
        file = PolicyFile.load(name)
        results = list(run_tests(file.policy))
        seen = _try_live(file, results, backend, problems) if is_live and results else dict[int, LiveResult]()
        outcomes = [
            TestedCase(result, file.line_of(f"tests[{result.index}]") or 1, seen.get(result.index))
            for result in results
        ]
    except PolicyError as error:
        problems += error.problems
    return TestedPolicy(visible(name), file, tuple(outcomes), tuple(problems), time.perf_counter() - started)


def _try_live(
    file: PolicyFile, results: list[TestResult], backend: str | None, problems: list[str]
) -> Mapping[int, LiveResult]:
    # Imported here: most runs need no sandbox, and its parts take a while to import.
    from fumehood.cli.policy.tests.live import try_live

    policy = file.policy if backend is None else file.policy.override({"backend": backend})
    try:
        return try_live(policy, results)
    except FumehoodError as error:
        problems.append(f"{file.name}: cannot be tried in a sandbox: {error}")
        return {}
