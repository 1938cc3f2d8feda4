"""HTML pages for reports: they print well, have no script, and load nothing. Every text is shown as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fumehood.characters import neutralise

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --open: #9a6700 }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #f85149; --open: #d29922 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin: 0 } h1, li, p { overflow-wrap: anywhere }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
h3 { font-size: 1rem; margin: 1.2rem 0 .2rem }
.verdict { font-weight: 600; font-size: 1.2rem }
a { color: inherit } .apart { opacity: .7 }
.held { color: var(--good) } .broken { color: var(--bad) } .partial, .incomplete, .untested { color: var(--open) }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line) }
th { font-weight: 600; white-space: nowrap }
td.long { overflow-wrap: anywhere } td.word { white-space: nowrap; font-weight: 600; width: 1% }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
code, .seen { font: 12.5px/1.5 ui-monospace, monospace; overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem } dt { font-weight: 600 } dd { margin: 0 }
@media (max-width: 40rem) {
  dl { grid-template-columns: 1fr } dd { margin-bottom: .4rem }
  table:not(.dense) { display: block; overflow-x: auto }
  .dense tr { display: grid; grid-template-columns: minmax(0, 1fr) 4.8rem 4.2rem 3.6rem }
  .dense tr { border-bottom: 1px solid var(--line) }
  .dense th, .dense td.word { white-space: normal } .dense th, .dense td { border: 0; padding-right: .4rem }
  .dense td:first-child { overflow-wrap: anywhere }
  .dense tr > :nth-child(2) { grid-row: 2; grid-column: 1 / -1 } .dense th:nth-child(2) { display: none }
}
@media print {
  body { font-size: 9.5pt; max-width: none; margin: 0; padding: 0 }
  code, .seen { font-size: 8pt } a { text-decoration: none }
  .dense th, .dense td { padding: .1rem .8rem .1rem 0 }
  tr, li, dt, dd { break-inside: avoid } h2, h3, h3 + p { break-after: avoid }
}
"""

_LONG = 24  # a word that may be broken, such as a digest


def page(title: str, parts: Iterable[str]) -> str:
    """`parts` are HTML, made with the functions below."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{text(title)}</title>'
    body = "\n".join(part for part in parts if part)
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>{body}</body></html>\n'


def text(content: str) -> str:
    """What a sandbox prints, a host or a policy is called: text, also for the eye."""
    return escape(neutralise(content))


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    shown = (f"<dt>{text(name)}</dt><dd><code>{text(value)}</code></dd>" for name, value in rows)
    return f"<dl>{''.join(shown)}</dl>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    """Whole numbers stand to the right. Without rows it says so."""
    lines = [tuple(row) for row in rows]
    if not lines:
        return "<p>None.</p>"
    kinds = [' class="number"' if isinstance(cell, int) else "" for cell in lines[0]]
    head = "".join(f"<th{kind}>{text(name)}</th>" for name, kind in zip(heads, kinds, strict=True))
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in lines)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: str | int) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    is_long = any(len(word) > _LONG for word in value.split())
    return f'<td class="long">{text(value)}</td>' if is_long else f"<td>{text(value)}</td>"
