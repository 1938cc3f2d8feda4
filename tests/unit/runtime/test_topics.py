"""Topics: what is published gets to those who are subscribed, may be, and can read it."""

from __future__ import annotations

import anyio
import pytest
from unit.runtime.sample_agents import READING, Errand, Greeting, MakeRuntime, News, Order, Reader, Reply

from fumehood import UsageError
from fumehood.runtime import (
    AgentId,
    Grants,
    Message,
    MessageContext,
    NotGrantedError,
    Reason,
    RuntimeAgent,
    RuntimeLimits,
    TopicId,
    handles,
)

pytestmark = pytest.mark.anyio


async def test_a_publication_gets_to_the_agent_that_has_the_source_as_its_key(make_runtime: MakeRuntime) -> None:
    read: list[tuple[AgentId, str]] = []
    async with make_runtime() as runtime:
        await runtime.register("reader", Reader, make=lambda _: Reader(read), grants=READING)
        await runtime.publish(News(headline="rain"), topic=TopicId("news.weather", "oslo"))
        await runtime.publish(News(headline="sun"), topic="news.weather.north/rome")
        await runtime.publish(News(headline="unheard"), topic="newspapers/oslo")
        await runtime.publish(News(headline="unheard"), topic="news/oslo")
    assert sorted(read) == [
        (AgentId("reader", "oslo"), "news.weather/oslo: rain"),
        (AgentId("reader", "rome"), "news.weather.north/rome: sun"),
    ]


async def test_each_type_gets_it_once_and_only_if_it_has_a_handler(make_runtime: MakeRuntime) -> None:
    read: list[str] = []

    @handles
    async def first(message: News) -> None:
        read.append("first")

    @handles
    async def second(message: News) -> Reply:
        read.append("second")
        return Reply(text="nobody hears this")

    @handles
    async def third(message: Greeting) -> None:
        read.append("third")

    async with make_runtime() as runtime:
        wide = Grants(subscribe=["*"])
        await runtime.register("first", first, grants=wide, subscriptions=["news.a", "news.*", "*"])
        await runtime.register("second", second, grants=wide, subscriptions=["news.a"])
        await runtime.register("third", third, grants=wide, subscriptions=["news.a"])
        await runtime.publish(News(headline=""), topic="news.a")
    assert sorted(read) == ["first", "second"]
    assert list(runtime.dead_letters) == []


async def test_an_agent_does_not_get_what_it_publishes_itself(make_runtime: MakeRuntime) -> None:
    read: list[str] = []

    class Echo(RuntimeAgent):
        subscriptions = ("news.*",)

        @handles
        async def take(self, message: News, context: MessageContext) -> None:
            read.append(f"{context.id} from {context.sender}")
            if context.sender is None:
                await context.publish(message, topic="news.b/one")

    grants = Grants(subscribe=["news.*"], publish=["news.*"])
    async with make_runtime() as runtime:
        await runtime.register("echo", Echo, grants=grants)
        await runtime.register("wall", Echo, grants=READING)
        await runtime.publish(News(headline=""), topic="news.a/one")
    assert sorted(read) == ["echo/one from None", "wall/one from None", "wall/one from echo/one"]


async def test_an_agent_subscribes_itself_and_nobody_else_whatever_the_source(make_runtime: MakeRuntime) -> None:
    read: list[str] = []

    class Curious(Errand):
        @handles
        async def take(self, message: News, context: MessageContext) -> None:
            read.append(f"{context.id}: {context.topic}")

    async with make_runtime() as runtime:
        await runtime.register("curious", Curious, grants=READING)
        await runtime.send(Order(what="subscribe", target="news.weather"), to="curious/cat")
        await runtime.publish(News(headline=""), topic="news.weather/oslo")
        await runtime.idle()
        await runtime.send(Order(what="unsubscribe", target="news.weather"), to="curious/cat")
        await runtime.publish(News(headline=""), topic="news.weather/oslo")
    assert read == ["curious/cat: news.weather/oslo"]


async def test_a_full_queue_makes_the_publisher_wait_and_nobody_else(make_runtime: MakeRuntime) -> None:
    gate, read = anyio.Event(), list[str]()

    @handles
    async def slow(message: News) -> None:
        await gate.wait()
        read.append(f"slow {message.headline}")

    @handles
    async def quick(message: News) -> None:
        read.append(f"quick {message.headline}")

    is_published = anyio.Event()
    async with make_runtime(limits=RuntimeLimits(queue_messages=1)) as runtime:
        for name, kind in (("slow", slow), ("quick", quick)):
            await runtime.register(name, kind, grants=READING, subscriptions=["news.*"])

        async def publish() -> None:
            for number in "123":
                await runtime.publish(News(headline=number), topic="news.a")
            is_published.set()

        async with anyio.create_task_group() as group:
            group.start_soon(publish)
            await anyio.wait_all_tasks_blocked()
            # The first is being handled, the second waits in the queue, and the publisher with the third.
            assert not is_published.is_set()
            assert read == ["quick 1", "quick 2", "quick 3"]
            gate.set()
    assert read[3:] == ["slow 1", "slow 2", "slow 3"]


async def test_what_finds_no_room_in_time_is_a_dead_letter_and_the_publisher_goes_on(make_runtime: MakeRuntime) -> None:
    gate = anyio.Event()

    @handles
    async def slow(message: News) -> None:
        await gate.wait()

    async with make_runtime(limits=RuntimeLimits(queue_messages=1)) as runtime:
        await runtime.register("slow", slow, grants=READING, subscriptions=["news.*"])
        for _ in range(2):
            await runtime.publish(News(headline=""), topic="news.a")
            await anyio.wait_all_tasks_blocked()
        await runtime.publish(News(headline="lost"), topic="news.a", deadline=0.01)
        gate.set()
    (letter,) = runtime.dead_letters
    assert (letter.reason, letter.target) == (Reason.OVERLOADED, TopicId("news.a"))
    assert letter.payload is not None
    assert b"lost" in letter.payload.data


async def test_a_subscription_needs_a_grant(make_runtime: MakeRuntime) -> None:
    async with make_runtime() as runtime:
        for grants in (None, Grants(subscribe=["news.weather"]), Grants(subscribe=["news.*/{key}"])):
            with pytest.raises(NotGrantedError, match=r"reader may not subscribe to news\.\*"):
                await runtime.register("reader", Reader, grants=grants)
        await runtime.register("reader", Reader, grants=READING)


async def test_a_handler_that_fails_on_a_publication_is_a_dead_letter(make_runtime: MakeRuntime) -> None:
    @handles
    async def fail(message: News) -> None:
        raise KeyError(message.headline)

    async with make_runtime() as runtime:
        await runtime.register("failing", fail, grants=READING, subscriptions=["news.*"])
        await runtime.publish(News(headline="x"), topic="news.a")
    (letter,) = runtime.dead_letters
    assert (letter.reason, letter.detail) == (Reason.FAILED, "KeyError: 'x'")


async def test_a_message_needs_no_subscriber(make_runtime: MakeRuntime) -> None:
    class Unknown(Message):
        pass

    async with make_runtime() as runtime:
        runtime.messages.add(News)
        await runtime.publish(News(headline=""), topic="news.a")
        with pytest.raises(UsageError, match="Unknown is not a known message"):
            await runtime.publish(Unknown(), topic="news.a")
    assert [letter.reason for letter in runtime.dead_letters] == [Reason.INVALID]
