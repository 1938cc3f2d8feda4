"""Trials of what a program in a session sends to the host, and of what a person is shown of it."""

from __future__ import annotations

import re

from fumehood.notebook_output import media_bundle
from fumehood.proof.laboratory import Laboratory
from fumehood.proof.trial import BrokenError, NotTestedError, Trial, attack, use
from fumehood.results import Cause, Status

# The link to the host is where a session's program can find it.
_SPEAK = """
import json, os, struct, time
def speak(header, body=b"", times=1):
    text = json.dumps(header).encode()
    data = memoryview((struct.pack("!II", len(text), len(body)) + text + body) * times)
    while data:
        data = data[os.write(3, data):]
"""
_FORGED = (
    "speak({'x': 1})",
    "speak({'done': 7, 'ended': 'ok', 'code': 0, 'exhausted': ''})",
)


@attack("results", "Forge the messages of a session from the program in it.")
async def forge_messages(lab: Laboratory) -> str:
    async with lab.box.session() as session:
        for forged in _FORGED:
            result = await session.run(f"{_SPEAK}\n{forged}\ntime.sleep(60)", timeout=_session_seconds(lab))
            if (result.status, result.cause) != (Status.ERROR, Cause.LOST):
                raise BrokenError(f"{forged}: {result.status}, {result.cause}")
        if (await session.run("print(1)")).stdout != "1\n":
            raise BrokenError("the session did not go on afterwards")
    return f"{len(_FORGED)} of them: each ended its run as misuse of the socket"


@attack("resources.output", "Write more than the limit as displays of a session, which are small to send.")
async def flood_with_displays(lab: Laboratory) -> str:
    limit = min(1 << 20, lab.policy.resources.output)
    display = "speak({'display': {'text/plain': ['text', 1]}, 'metadata': {}}, b'x', times=100_000)"
    values = "speak({'display': {}, 'metadata': {'x': [{}] * 15_000}}, times=200)"
    async with lab.sandbox({"resources": {"output": limit}}) as box, box.session() as session:
        for code in (display, values):
            result = await session.run(f"{_SPEAK}\n{code}\ntime.sleep(60)", timeout=_session_seconds(lab))
            if result.cause != Cause.OUTPUT or len(result.displays) > limit // 256:
                raise BrokenError(f"{len(result.displays)} displays, and it ended with {result.cause}")
    return f"with {limit} bytes: ended, {len(result.displays)} displays were kept"


def _session_seconds(lab: Laboratory) -> float:
    seconds = lab.policy.resources.timeout
    if seconds < _SESSION_SECONDS:
        raise NotTestedError(f"a session may need {_SESSION_SECONDS:.0f} s for a run, and the policy gives less")
    return min(30.0, seconds)


_SESSION_SECONDS = 5.0


@use("results", "Keep state in a session, and show a value.")
async def use_a_session(lab: Laboratory) -> str:
    async with lab.box.session() as session:
        await session.run("value = 6 * 7")
        result = await session.run("value")
    shown = result.displays[0].data.get("text/plain") if result.displays else None
    if shown != "42":
        raise BrokenError(f"shown: {shown!r} {result.stderr[-200:]}")
    return "the second run showed what the first had computed"


_MARKUP = {
    "text/html": (
        "<b>kept</b><script>alert(1)</script><img src=x onerror=alert(1)><svg onload=alert(1)></svg>"
        "<a href='javascript:alert(1)'>x</a><p style='background:url(//203.0.113.10/x)'>x</p>"
        "<p>$\\href{javascript:alert(1)}{x}$</p>"
    ),
    "application/javascript": "alert(1)",
    "text/markdown": "<script>alert(1)</script>",
}
_DANGEROUS = re.compile(
    r"<(?:script|svg|iframe|a|object|style|form|link|meta)\b|<[^>]*\b(?:on\w+|href)\s*=|url\(//", re.IGNORECASE
)
_FORMULA = re.compile(r"\$.+|\\[^\\]")


@attack("results", "Show markup with scripts, handlers, links, styles and formulas to a person with a notebook.")
async def show_scripts(lab: Laboratory) -> str:
    code = f"class Odd:\n    def _repr_mimebundle_(self, **options): return {_MARKUP!r}\nOdd()"
    async with lab.box.session() as session:
        result = await session.run(code)
    if not result.displays:
        raise BrokenError(f"nothing was shown: {result.stderr[-200:]}")
    bundle = media_bundle(result.displays[0])
    markup = str(bundle.get("text/html", ""))
    kinds = set(bundle) - {"text/html", "text/plain"}
    texts = re.split(r"<[^<>]*>", markup)
    if "<b>kept</b>" not in markup or kinds or _DANGEROUS.search(markup) or any(map(_FORMULA.search, texts)):
        raise BrokenError(f"a viewer gets {sorted(bundle)}: {markup[:300]}")
    return f"a viewer gets {markup[:300]}"


TRIALS: tuple[Trial, ...] = (forge_messages, show_scripts, use_a_session, flood_with_displays)
