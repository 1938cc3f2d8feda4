"""A proof report as a page for people."""

from __future__ import annotations

from fumehood.printable import page, pairs, table, text
from fumehood.proof.report import ProofReport
from fumehood.proof.standards import CAVEAT, by_standard
from fumehood.proof.trial import Observation

_VERDICTS = {
    "held": "Every control held: each attack was stopped, and each use worked.",
    "broken": "At least one control did not hold.",
    "incomplete": "Nothing broke, but not every control was tested: this is not a proof.",
}


def to_html(report: ProofReport) -> str:
    title = f"Proof of {report.policy_name or 'a policy'} on {report.host.backend}"
    parts = [
        f"<h1>{text(title)}</h1>",
        f'<p class="verdict {report.verdict}">{_VERDICTS[report.verdict]}</p>',
        _facts(report),
        _gaps(report),
        "<h2>What was tried</h2>",
        *(_control(report, entry.control) for entry in report.controls),
        "<h2>Evidence for standards</h2>",
        f"<p>{CAVEAT}</p>",
        _standards(report),
        "<h2>Signature</h2>",
        "<p>The JSON file beside this page is what is signed; <code>hood prove verify</code> checks it offline.</p>",
        pairs([("key", report.key), ("signature", report.signature)]),
    ]
    return page(title, parts)


def _facts(report: ProofReport) -> str:
    host = report.host
    return pairs(
        [
            ("made", report.made_at),
            ("policy", report.policy_digest),
            ("image", report.image_digest or "none: programs use the host's interpreter"),
            ("Fumehood", f"{host.version}, Python {host.python}"),
            ("backend", f"{host.backend}, as {host.user}"),
            ("kernel", f"{host.kernel} ({host.machine})"),
            ("system", host.system),
            ("trials", f"{len(report.observations)}"),
        ]
    )


def _gaps(report: ProofReport) -> str:
    weak = [f"{control}: enforced in part on this host" for control in report.partial_controls()]
    skipped = [f"{one.control}, {one.kind}: {one.seen}" for one in report.observations if one.result == "not tested"]
    items = "".join(f"<li>{text(item)}</li>" for item in [*report.gaps(), *skipped, *weak])
    return f"<h2>Not tested, or in part</h2><ul>{items}</ul>" if items else ""


def _control(report: ProofReport, control: str) -> str:
    mechanism = next(entry.mechanism for entry in report.controls if entry.control == control)
    rows = "".join(map(_row, (one for one in report.observations if one.control == control)))
    return f"<h3>{text(control)}</h3><p>{text(mechanism)}</p><table>{rows}</table>"


def _row(one: Observation) -> str:
    css = one.result if one.result != "not tested" else "untested"
    return (
        f'<tr><td class="word">{one.kind}</td><td>{text(one.what)}<br><span class="seen">{text(one.seen)}</span></td>'
        f'<td class="word {css}">{one.result}</td></tr>'
    )


def _standards(report: ProofReport) -> str:
    clauses = by_standard(entry.control for entry in report.controls)
    return table(
        ("clause", "controls that were tried"), ((clause, ", ".join(names)) for clause, names in clauses.items())
    )
