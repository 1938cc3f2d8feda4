"""The results as JUnit XML, which CI systems show: a suite for each policy, a case for each test."""

from __future__ import annotations

from xml.etree import ElementTree

from fumehood.characters import neutralise
from fumehood.cli.policy_tests.examining import Examination, Outcome
from fumehood.cli.policy_tests.report import failure_words
from fumehood.errors import UsageError
from fumehood.policy.file import PolicyFile


def write(path: str, examinations: list[Examination], problems: list[str]) -> None:
    root = ElementTree.Element("testsuites", name="hood policy test")
    for examination in examinations:
        root.append(_suite(examination))
    if problems:
        root.append(_suite(Examination("paths", None, (), tuple(problems), 0.0)))
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ElementTree.indent(root)
    try:
        with open(path, "wb") as file:
            ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UsageError(f"--junit {path!r} cannot be written: {error.strerror}") from error


def _suite(found: Examination) -> ElementTree.Element:
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


def _case(outcome: Outcome, file: PolicyFile) -> ElementTree.Element:
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
