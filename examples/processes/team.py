"""A team whose agents are in several processes. Each line starts one, in any order, on any machine that reaches NATS:

    python examples/processes/team.py writer nats://127.0.0.1:4222
    python examples/processes/team.py editor nats://127.0.0.1:4222
    python examples/processes/team.py ask    nats://127.0.0.1:4222

In a cluster each has credentials of `hood cluster credentials`, and gives their file instead of the address. Without
either, all of it is in this process: that line is the only one that differs.
"""

from __future__ import annotations

import asyncio
import sys

from fumehood.runtime import Grants, LocalRuntime, Message, MessageContext, RuntimeAgent, handles
from fumehood.runtime.nats import NatsRuntime


class Task(Message):
    subject: str


class Draft(Message):
    text: str


class Writer(RuntimeAgent):
    @handles
    async def write(self, message: Task) -> Draft:
        return Draft(text=f"{message.subject}: a draft")


class Editor(RuntimeAgent):
    """Asks the writer, wherever that is."""

    @handles
    async def edit(self, message: Task, context: MessageContext) -> Draft:
        draft = await context.send(message, to="writer", reply=Draft)
        return Draft(text=draft.text.replace("a draft", "a text"))


def opened(place: str | None) -> LocalRuntime:
    if place is None:
        return LocalRuntime()
    return NatsRuntime(place) if "://" in place else NatsRuntime(credentials=place)


async def main(role: str, place: str | None) -> None:
    async with opened(place) as runtime:
        runtime.messages.add(Task)
        runtime.messages.add(Draft)
        if role in ("writer", "all"):
            await runtime.register("writer", Writer)
        if role in ("editor", "all"):
            await runtime.register("editor", Editor, grants=Grants(agents=["writer"]))
        if role in ("ask", "all"):
            print((await runtime.send(Task(subject="Fume hoods"), to="editor", reply=Draft)).text)
        else:
            print("ready", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    chosen, given = (*sys.argv[1:], "", "")[:2]
    asyncio.run(main(chosen or "all", given or None))
