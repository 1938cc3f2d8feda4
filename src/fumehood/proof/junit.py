"""A proof report as JUnit's XML, which CI systems show as tests."""

from __future__ import annotations

from xml.etree import ElementTree

from fumehood.characters import neutralise
from fumehood.proof.report import ProofReport
from fumehood.proof.trial import Observation


def to_junit(report: ProofReport) -> str:
    """A gap is a failure: a trial that was not carried out must not look like one that passed."""
    cases = [_case_of(one) for one in report.observations] + [_case("gaps", gap, 0, gap) for gap in report.gaps()]
    suite = ElementTree.Element(
        "testsuite", name=neutralise(f"hood prove {report.policy_name or report.policy_digest}")
    )
    suite.extend(cases)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    suite.set("timestamp", report.made_at.removesuffix("Z"))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _case_of(one: Observation) -> ElementTree.Element:
    failure = f"{one.result}: {one.seen}" if one.result in ("broken", "not tested") else ""
    case = _case(one.control, f"{one.kind}: {one.what}", one.seconds, failure)
    if one.result == "does not apply":
        ElementTree.SubElement(case, "skipped", message=neutralise(one.seen))
    return case


def _case(control: str, name: str, seconds: float, failure: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=f"hood.prove.{control}", name=name, time=f"{seconds:.3f}")
    if failure:
        ElementTree.SubElement(case, "failure", message=neutralise(failure))
    return case
