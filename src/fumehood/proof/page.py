"""A proof report as a page for people: the verdict first, then every control in a line, then what was tried."""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from fumehood.printable import page, pairs, table, text
from fumehood.proof.report import ControlEntry, ProofReport
from fumehood.proof.standards import CAVEAT, by_standard
from fumehood.proof.trial import Kind, Observation, Result

_VERDICTS = {
    "held": "Every control held: each attack was stopped, and each use worked.",
    "partial": "Attacks got through where the backend says itself that it enforces a control in part on this host.",
    "broken": "At least one control did not hold.",
    "incomplete": "Nothing broke, but not everything was tested: this is not a proof.",
}
_WORDS: dict[tuple[Kind, Result], str] = {
    ("attack", "held"): "stopped",
    ("attack", "partial"): "got through (in part)",
    ("attack", "broken"): "got through",
    ("use", "held"): "worked",
    ("use", "broken"): "did not work",
}
_KINDS: tuple[Kind, ...] = ("attack", "use")
_CSS = {"not tested": "untested", "does not apply": "apart"}
_HOW = (
    "Each control of the policy was tried on this host as an attack that must fail and as a use that must work, by "
    "programs in sandboxes of this policy. Three things differ from daily use. Large limits were lowered for their "
    "trial: the mechanism is the same, and the host should not be filled. Hosts that the policy names were not "
    "contacted: a server of the trial's own took their place behind the gateway. And the trials had an audit log and "
    "snapshots of their own, which they tried to falsify."
)
_CHECKED = (
    "The JSON file beside this page is what is signed. <code>hood prove verify FILE.json --policy POLICY</code> checks "
    "it offline, with the key that <code>hood audit key</code> prints on the machine that made it."
)
_ERROR_NAME = re.compile(r"\bE[A-Z0-9]{3,}\b")


def to_html(report: ProofReport) -> str:
    title = f"Proof of {report.policy_name or 'a policy'} on {report.host.backend}"
    parts = [
        f"<h1>{text(title)}</h1>",
        f'<p class="verdict {report.verdict}">{_VERDICTS[report.verdict]}</p>',
        _reservation(report),
        _facts(report),
        _list("Not tested, or in part", _open_points(report)),
        "<h2>Controls at a glance</h2>",
        _glance(report),
        "<h2>How it was tried</h2>",
        f"<p>{_HOW}</p>",
        "<h2>What was tried, and what was seen</h2>",
        *(_control(report, entry.control) for entry in report.controls),
        _apart(report),
        "<h2>Evidence for standards</h2>",
        f"<p>{CAVEAT}</p>",
        _standards(report),
        "<h2>Names of errors</h2>",
        _errors(report),
        "<h2>Signature</h2>",
        f"<p>{_CHECKED}</p>",
        pairs([("key", report.key), ("signature", report.signature)]),
    ]
    return page(title, parts)


def _reservation(report: ProofReport) -> str:
    """Beside a verdict that sounds whole: what held against the trials is not always whole."""
    controls = ", ".join(report.partial_controls())
    if not controls or report.verdict != "held":
        return ""
    return f'<p class="partial">Enforced in part on this host, as the backend says itself: {text(controls)}.</p>'


def _facts(report: ProofReport) -> str:
    host = report.host
    apart = report.with_result("does not apply")
    counted = Counter((one.kind, _word(one)) for one in report.observations if one not in apart)
    counts = ", ".join(_counted(count, kind, word) for (kind, word), count in counted.items())
    more = f"; {len(apart)} more that {'does' if len(apart) == 1 else 'do'} not apply" if apart else ""
    return pairs(
        [
            ("made", report.made_at),
            ("policy", report.policy_digest),
            ("image", report.image_digest or "none: programs use the host's interpreter"),
            ("Fumehood", f"{host.version}, Python {host.python}"),
            ("backend", f"{host.backend}, as {host.user}"),
            ("kernel", f"{host.kernel} ({host.machine})"),
            ("system", host.system),
            ("trials", f"{len(report.observations) - len(apart)}: {counts}{more}"),
        ]
    )


