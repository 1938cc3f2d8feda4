"""Trials of published ports: who gets in, and what the server inside gets to see and to set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from fumehood.egress import shared_gateway
from fumehood.errors import FumehoodError
from fumehood.ingress.access import TOKEN_HEADER, TOKEN_NAME
from fumehood.proof.laboratory import Laboratory
from fumehood.proof.trial import BrokenError, Trial, attack, use
from fumehood.proof.trials.egress import reach_what_is_allowed
from fumehood.sandbox.ports import AsyncExposedPort

# Sends what it got back, and tries to take over the cookie of the token.
_ECHO = """
import socket
with socket.create_server(("127.0.0.1", {port})) as server:
    print("ready", flush=True)
    while True:
        with server.accept()[0] as one:
            body = b"inside: " + one.recv(4096)
            head = "HTTP/1.1 200 OK\\r\\nSet-Cookie: own=1\\r\\nSet-Cookie: {cookie}=taken\\r\\n"
            one.sendall(head.encode() + b"Content-Length: %d\\r\\nConnection: close\\r\\n\\r\\n" % len(body) + body)
"""
_INSIDE = "inside: "


@attack("network.publish", "Publish a port that the policy does not list.")
async def publish_another_port(lab: Laboratory) -> str:
    other = next(port for port in range(20_000, 30_000) if port not in lab.policy.network.publish)
    try:
        await lab.box.expose(other)
    except FumehoodError as error:
        return f"port {other}: {type(error).__name__}"
    raise BrokenError(f"port {other} was published")


@attack("network.publish", "Come in without the token, with a wrong one, by another name, and from a page elsewhere.")
async def come_in_without_a_token(lab: Laboratory) -> str:
    async with _published(lab) as port:
        number = port.address.rpartition(":")[2]
        tried = {
            "no token": {},
            "a wrong token": {TOKEN_HEADER: "wrong"},
            "a name that leads here": {**port.headers, "Host": f"attacker.example:{number}"},
            "a page of another origin": {**port.headers, "Origin": "http://attacker.example"},
            "a page of another site": {**port.headers, "Sec-Fetch-Site": "cross-site"},
            "two lengths": {**port.headers, "Content-Length": "0\r\nContent-Length: 2"},
        }
        answers = {name: await _ask(port, headers) for name, headers in tried.items()}
    if inside := [name for name, answer in answers.items() if _INSIDE in answer]:
        raise BrokenError(f"the server inside was reached with {', '.join(inside)}")
    return "; ".join(f"{name}: {_status(answer)}" for name, answer in answers.items())


@attack("network.publish", "Read the token from inside, and take its cookie over.")
async def take_the_token_over(lab: Laboratory) -> str:
    async with _published(lab) as port:
        token = port.headers[TOKEN_HEADER]
        answer = await _ask(port, {**port.headers, "X-Else": token, "Cookie": f"{TOKEN_NAME}={token}; own=1"})
    head, _, body = answer.partition("\r\n\r\n")
    if token in body:
        raise BrokenError("the server inside saw the token")
    if TOKEN_NAME in head.lower():
        raise BrokenError("the server inside set the cookie of the token")
    if _INSIDE not in body or "own=1" not in head:
        raise BrokenError(f"the trial did not reach the server inside: {_status(answer)}")
    return "the server inside saw no token, and its cookie of that name was dropped"


@attack("network.publish", "Take the gateway from other sandboxes with connections to the port that show no token.")
async def crowd_others_out(lab: Laboratory) -> str:
    connections = shared_gateway().connections
    most, connections.most = connections.most, _CROWD // 2
    try:
        async with _published(lab) as port, _crowd(port):
            await reach_what_is_allowed.carry_out(lab)
    finally:
        connections.most = most
    return f"with room for {_CROWD // 2} connections and {_CROWD} without a token, another sandbox reached its server"


_CROWD = 40


@asynccontextmanager
async def _crowd(port: AsyncExposedPort) -> AsyncIterator[None]:
    """Open until the block ends, but for those that had to make room for the last of them."""
    address = "127.0.0.1", int(port.address.rpartition(":")[2])
    opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for _ in range(_CROWD):
        with suppress(ConnectionError):  # refused at once
            opened.append(await asyncio.open_connection(*address))
    ends = [asyncio.ensure_future(_read_to_the_end(reader)) for reader, _ in opened]
    try:
        # Until the gateway has seen all of them.
        with suppress(TimeoutError):
            for _, end in zip(range(_CROWD // 2), asyncio.as_completed(ends, timeout=5), strict=False):
                await end
        yield
    finally:
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*ends)


async def _read_to_the_end(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        await reader.read()


@use("network.publish", "Use a published port with its token.")
async def come_in_with_a_token(lab: Laboratory) -> str:
    async with _published(lab) as port:
        answer = await _ask(port, port.headers)
    if _INSIDE not in answer:
        raise BrokenError(f"the answer was {answer[:200]!r}")
    return _status(answer)


@asynccontextmanager
async def _published(lab: Laboratory) -> AsyncIterator[AsyncExposedPort]:
    number = lab.policy.network.publish[0]
    run = await lab.box.start(_ECHO.format(port=number, cookie=TOKEN_NAME))
    try:
        async with await lab.box.expose(number) as port:
            await port.wait_ready(10)
            yield port
    finally:
        await run.kill()


async def _ask(port: AsyncExposedPort, headers: Mapping[str, str]) -> str:
    host = port.address.removeprefix("http://")
    lines = [f"{name}: {value}" for name, value in {"Host": host, "Connection": "close", **headers}.items()]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(host.rpartition(":")[2]))
    try:
        writer.write("\r\n".join(["GET / HTTP/1.1", *lines, "", ""]).encode())
        return (await reader.read()).decode("latin-1")
    finally:
        writer.close()


def _status(answer: str) -> str:
    return answer.splitlines()[0] if answer else "closed without an answer"


TRIALS: tuple[Trial, ...] = (
    publish_another_port,
    come_in_without_a_token,
    take_the_token_over,
    crowd_others_out,
    come_in_with_a_token,
)
