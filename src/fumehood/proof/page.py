"""A proof report as one HTML page that prints well: no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from fumehood.characters import neutralise
from fumehood.proof.report import ProofReport
from fumehood.proof.standards import CAVEAT, by_standard
from fumehood.proof.trial import Observation

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --open: #9a6700 }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #f85149; --open: #d29922 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
h3 { font-size: 1rem; margin: 1.2rem 0 .2rem }
.verdict { font-weight: 600; font-size: 1.2rem }
.held { color: var(--good) } .broken { color: var(--bad) } .partial, .incomplete, .untested { color: var(--open) }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line) }
th { font-weight: 600 } td.word { white-space: nowrap; font-weight: 600 }
code, .seen { font: 12.5px/1.5 ui-monospace, monospace; overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem } dt { font-weight: 600 } dd { margin: 0 }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr } dd { margin-bottom: .4rem } }
@media print { body { font-size: 10.5pt; max-width: none; margin: 0 } h3, tr { break-inside: avoid } }
"""
_VERDICTS = {
    "held": "Every control held: each attack was stopped, and each use worked.",
    "broken": "At least one control did not hold.",
    "incomplete": "Nothing broke, but not every control was tested: this is not a proof.",
}


def to_html(report: ProofReport) -> str:
    title = f"Proof of {report.policy_name or 'a policy'} on {report.host.backend}"
    parts = [
        f"<h1>{_text(title)}</h1>",
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
        _pairs([("key", report.key), ("signature", report.signature)]),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_text(title)}</title>'
    body = "\n".join(part for part in parts if part)
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>{body}</body></html>\n'


def _facts(report: ProofReport) -> str:
    host = report.host
    return _pairs(
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
    items = "".join(f"<li>{_text(item)}</li>" for item in [*report.gaps(), *skipped, *weak])
    return f"<h2>Not tested, or in part</h2><ul>{items}</ul>" if items else ""


def _control(report: ProofReport, control: str) -> str:
    mechanism = next(entry.mechanism for entry in report.controls if entry.control == control)
    rows = "".join(map(_row, (one for one in report.observations if one.control == control)))
    return f"<h3>{_text(control)}</h3><p>{_text(mechanism)}</p><table>{rows}</table>"


def _row(one: Observation) -> str:
    css = one.result if one.result != "not tested" else "untested"
    return (
        f'<tr><td class="word">{one.kind}</td><td>{_text(one.what)}<br><span class="seen">{_text(one.seen)}</span></td>'
        f'<td class="word {css}">{one.result}</td></tr>'
    )


def _standards(report: ProofReport) -> str:
    clauses = by_standard(entry.control for entry in report.controls)
    rows = (f"<tr><td>{_text(clause)}</td><td>{_text(', '.join(names))}</td></tr>" for clause, names in clauses.items())
    return f"<table><tr><th>clause</th><th>controls that were tried</th></tr>{''.join(rows)}</table>"


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return (
        "<dl>"
        + "".join(f"<dt>{_text(name)}</dt><dd><code>{_text(value)}</code></dd>" for name, value in pairs)
        + "</dl>"
    )


def _text(text: str) -> str:
    """What a sandbox prints and a policy is called stays text, also for the eye."""
    return escape(neutralise(text))
