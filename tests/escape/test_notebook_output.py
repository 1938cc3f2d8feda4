"""What a session shows, in a notebook of a person whose viewer trusts it.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| HTML with scripts, handlers, styles, frames | known tags and attributes are written anew | `notebook-html` |
| formulas in HTML, which can have links and styles | what begins one stands alone | `notebook-formulas` |
| JavaScript, widgets and the like | only known kinds are passed on | `notebook-kinds` |
| an SVG that runs a script | it is a picture | `notebook-kinds` |

The host's part is the same on every backend, so it is attacked on one.
"""

from __future__ import annotations

import re

import pytest

from fumehood import AsyncSandbox, Policy
from fumehood.notebook_output import media_bundle

pytestmark = pytest.mark.anyio
POLICY = Policy(backend="native")
_DANGEROUS = re.compile(
    r"<(?:script|svg|iframe|a|object|style|form|link|meta)\b|<[^>]*\b(?:on\w+|href)\s*=|url\(//", re.IGNORECASE
)
HTML = {
    "a script": "<script>alert(1)</script>",
    "a handler": "<img src=x onerror=alert(1)>",
    "a drawing": "<svg onload=alert(1)></svg>",
    "a frame": "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "a link": "<a href='javascript:alert(1)'>x</a>",
    "a style": "<p style='background:url(//203.0.113.10/x)'>x</p>",
}
FORMULAS = [
    r"$\href{javascript:alert(1)}{x}$",
    r"\(\style{color:red}{x}\)",
    r"\begin{align}x\end{align}",
    "&#36;x&#36;",
]
KINDS = [
    "application/javascript",
    "text/markdown",
    "text/latex",
    "image/svg+xml",
    "application/vnd.jupyter.widget-view+json",
]


async def shown(bundle: dict[str, str]) -> dict[str, object]:
    """What a viewer gets of an object that shows itself in these kinds."""
    code = f"class Odd:\n    def _repr_mimebundle_(self, **options): return {bundle!r}\nOdd()"
    async with AsyncSandbox(POLICY) as box, box.session() as session:
        result = await session.run(code)
    assert result.displays, result.stderr
    return media_bundle(result.displays[0])


@pytest.mark.parametrize("attack", HTML)
async def test_no_viewer_executes_or_fetches(attack: str) -> None:
    bundle = await shown({"text/html": f"<b>x</b>{HTML[attack]}"})
    assert _DANGEROUS.search(str(bundle["text/html"])) is None


async def test_no_viewer_typesets_a_formula() -> None:
    """Formulas are found in the text of one element; one character is none."""
    bundle = await shown({"text/html": "".join(f"<p>{formula}</p>" for formula in FORMULAS)})
    texts = re.split(r"<[^<>]*>", str(bundle["text/html"]))
    assert [text for text in texts if re.search(r"\$.+|\\[^\\]", text)] == []


async def test_only_kinds_that_are_shown_and_not_executed_reach_a_viewer() -> None:
    bundle = await shown(dict.fromkeys(KINDS, "<svg onload='alert(1)'></svg>"))
    assert set(bundle) <= {"text/plain", "text/html", "image/png", "image/jpeg", "image/gif", "application/json"}
    assert _DANGEROUS.search(str(bundle.get("text/html", ""))) is None