def _counted(count: int, kind: str, word: str) -> str:
    if count == 1:
        return f"1 {kind} {word}"
    return f"{count} {kind}s {word}"


def _word(one: Observation) -> str:
    return _WORDS.get((one.kind, one.result), one.result)


def _open_points(report: ProofReport) -> list[str]:
    through = [f"{one.control}: {one.what} It got through: {one.seen}" for one in report.with_result("partial")]
    return [
        *report.gaps(),
        *through,
        *(f"{entry.control}: enforced in part on this host: {entry.mechanism}" for entry in _partial(report)),
    ]


def _partial(report: ProofReport) -> list[ControlEntry]:
    return [entry for entry in report.controls if entry.partial]


def _apart(report: ProofReport) -> str:
    """By reason: on another backend than native many have the same."""
    reasons: dict[str, list[str]] = {}
    for one in report.with_result("does not apply"):
        reasons.setdefault(one.seen, []).append(f"{one.control}: {one.what}")
    parts = (f"<p>Because {text(reason)}:</p>{_points(whats)}" for reason, whats in reasons.items())
    return f"<h2>What does not apply</h2>{''.join(parts)}" if reasons else ""


def _list(title: str, items: Sequence[str]) -> str:
    return f"<h2>{title}</h2>{_points(items)}" if items else ""


def _points(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{text(item)}</li>' for item in items)}</ul>"


def _glance(report: ProofReport) -> str:
    heads = "<th>control</th><th>enforced by</th><th>attacks stopped</th><th>uses worked</th><th></th>"
    rows = (_glance_row(report, entry) for entry in report.controls)
    return f'<table class="dense"><tr>{heads}</tr>{"".join(rows)}</table>'


def _glance_row(report: ProofReport, entry: ControlEntry) -> str:
    result = report.result_of(entry.control)
    word, style = ("held, in part", "partial") if entry.partial and result == "held" else (result, result)
    shares = (f"<td>{_share(report, entry.control, kind)}</td>" for kind in _KINDS)
    link = f'<a href="#{text(_anchor(entry.control))}">{text(entry.control)}</a>'
    return (
        f"<tr><td>{link}</td><td>{text(entry.mechanism)}</td>{''.join(shares)}"
        f'<td class="word {_CSS.get(style, style)}">{word}</td></tr>'
    )


def _share(report: ProofReport, control: str, kind: Kind) -> str:
    tried = [one for one in report.of(control, kind) if one.result != "does not apply"]
    return f"{sum(one.result == 'held' for one in tried)} of {len(tried)}"


def _anchor(control: str) -> str:
    return control.replace(" ", "-")


def _control(report: ProofReport, control: str) -> str:
    tried = [one for one in report.observations if one.control == control and one.result != "does not apply"]
    return f'<h3 id="{text(_anchor(control))}">{text(control)}</h3><table>{"".join(map(_row, tried))}</table>'


def _row(one: Observation) -> str:
    return (
        f'<tr><td class="word">{one.kind}</td><td>{text(one.what)}<br><span class="seen">{text(one.seen)}</span></td>'
        f'<td class="word {_CSS.get(one.result, one.result)}">{_word(one)}</td></tr>'
    )


def _standards(report: ProofReport) -> str:
    """A control that did not hold is evidence of nothing, and is named as such."""
    clauses = by_standard(entry.control for entry in report.controls)
    rows = ((clause, ", ".join(_evidence(report, name) for name in names)) for clause, names in clauses.items())
    return table(("clause", "controls that were tried"), rows)


def _evidence(report: ProofReport, control: str) -> str:
    result = report.result_of(control)
    return control if result == "held" else f"{control} ({result})"


def _errors(report: ProofReport) -> str:
    """Those that occur in what was seen, for readers who do not know them by heart."""
    found = {name for one in report.observations for name in _ERROR_NAME.findall(one.seen)}
    named = {name: number for number, name in errno.errorcode.items() if name in found}
    return pairs((name, os.strerror(named[name])) for name in sorted(named))
