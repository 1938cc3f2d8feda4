"""The results as people read them (a line for each policy, some for each failure, a summary), as JSON, or as JUnit XML.

CI systems show the latter: a suite for each policy, a case for each test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from xml.etree import ElementTree

from fumehood.characters import neutralise
from fumehood.cli import exitcodes
from fumehood.cli.output import DIM, GREEN, RED, YELLOW, paint, wrapped
from fumehood.cli.policy.tests.suite import TestedCase, TestedPolicy
from fumehood.errors import UsageError
from fumehood.policy.file import PolicyFile

_INDENT = "      "


class PolicyPrinter:
    """Shows each file when it is through."""

    def __init__(self, *, is_verbose: bool, is_silent: bool) -> None:
        self._is_verbose, self._is_silent = is_verbose, is_silent

    def file(self, examination: TestedPolicy) -> TestedPolicy:
        if not self._is_silent:
            for line in _file_lines(examination, is_verbose=self._is_verbose):
                print(line, flush=True)
        return examination


class Summary:
    def __init__(self, examinations: list[TestedPolicy], problems: list[str], *, is_live: bool) -> None:
        self._examinations, self._problems, self._is_live = examinations, problems, is_live
        self._outcomes = [outcome for examination in examinations for outcome in examination.outcomes]
        self._failed = sum(not outcome.passed for outcome in self._outcomes)

    @property
    def exit_code(self) -> int:
        if self._problems or any(examination.problems for examination in self._examinations):
            return exitcodes.USAGE
        return exitcodes.PROBLEM_FOUND if self._failed else 0

    def show(self, *, is_json: bool) -> None:
        if is_json:
            print(json.dumps(self._data()))
            return
        for problem in self._problems:
            print("\n".join(_problem_lines(problem)))
        print(paint("\n".join(wrapped(self._words(), indent="")), RED if self.exit_code else GREEN))

    def _words(self) -> str:
        count = len(self._examinations)
        broken = sum(bool(examination.problems) for examination in self._examinations)
        untested = sum(not (found.outcomes or found.problems) for found in self._examinations)
        tried = sum(outcome.seen is not None and outcome.seen.verdict is not None for outcome in self._outcomes)
        passed = len(self._outcomes) - self._failed
        parts = [f"{passed} passed", f"{self._failed} failed" if self._failed else ""]
        parts += [f"{tried} of them tried live" if self._is_live else ""]
        parts += [_counted(untested, "policy has no tests", "policies have no tests") if untested else ""]
        parts += [_counted(broken, "policy has problems", "policies have problems") if broken else ""]
        said = ", ".join(part for part in parts if part)
        return f"{_counted(count, 'policy', 'policies')}, {_counted(len(self._outcomes), 'test', 'tests')}: {said}"

    def _data(self) -> dict[str, object]:
        return {
            "passed": self.exit_code == 0,
            "tests": len(self._outcomes),
            "failed": self._failed,
            "problems": self._problems,
            "policies": [_examination_data(examination) for examination in self._examinations],
        }


def failure_words(outcome: TestedCase, file: PolicyFile) -> list[str]:
    """What was expected, what came, which rule decided, and what would change that."""
    decision, expected = outcome.result.decision, outcome.result.expectation.expect
    words: list[str] = []
    if not outcome.result.passed:
        decided = f"by {file.place_of(decision.rule)}" if decision.rule else "in every sandbox"
        words.append(f"expected {expected}, got {decision.verdict} {decided}: {decision.reason}")
        if decision.fix and expected == "allow":
            words.append(f"to allow it: {decision.fix}")
    if outcome.is_seen_otherwise and outcome.seen is not None and outcome.seen.verdict != decision.verdict:
        words.append(f"in a real sandbox: expected {expected}, got {outcome.seen.verdict}: {outcome.seen.detail}")
    return words


def _file_lines(found: TestedPolicy, *, is_verbose: bool) -> Iterator[str]:
    if found.file is not None and is_verbose:
        for outcome in found.outcomes:
            yield from _outcome_lines(outcome, found.file)
    elif found.file is not None:
        for outcome in found.failures:
            yield from _outcome_lines(outcome, found.file)
    for problem in found.problems:
        yield from _problem_lines(problem)
    if found.problems:
        return
    name, count, failed = found.name, len(found.outcomes), len(found.failures)
    if not count:
        yield f"{paint('none', YELLOW)}  {name}: no tests"
    elif failed:
        yield f"{paint('FAIL', RED)}  {name}: {failed} of {_counted(count, 'test', 'tests')} failed"
    else:
        yield f"{paint('ok', GREEN)}    {name}: {_counted(count, 'test', 'tests')}"


def _outcome_lines(outcome: TestedCase, file: PolicyFile) -> Iterator[str]:
    word = paint("pass", GREEN) if outcome.passed else paint("fail", RED)
    expectation = outcome.result.expectation
    yield f"{word}  {file.name}:{outcome.line}: {expectation.expect} {expectation.attempt}"
    for words in failure_words(outcome, file):
        yield from wrapped(words, indent=_INDENT)
    if outcome.seen is not None and outcome.seen.verdict is None:
        yield from (paint(line, DIM) for line in wrapped(f"not tried live: {outcome.seen.detail}", indent=_INDENT))


def _problem_lines(problem: str) -> Iterator[str]:
    first, *rest = wrapped(problem, indent=_INDENT)
    yield f"{paint('error', RED)} {first.lstrip()}"
    yield from rest


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _examination_data(found: TestedPolicy) -> dict[str, object]:
    file = found.file
    tests = [] if file is None else [_outcome_data(outcome, file) for outcome in found.outcomes]
    return {"file": found.name, "problems": list(found.problems), "tests": tests}


def _outcome_data(outcome: TestedCase, file: PolicyFile) -> dict[str, object]:
    decision, expectation = outcome.result.decision, outcome.result.expectation
    data: dict[str, object] = {
        "line": outcome.line,
        "attempt": expectation.attempt,
        "expect": expectation.expect,
        "passed": outcome.passed,
        "got": decision.verdict,
        "why": decision.reason,
        "rule": decision.rule,
        "rule_line": file.line_of(decision.rule),
        "remedy": decision.fix,
    }
    if outcome.seen is not None:
        data["live"] = {"verdict": outcome.seen.verdict, "detail": outcome.seen.detail}
    return data


def write_junit(path: str, examinations: list[TestedPolicy], problems: list[str]) -> None:
    root = ElementTree.Element("testsuites", name="hood policy test")
    for examination in examinations:
        root.append(_suite(examination))
    if problems:
        root.append(_suite(TestedPolicy("paths", None, (), tuple(problems), 0.0)))
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ElementTree.indent(root)
    try:
        with open(path, "wb") as file:
            ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UsageError(f"--junit {path!r} cannot be written: {error.strerror}") from error


def _suite(found: TestedPolicy) -> ElementTree.Element:
    name = found.name
    suite = ElementTree.Element("testsuite", name=name, file=name)
    for outcome in found.outcomes:
        assert found.file is not None
        suite.append(_case(outcome, found.file))
    for problem in found.problems:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name="the policy can be read and tried")
        ElementTree.SubElement(case, "error", message=neutralise(problem))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(found.failures)))
    suite.set("errors", str(len(found.problems)))
    suite.set("time", f"{found.seconds:.3f}")
    return suite


def _case(outcome: TestedCase, file: PolicyFile) -> ElementTree.Element:
    name, expectation = file.name, outcome.result.expectation
    title = f"{expectation.expect} {expectation.attempt}"
    case = ElementTree.Element("testcase", classname=name, name=title, file=name, line=str(outcome.line))
    if not outcome.passed:
        words = [neutralise(text) for text in failure_words(outcome, file)]
        failure = ElementTree.SubElement(case, "failure", message=words[0])
        failure.text = "\n".join(words)
    if outcome.seen is not None and outcome.seen.verdict is None:
        ElementTree.SubElement(case, "system-out").text = f"not tried live: {neutralise(outcome.seen.detail)}"
    return case
