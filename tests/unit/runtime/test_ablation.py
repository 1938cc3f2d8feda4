"""Each check is taken out, and the attack that it stops succeeds: so that no other test passes by accident."""

from __future__ import annotations

import asyncio
from functools import partial

import anyio
import pytest
from unit.runtime.sample_agents import READING, Door, Errand, Greeter, Greeting, News, Order, Reader, Reply, Waiter

from fumehood import Policy
from fumehood.runtime import (
    AgentId,
    DeadlineError,
    Grants,
    LocalRuntime,
    LoopError,
    MessageContext,
    MessageError,
    RuntimeLimits,
    dispatch,
    handles,
)
from fumehood.runtime import grants as grants_module
from fumehood.runtime.envelopes import ReplyEnvelope
from fumehood.runtime.local_link import LocalLink
from fumehood.runtime.mailbox import Mailbox
from fumehood.runtime.messages import MessageTypes, Payload
from fumehood.runtime.pending import PendingRequests
from fumehood.runtime.registry import Registry
from fumehood.runtime.scheduler import WaitGraph
from fumehood.tools import ToolStatus

pytestmark = pytest.mark.anyio

local = partial(LocalRuntime, audit=False)
SMALL, LARGE = Policy(), Policy(resources={"memory": "1G"})


def always(*_: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("check", "order"),
    [
        ("may_send", Order(what="greet", target="greeter/x")),
        ("may_publish", Order(what="publish", target="news.weather")),
        ("may_subscribe", Order(what="subscribe", target="news.weather")),
    ],
)
async def test_grants(monkeypatch: pytest.MonkeyPatch, check: str, order: Order) -> None:
    monkeypatch.setattr(Grants, check, always)
    async with local() as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("reader", Reader, grants=READING)
        await runtime.register("errand", Errand)
        assert await runtime.send(order, to="errand", reply=Reply)


async def test_grants_of_recipients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grants, "may_receive", always)
    read: list[tuple[AgentId, str]] = []
    async with local() as runtime:
        await runtime.register("reader", Reader, make=lambda _: Reader(read), grants=READING)
        await runtime.grant("reader", Grants())
        await runtime.publish(News(headline=""), topic="news.a")
    assert len(read) == 1


@pytest.mark.parametrize("check", ["may_call", "may_open"])
async def test_grants_of_tools_and_policies(monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    monkeypatch.setattr(Grants, check, always)
    policy, tool = (SMALL, "list_files") if check == "may_call" else (LARGE, "python")
    statuses: list[ToolStatus] = []

    @handles
    async def worker(message: Order, context: MessageContext) -> None:
        async with context.toolbox(policy) as toolbox:
            statuses.append((await toolbox.call(tool, {"code": "1"} if tool == "python" else {})).status)

    async with local() as runtime:
        await runtime.register("worker", worker, grants=Grants(tools=["python"], policies=[SMALL]))
        await runtime.send(Order(what=""), to="worker")
    assert statuses == [ToolStatus.SUCCESS]


def test_a_digest_that_is_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants_module, "digest_of", lambda policy: policy.digest)
    forged = Policy(resources={"memory": "2G"})
    forged.__dict__["digest"] = SMALL.digest
    assert Grants(policies=[SMALL]).may_open(forged)


async def test_answers_only_from_who_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def gullible(self: PendingRequests, answer: ReplyEnvelope) -> bool:
        if (request := self._open.pop(answer.message_id, None)) is not None:
            request.settle(answer)
        return True

    monkeypatch.setattr(PendingRequests, "settle", gullible)
    door = Door()
    async with local() as runtime:
        await runtime.register("waiter", Waiter, make=lambda _: Waiter(door))
        replies: list[object] = []

        async def ask() -> None:
            replies.append(await runtime.send(Greeting(name="honest"), to="waiter"))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await door.reached.wait()
            (message_id,) = runtime._pending._open
            forged = ReplyEnvelope(message_id, AgentId("mallory"), Payload("Reply", b'{"text":"forged"}'))
            runtime._pending.settle(forged)
            door.opened.set()
    assert replies == [Reply(text="forged")]


