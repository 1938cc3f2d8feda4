"""Which process is the home of an agent, as processes join, leave and register types."""

from __future__ import annotations

import anyio
import nats_server
import pytest
import trio
from unit.runtime.sample_agents import READING, Counter, Errand, Greeter, Greeting, News, Order, Reader, Reply

from fumehood import UsageError
from fumehood.runtime import AgentId, DeliveryError, Grants, MessageContext, RuntimeAgent, handles
from fumehood.runtime.nats import NatsRuntime
from fumehood.runtime.nats.assignment import NO_HOMES, assigned, handed_over

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def open_runtime(nats: nats_server.NatsServer, space: str, process: str, **options: object) -> NatsRuntime:
    runtime = NatsRuntime(nats.url, space=space, process=process, audit=False, **options)  # type: ignore[arg-type]
    for each in (Greeting, Reply, News, Order):
        runtime.messages.add(each)
    return runtime


async def until(condition: object) -> None:
    assert callable(condition)
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)


def test_only_partitions_without_a_living_home_change() -> None:
    first = assigned("t", NO_HOMES, {"a"})
    assert set(first) == {"a"}
    assert assigned("t", first, {"a", "b"}) == first
    assert set(assigned("t", first, {"b", "c"})) == {"b", "c"}
    assert assigned("t", first, set()) == NO_HOMES
    shared = handed_over("t", first, {"a", "b"}, "a", lambda number: number != 3)
    assert (shared[3], set(shared)) == ("a", {"a", "b"})
    assert handed_over("t", shared, {"a", "b"}, "b", lambda _: True) == shared


async def test_processes_share_the_agents_of_a_type(nats: nats_server.NatsServer, space: str) -> None:
    async with open_runtime(nats, space, "a") as first, open_runtime(nats, space, "b") as second:
        for runtime in (first, second):
            await runtime.register("counter", Counter)
        await until(lambda: set(_homes(first)) == set(_homes(second)) == {"a", "b"})
        for _ in range(2):
            for number in range(30):
                runtime = (first, second)[number % 2]
                last = await runtime.send(Greeting(name=""), to=f"counter/{number}", reply=Reply)
        assert last.text == "2"
        numbers = [len(list(runtime._registry.mailboxes())) for runtime in (first, second)]
        assert sum(numbers) == 30
        assert min(numbers) > 0


def _homes(runtime: NatsRuntime) -> tuple[str | None, ...]:
    entry = runtime._directory.type("counter")
    return () if entry is None else entry.homes


async def test_a_process_that_leaves_gives_its_agents_away(nats: nats_server.NatsServer, space: str) -> None:
    async with open_runtime(nats, space, "b") as second:
        async with open_runtime(nats, space, "a") as first:
            await first.register("counter", Counter)
            await second.register("counter", Counter)
            assert await first.send(Greeting(name=""), to="counter")
        assert await second.send(Greeting(name=""), to="counter")
    async with open_runtime(nats, space, "c") as third:
        with pytest.raises(DeliveryError, match="no process has the agent type 'counter' at the moment"):
            await third.send(Greeting(name=""), to="counter")


async def test_a_type_is_the_same_in_every_process(nats: nats_server.NatsServer, space: str) -> None:
    async with open_runtime(nats, space, "a") as first, open_runtime(nats, space, "b") as second:
        await first.register("greeter", Greeter)
        with pytest.raises(UsageError, match="has registered 'greeter' with other grants"):
            await second.register("greeter", Greeter, grants=Grants(agents=["*"]))
        with pytest.raises(UsageError, match="has registered 'greeter' with other messages"):
            await second.register("greeter", Errand)
        await second.register("greeter", Greeter)


async def test_a_runtime_that_cannot_start_leaves_nothing_behind(nats: nats_server.NatsServer, space: str) -> None:
    async with open_runtime(nats, space, "a") as first:
        await first.register("greeter", Greeter)
        for _ in range(2):
            runtime = open_runtime(nats, space, "b")
            await runtime.register("greeter", Greeter, grants=Grants(agents=["*"]))
            with pytest.raises(UsageError, match="has registered 'greeter' with other grants"):
                await runtime.__aenter__()
            await first._directory.catch_up()
            assert first._directory.process("b") is None


async def test_a_name_belongs_to_one_process(nats: nats_server.NatsServer, space: str) -> None:
    async with open_runtime(nats, space, "a", lease=1):
        with pytest.raises(UsageError, match="there is another process with the name 'a'"):
            await open_runtime(nats, space, "a", lease=1).__aenter__()


async def test_a_request_that_comes_back_through_another_process_is_answered(
    nats: nats_server.NatsServer, space: str
) -> None:
    class Relay(RuntimeAgent):
        @handles
        async def relay(self, message: Order, context: MessageContext) -> Reply:
            if message.target == "end":
                return Reply(text=f"{context.id} was asked while it waited")
            target = "end" if context.id.type == "right" else "left"
            other = "right" if context.id.type == "left" else "left"
            return await context.send(Order(what="", target=target), to=other, reply=Reply)

    async with open_runtime(nats, space, "a") as first, open_runtime(nats, space, "b") as second:
        for runtime, type in ((first, "left"), (second, "right")):
            await runtime.register(type, Relay, grants=Grants(agents=["left", "right"]))
        answer = await first.send(Order(what=""), to="left", reply=Reply, deadline=20)
        assert answer.text == "left/default was asked while it waited"


async def test_a_publication_waits_for_a_process_that_is_not_there(nats: nats_server.NatsServer, space: str) -> None:
    read: list[tuple[AgentId, str]] = []
    async with open_runtime(nats, space, "publisher") as publisher:
        for headline in ("one", "two"):
            async with open_runtime(nats, space, "reader") as home:
                await home.register("reader", Reader, make=lambda _: Reader(read), grants=READING)
                await home.idle()
            await publisher.publish(News(headline=headline), topic="news.a")
        assert [text for _, text in read] == ["news.a/default: one"]


def test_it_needs_asyncio() -> None:
    async def open_one() -> None:
        async with NatsRuntime(audit=False):
            pass

    with pytest.raises(UsageError, match="a NatsRuntime needs asyncio"):
        trio.run(open_one)


async def test_a_type_that_is_registered_while_a_process_begins_anew_joins_with_it(
    nats: nats_server.NatsServer, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease was lost. Both go through the types, and wait for the directory at each."""
    async with NatsRuntime(nats.url, space=space, process="one", audit=False) as one:
        await one.register("greeter", Greeter)
        join = one._homes._join

        async def join_slowly(type: str) -> None:
            if type == "greeter":
                await one.register("errand", Errand)
            await join(type)

        monkeypatch.setattr(one._homes, "_join", join_slowly)
        await one._homes.join_again()
        assert {type for type, _ in one._directory.types()} == {"greeter", "errand"}
