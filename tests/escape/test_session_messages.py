"""What a session's program writes on the session's own link: it is paid for, or ends the run, and says so.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| displays that carry much in little | header, body and values are charged before they are parsed | `displays-charged` |
| messages of other kinds, or at other times | only what the session has to say now is taken | `messages-expected` |
"""

from __future__ import annotations

from textwrap import dedent

import pytest
from containers import LendSandbox

from fumehood import AsyncSandbox, AsyncSession, Cause, Status

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

LIMIT = 1024**2
# The link is where a session's program can find it.
SPEAK = """
import json, os, struct, time
def speak(header, body=b"", times=1):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = memoryview((struct.pack("!II", len(text), len(body)) + text + body) * times)
    while data:
        data = data[os.write(3, data):]
"""
GREEDY = {
    "metadata": """
        text = b'{"display": {}, "metadata": {"x": [' + b",".join([b"{}"] * 15000) + b"]}}"
        speak(text, times=200)
    """,
    "values": """
        body = b"[" + b"{}," * 200_000 + b"1]"
        speak({"display": {"application/json": ["json", len(body)]}, "metadata": {}}, body, times=20)
    """,
    "numbers of them": """
        speak({"display": {"text/plain": ["text", 1]}, "metadata": {}}, b"x", times=100_000)
    """,
    "lengths that were never sent": """
        os.write(3, struct.pack("!II", 100, 16 * 1024**2))
    """,
}


async def run(session: AsyncSession, code: str) -> tuple[Status, Cause, str, int]:
    result = await session.run(SPEAK + dedent(code) + "\ntime.sleep(60)", timeout=30)
    return result.status, result.cause, result.detail, len(result.displays)


@pytest.mark.parametrize("code", GREEDY.values(), ids=GREEDY.keys())
async def test_displays_cannot_be_greedy_with(lend_sandbox: LendSandbox, code: str) -> None:
    async with lend_sandbox(resources={"output": LIMIT}) as sandbox, sandbox.session() as session:
        status, cause, _, displays = await run(session, code)
        assert (status, cause) == (Status.RESOURCE_EXCEEDED, Cause.OUTPUT)
        assert displays <= LIMIT // 256
        if "metadata" in code and "15000" in code:
            assert displays <= LIMIT // (15000 * 32)
    async with lend_sandbox(resources={"output": LIMIT}) as sandbox, sandbox.session() as session:
        assert (await session.run("1 + 1")).displays


WRONG = {
    "an unknown kind": "speak({'x': 1})",
    "two kinds in one": "speak({'started': 1, 'done': 1})",
    "a start that was": "speak({'started': 1})",
    "the end of another run": "speak({'done': 7, 'ended': 'ok', 'code': 0, 'exhausted': ''})",
    "an end that is none": "speak({'done': 1})",
    "being ready again": "speak({'ready': 'plain'})",
    "no JSON": "speak(b'text')",
    "no object": "speak(b'[]')",
    "a deep header": "speak(b'[' * 500)",
    "a deep value": "speak({'display': {'application/json': ['json', 500]}, 'metadata': {}}, b'[' * 500)",
    "a large header": "speak(b' ' * 500_000)",
    "a word with a body": "speak({'started': 1}, b'body')",
    "a flood of words": "speak({'started': 1}, times=100_000)",
}


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG.keys())
async def test_a_message_ends_the_run_and_is_named_if_it_is(sandbox: AsyncSandbox, code: str) -> None:
    async with sandbox.session() as session:
        status, cause, detail, displays = await run(session, code)
        assert (status, cause, displays) == (Status.ERROR, Cause.LOST, 0)
        assert "misused the socket over which its session gets its commands: " in detail
        assert (await session.run("print(1)")).stdout == "1\n"