async def test_contexts_that_end_with_their_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalLink, "_check_not_over", always)
    kept: list[MessageContext] = []

    @handles
    async def keep(message: Order, context: MessageContext) -> None:
        kept.append(context)

    async with local() as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("keeper", keep, grants=Grants(agents=["greeter"]))
        await runtime.send(Order(what=""), to="keeper")
        assert await kept[0].send(Greeting(name=""), to="greeter") is not None


async def test_the_limit_of_hops() -> None:
    hops = 0

    @handles
    async def again(message: Order, context: MessageContext) -> None:
        nonlocal hops
        hops += 1
        if hops < 500:
            await context.send(message, to="ping")

    async with local(limits=RuntimeLimits(hops=10_000)) as runtime:
        await runtime.register("ping", again, grants=Grants(agents=["ping"]), at_once=10_000)
        await runtime.send(Order(what=""), to="ping")
    assert hops == 500


async def test_who_waits_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[type[Exception]] = []

    @handles
    async def ask_myself(message: Order, context: MessageContext) -> None:
        try:
            await context.send(message, to="narcissus", deadline=0.01)
        except (LoopError, DeadlineError) as error:
            errors.append(type(error))

    for _ in range(2):
        async with local() as runtime:
            await runtime.register("narcissus", ask_myself, grants=Grants(agents=["narcissus"]), reentrant=False)
            await runtime.send(Order(what=""), to="narcissus")
        monkeypatch.setattr(WaitGraph, "would_close", lambda *_: False)
    assert errors == [LoopError, DeadlineError]


async def test_the_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MessageTypes, "_check_size", always)
    async with local(limits=RuntimeLimits(message_bytes=100)) as runtime:
        await runtime.register("greeter", Greeter)
        assert await runtime.send(Greeting(name="x" * 10_000), to="greeter")


async def test_the_check_of_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the recipient finds out, and the sender is told later."""
    monkeypatch.setattr("fumehood.runtime.messages._validated", lambda shape, data: shape.type.model_construct())
    known = MessageTypes(1000)
    known.add(Greeting)
    assert known.encode(Greeting(name=""))
    assert known.decode(Payload("Greeting", b'{"name": 5}'))
    monkeypatch.undo()
    with pytest.raises(MessageError):
        known.decode(Payload("Greeting", b'{"name": 5}'))


async def test_the_end_of_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mailbox, "_has_room", always)
    door = Door()
    async with local(limits=RuntimeLimits(queue_messages=5)) as runtime:
        await runtime.register("waiter", Waiter, make=lambda _: Waiter(door))
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(lambda: runtime.send(Greeting(name=""), to="waiter"))
            await anyio.wait_all_tasks_blocked()
            mailbox = runtime._registry.find(AgentId("waiter"))
            assert mailbox is not None
            assert len(mailbox) == 49
            group.cancel_scope.cancel()


# Only asyncio lets a task cancel itself.
@pytest.mark.parametrize("anyio_backend", ["asyncio"], scope="session")
async def test_handlers_that_cancel_their_own_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing() -> None: ...

    monkeypatch.setattr(dispatch, "clear_own_cancellation", nothing)

    @handles
    async def nasty(message: Greeting) -> Reply:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return Reply(text="gone")

    async with local() as runtime:
        await runtime.register("nasty", nasty)
        await runtime.register("greeter", Greeter)
        await runtime.send(Greeting(name=""), to="nasty")
        # The task that is to handle the next one is gone.
        with pytest.raises(DeadlineError):
            await runtime.send(Greeting(name=""), to="greeter", deadline=0.05)
        await runtime.stop(drain=False)


async def test_the_limit_of_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "mailbox", lambda self, id: self._mailboxes.setdefault(id, _mailbox(self, id)))
    async with local(limits=RuntimeLimits(agents=2)) as runtime:
        await runtime.register("greeter", Greeter)
        for number in range(10):
            await runtime.send(Greeting(name=""), to=f"greeter/{number}")
        assert len(list(runtime._registry.mailboxes())) == 10


def _mailbox(registry: Registry, id: AgentId) -> Mailbox:
    return Mailbox(id, registry.registration(id.type), RuntimeLimits(), registry._launch)
