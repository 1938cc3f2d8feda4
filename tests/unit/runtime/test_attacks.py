"""What an agent tries that means harm, or was talked into it: it gets an error, and others go on.

`test_ablation` takes the checks out, one at a time, and sees these attacks succeed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from unit.runtime.sample_agents import (
    READING,
    Counter,
    Door,
    Errand,
    Greeter,
    Greeting,
    MakeRuntime,
    News,
    Order,
    Reader,
    Reply,
    Waiter,
    until,
)

from fumehood import UsageError
from fumehood.audit import AuditLog, Query
from fumehood.runtime import (
    AgentFailedError,
    AgentId,
    DeadlineError,
    Grants,
    LocalRuntime,
    LoopError,
    Message,
    MessageContext,
    MessageError,
    NotGrantedError,
    OverloadedError,
    Reason,
    RuntimeAgent,
    RuntimeLimits,
    handles,
)
from fumehood.runtime.envelopes import ReplyEnvelope
from fumehood.runtime.messages import Payload

pytestmark = pytest.mark.anyio


async def denied(runtime: LocalRuntime, order: Order, to: str = "errand/boy") -> str:
    """What the agent itself was told when it obeyed."""
    with pytest.raises(AgentFailedError, match="failed with NotGrantedError"):
        await runtime.send(order, to=to)
    return runtime.dead_letters.take()[-1].detail


# Who may do what


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (Order(what="greet", target="greeter/x"), "errand/boy may not send to greeter/x"),
        (Order(what="greet", target="errand/boy"), "errand/boy may not send to errand/boy"),
        (Order(what="greet", target="nobody-at-all"), "errand/boy may not send to nobody-at-all/default"),
        (Order(what="publish", target="news.weather"), "errand/boy may not publish to news.weather/default"),
        (Order(what="subscribe", target="news.weather"), "errand/boy may not subscribe to news.weather"),
        (Order(what="subscribe", target="*"), "errand/boy may not subscribe to *"),
    ],
)
async def test_an_agent_without_grants_can_do_nothing_and_every_attempt_is_recorded(
    make_runtime: MakeRuntime, tmp_path: Path, order: Order, told: str
) -> None:
    log, read = AuditLog.at(tmp_path / "audit"), list[tuple[AgentId, str]]()
    async with make_runtime(audit=log) as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("reader", Reader, make=lambda _: Reader(read), grants=READING)
        await runtime.register("errand", Errand)
        assert told in await denied(runtime, order)
    (record,) = log.find(Query(kind="grant.denied"))
    assert record.parse()["ids"]["agent"] == "errand/boy"
    assert f"may not {record.data['action']} {record.data['target']}" in told
    assert read == []


@pytest.mark.parametrize(
    ("grants", "order"),
    [
        (Grants(agents=["greeter/{key}"]), Order(what="greet", target="greeter/other")),
        (Grants(agents=["greeter/x"]), Order(what="greet", target="greeter/y")),
        (Grants(agents=["greet", "greeter.*", "greeters"]), Order(what="greet", target="greeter/x")),
        (Grants(publish=["greeter"]), Order(what="greet", target="greeter/x")),
        (Grants(publish=["news.*/{key}"]), Order(what="publish", target="news.weather/other")),
        (Grants(publish=["news.weather"]), Order(what="publish", target="news.weather.north")),
        (Grants(publish=["news.*"]), Order(what="publish", target="newspaper.a")),
        (Grants(agents=["*"]), Order(what="publish", target="news.weather")),
        (Grants(subscribe=["news.weather"]), Order(what="subscribe", target="news.*")),
        (Grants(subscribe=["news.*/{key}"]), Order(what="subscribe", target="news.*")),
        (Grants(subscribe=["news.*/{key}"]), Order(what="subscribe", target="news.*/other")),
    ],
)
async def test_a_grant_is_not_a_larger_one(make_runtime: MakeRuntime, grants: Grants, order: Order) -> None:
    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("errand", Errand, grants=grants)
        assert "its grants do not say so" in await denied(runtime, order)


async def test_grants_that_are_taken_away_are_gone_at_once(make_runtime: MakeRuntime) -> None:
    read: list[tuple[AgentId, str]] = []
    boy, girl = AgentId("errand", "boy"), AgentId("errand", "girl")
    order = Order(what="publish", target="news.a")
    async with make_runtime() as runtime:
        await runtime.register("reader", Reader, make=lambda _: Reader(read), grants=READING)
        await runtime.register("errand", Errand, grants=Grants(publish=["news.*"]))
        await runtime.send(order, to=boy)
        await runtime.grant(boy, Grants())
        await denied(runtime, order)
        await runtime.send(order, to=girl)
        await runtime.grant("errand", Grants())
        await denied(runtime, order, "errand/girl")
        await runtime.idle()
        assert len(read) == 2
        # Who may not be subscribed any more gets nothing, although it is.
        await runtime.grant("reader", Grants())
        await runtime.publish(News(headline=""), topic="news.a")
        with pytest.raises(UsageError, match="there is no agent type 'eater'"):
            await runtime.grant("eater", Grants())
    assert len(read) == 2


# Who somebody is


async def test_a_sender_cannot_be_forged(make_runtime: MakeRuntime) -> None:
    """Whatever an agent does to its context, the runtime knows who it is."""

    @handles
    async def forge(message: Order, context: MessageContext) -> Reply:
        admin = AgentId("admin", "root")
        with pytest.raises(dataclasses.FrozenInstanceError):
            context.id = admin  # type: ignore[misc]
        object.__setattr__(context, "id", admin)
        object.__setattr__(context, "sender", admin)
        forged = dataclasses.replace(context, id=admin, sender=admin)
        with pytest.raises(TypeError):
            await context.send(Greeting(name=""), to="greeter", sender=admin)  # type: ignore[call-arg]
        with pytest.raises(NotGrantedError, match="forger/f may not send to vault/x"):
            await forged.send(Greeting(name=""), to="vault/x")
        return await forged.send(Greeting(name="x"), to="greeter/x", reply=Reply)

    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("vault", Greeter)
        await runtime.register("admin", Greeter, grants=Grants(agents=["*"]))
        await runtime.register("forger", forge, grants=Grants(agents=["greeter"]))
        reply = await runtime.send(Order(what=""), to="forger/f", reply=Reply)
    assert reply.text.endswith("you are forger/f")


async def test_a_context_is_over_with_its_message(make_runtime: MakeRuntime) -> None:
    kept: list[MessageContext] = []

    @handles
    async def keep(message: Order, context: MessageContext) -> None:
        kept.append(context)

    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("keeper", keep, grants=Grants(agents=["*"], publish=["*"], subscribe=["*"]))
        await runtime.send(Order(what=""), to="keeper")
        for attempt in (
            lambda: kept[0].send(Greeting(name=""), to="greeter"),
            lambda: kept[0].publish(Greeting(name=""), topic="a"),
            lambda: kept[0].subscribe("a"),
        ):
            with pytest.raises(UsageError, match="is handled, and its context has ended"):
                await attempt()


# Answers that nobody asked for


async def test_an_answer_counts_once_and_only_from_who_was_asked(make_runtime: MakeRuntime) -> None:
    """As it could come from another machine."""
    door, replies = Door(), list[object]()
    async with make_runtime() as runtime:
        await runtime.register("waiter", Waiter, make=lambda _: Waiter(door))

        async def ask() -> None:
            replies.append(await runtime.send(Greeting(name="honest"), to="waiter"))

        forged = Payload("Reply", b'{"text":"forged"}')
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await door.reached.wait()
            (delivery,) = runtime._dispatcher.answering.values()
            envelope = delivery.envelope
            # By somebody else; to a message that never was.
            await runtime._dispatcher.settle(ReplyEnvelope(envelope.message_id, AgentId("mallory"), forged), envelope)
            await runtime._dispatcher.settle(ReplyEnvelope("msg_0", AgentId("waiter"), forged), envelope)
            assert replies == []
            door.opened.set()
        # The same once more.
        await runtime._dispatcher.settle(ReplyEnvelope(envelope.message_id, AgentId("waiter"), forged), envelope)
    assert replies == [Reply(text="honest")]
    assert [letter.reason for letter in runtime.dead_letters] == [Reason.UNASKED] * 3


async def test_an_answer_after_the_deadline_is_a_dead_letter(make_runtime: MakeRuntime) -> None:
    """From a handler that will not be cancelled."""
    has_answered = False

    @handles
    async def stubborn(message: Greeting) -> Reply:
        nonlocal has_answered
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            has_answered = True
            return Reply(text="at last")

    async with make_runtime() as runtime:
        await runtime.register("stubborn", stubborn)
        # On a busy machine a message may be late before its handler has begun.
        while not has_answered:
            runtime.dead_letters.take()
            with pytest.raises(DeadlineError):
                await runtime.send(Greeting(name=""), to="stubborn", deadline=0.02)
            await runtime.idle()
    assert [letter.reason for letter in runtime.dead_letters] == [Reason.LATE]


# Too much


async def test_a_flood_fills_one_queue_and_not_the_memory(make_runtime: MakeRuntime) -> None:
    door = Door()
    async with make_runtime(limits=RuntimeLimits(queue_messages=5)) as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("waiter", Waiter, make=lambda _: Waiter(door))
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(lambda: runtime.send(Greeting(name=""), to="waiter"))
            await until(lambda: (door.inside, len(runtime._registry.find(AgentId("waiter")) or ())) == (1, 5))
            mailbox = runtime._registry.find(AgentId("waiter"))
            assert mailbox is not None
            assert (door.inside, len(mailbox)) == (1, 5)
            # Others do not notice.
            assert await runtime.send(Greeting(name=""), to="greeter") is not None
            group.cancel_scope.cancel()
        await runtime.idle()
        door.opened.set()
        assert await runtime.send(Greeting(name="calm"), to="waiter") == Reply(text="calm")


async def test_a_queue_is_full_by_its_bytes_too(make_runtime: MakeRuntime) -> None:
    door = Door()
    limits = RuntimeLimits(queue_bytes=1000, message_bytes=1000)
    async with make_runtime(limits=limits) as runtime:
        await runtime.register("waiter", Waiter, make=lambda _: Waiter(door))
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(lambda: runtime.send(Greeting(name="x" * 400), to="waiter"))
            await until(lambda: len(runtime._registry.find(AgentId("waiter")) or ()) == 2)
            mailbox = runtime._registry.find(AgentId("waiter"))
            assert mailbox is not None
            assert len(mailbox) == 2
            door.opened.set()


async def test_keys_cannot_be_used_to_make_agents_without_end(make_runtime: MakeRuntime) -> None:
    async with make_runtime(limits=RuntimeLimits(agents=3)) as runtime:
        await runtime.register("counter", Counter, grants=READING)
        for key in "abc":
            await runtime.send(Greeting(name=""), to=f"counter/{key}")
        with pytest.raises(OverloadedError, match="there are 3 agents, and that is the limit"):
            await runtime.send(Greeting(name=""), to="counter/d")
        await runtime.idle()
        await runtime.retire("counter/a")
        assert await runtime.send(Greeting(name=""), to="counter/d") == Reply(text="1")


async def test_subscriptions_have_an_end_too(make_runtime: MakeRuntime) -> None:
    async with make_runtime(limits=RuntimeLimits(subscriptions=2)) as runtime:
        await runtime.register("errand", Errand, grants=Grants(subscribe=["*"]))
        for topic in ("a", "b", "a", "b"):
            await runtime.send(Order(what="subscribe", target=topic), to="errand")
        with pytest.raises(AgentFailedError, match="OverloadedError"):
            await runtime.send(Order(what="subscribe", target="c"), to="errand")


async def test_two_agents_that_send_to_each_other_for_ever_are_stopped(make_runtime: MakeRuntime) -> None:
    hops: list[str] = []

    class Ping(RuntimeAgent):
        @handles
        async def hit(self, message: Order, context: MessageContext) -> None:
            hops.append(str(context.id))
            await context.send(message, to="pong" if context.id.type == "ping" else "ping")

    async with make_runtime(limits=RuntimeLimits(hops=10)) as runtime:
        for name in ("ping", "pong"):
            await runtime.register(name, Ping, grants=Grants(agents=["ping", "pong"]), at_once=100)
        with pytest.raises(AgentFailedError):
            await runtime.send(Order(what=""), to="ping")
    assert len(hops) == 11
    assert next(iter(runtime.dead_letters)).reason is Reason.LOOPING


async def test_publications_that_lead_to_publications_for_ever_are_stopped(make_runtime: MakeRuntime) -> None:
    read: list[str] = []

    class Echo(RuntimeAgent):
        subscriptions = ("news.*",)

        @handles
        async def again(self, message: News, context: MessageContext) -> None:
            read.append(str(context.id))
            await context.publish(message, topic="news.again")

    grants = Grants(publish=["news.*"], subscribe=["news.*"])
    async with make_runtime(limits=RuntimeLimits(hops=6)) as runtime:
        for name in ("echo", "wall"):
            await runtime.register(name, Echo, grants=grants)
        await runtime.publish(News(headline=""), topic="news.first")
    assert len(read) == 2 * 7
    assert {letter.reason for letter in runtime.dead_letters} == {Reason.LOOPING, Reason.FAILED}


@pytest.mark.parametrize("path", [["a"], ["b", "a"], ["b", "c", "a"]])
async def test_who_would_wait_for_itself_is_told_at_once(make_runtime: MakeRuntime, path: list[str]) -> None:
    told: list[str] = []

    class Link(RuntimeAgent):
        @handles
        async def pass_on(self, message: Order, context: MessageContext) -> None:
            first, _, rest = message.target.partition(" ")
            try:
                await context.send(Order(what="", target=rest), to=first)
            except LoopError as error:
                told.append(str(error))

    async with make_runtime() as runtime:
        for name in "abc":
            await runtime.register(name, Link, grants=Grants(agents=["*"]), reentrant=False)
        await runtime.send(Order(what="", target=" ".join(path)), to="a")
    (text,) = told
    assert text.startswith(f"a/default waits for {(['a', *path])[-2]}/default, directly or through others")


async def test_a_huge_message_goes_nowhere_as_an_answer_neither(make_runtime: MakeRuntime) -> None:
    @handles
    async def blow_up(message: Greeting) -> Reply:
        return Reply(text="x" * 2000)

    async with make_runtime(limits=RuntimeLimits(message_bytes=1000)) as runtime:
        await runtime.register("bomb", blow_up)
        with pytest.raises(MessageError, match="the message Greeting has 2011 bytes, and 1000 are the limit"):
            await runtime.send(Greeting(name="x" * 2000), to="bomb")
        with pytest.raises(AgentFailedError, match="bomb/default answered Greeting with a message that is not valid"):
            await runtime.send(Greeting(name=""), to="bomb")
    assert [letter.reason for letter in runtime.dead_letters] == [Reason.INVALID] * 2


async def test_dead_letters_have_an_end(make_runtime: MakeRuntime) -> None:
    async with make_runtime(limits=RuntimeLimits(dead_letters=5, dead_letter_bytes=3000)) as runtime:
        await runtime.register("errand", Errand)
        for number in range(8):
            with pytest.raises(AgentFailedError):
                await runtime.send(Order(what=str(number)), to="errand")
        assert [letter.detail for letter in runtime.dead_letters] == [f"ValueError: cannot {n}" for n in "34567"]
        assert runtime.dead_letters.total == 8
        for _ in range(2):
            with pytest.raises(AgentFailedError):
                await runtime.send(Order(what="x" * 1000), to="errand")
        assert len(runtime.dead_letters) == 1


# Handlers and factories that misbehave


class _Nasty(BaseException):
    pass


async def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "misbehave",
    [
        lambda: _raise(ValueError("x")),
        lambda: _raise(SystemExit(3)),
        lambda: _raise(_Nasty()),
        lambda: _raise(asyncio.CancelledError()),
        lambda: _raise(GeneratorExit()),
        lambda: _raise(BaseExceptionGroup("many", [asyncio.CancelledError(), ValueError()])),
    ],
    ids=["error", "exit", "base", "cancelled", "generator", "group"],
)
async def test_a_handler_that_breaks_breaks_nothing_else(
    make_runtime: MakeRuntime, misbehave: Callable[[], object]
) -> None:
    @handles
    async def nasty(message: Greeting) -> Reply:
        await misbehave()  # type: ignore[misc]
        return Reply(text="")

    async with make_runtime() as runtime:
        await runtime.register("nasty", nasty)
        await runtime.register("greeter", Greeter)
        for _ in range(3):
            with pytest.raises(AgentFailedError):
                await runtime.send(Greeting(name=""), to="nasty")
            assert await runtime.send(Greeting(name=""), to="greeter") is not None
    assert [letter.reason for letter in runtime.dead_letters] == [Reason.FAILED] * 3


# Only asyncio lets a task cancel itself.
@pytest.mark.parametrize("anyio_backend", ["asyncio"], scope="session")
async def test_a_handler_that_cancels_its_task_takes_nobody_along(make_runtime: MakeRuntime) -> None:
    @handles
    async def nasty(message: Order) -> Reply:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if message.what == "wait":
            await asyncio.sleep(0)
        return Reply(text="gone")

    async with make_runtime() as runtime:
        await runtime.register("nasty", nasty)
        await runtime.register("greeter", Greeter)
        for _ in range(3):
            with pytest.raises(AgentFailedError, match="failed with CancelledError"):
                await runtime.send(Order(what="wait"), to="nasty")
            assert await runtime.send(Order(what="return"), to="nasty") == Reply(text="gone")
            assert await runtime.send(Greeting(name=""), to="greeter") is not None


async def test_a_factory_that_raises_is_asked_again_next_time(make_runtime: MakeRuntime) -> None:
    attempts = 0

    def make(id: AgentId) -> Counter:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise ConnectionError("secret address")
        return Counter()

    async with make_runtime(limits=RuntimeLimits(agents=1)) as runtime:
        await runtime.register("counter", Counter, make=make)
        for key in "ab":
            with pytest.raises(AgentFailedError, match=r"could not be created \(ConnectionError\)") as caught:
                await runtime.send(Greeting(name=""), to=f"counter/{key}")
            assert "secret" not in str(caught.value)
            await runtime.idle()
        assert await runtime.send(Greeting(name=""), to="counter/c") == Reply(text="1")


async def test_an_agent_that_never_answers_holds_up_its_own_queue_alone(make_runtime: MakeRuntime) -> None:
    door = Door()
    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("waiter", Waiter, make=lambda _: Waiter(door))
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: runtime.send(Greeting(name=""), to="waiter/stuck"))
            await door.reached.wait()
            with pytest.raises(DeadlineError):
                await runtime.send(Greeting(name=""), to="waiter/stuck", deadline=0.01)
            for _ in range(3):
                await runtime.send(Greeting(name=""), to="greeter")
            door.opened.set()


async def test_a_message_type_cannot_be_given_another_shape(make_runtime: MakeRuntime) -> None:
    def another() -> type[Message]:
        class Greeting(Message):
            name: str
            is_admin: bool = True

        return Greeting

    twin = another()

    class Impostor(RuntimeAgent):
        @handles
        async def take(self, message: twin) -> None: ...  # type: ignore[valid-type]

    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        with pytest.raises(UsageError, match="there is a message 'Greeting' already"):
            await runtime.register("impostor", Impostor)
        with pytest.raises(MessageError, match="Greeting is not a known message"):
            await runtime.send(twin(name="x"), to="greeter")
