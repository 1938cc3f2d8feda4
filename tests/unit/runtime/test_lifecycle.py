"""How a runtime and its agents begin and end, what they keep, and how much they do at once."""

from __future__ import annotations

import json
from collections.abc import Mapping

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
    Reply,
    Waiter,
    until,
)

from fumehood import UsageError
from fumehood.runtime import (
    AgentFailedError,
    AgentId,
    Grants,
    LocalRuntime,
    MessageContext,
    Reason,
    RuntimeAgent,
    RuntimeLimits,
    StoppedError,
    handles,
)

pytestmark = pytest.mark.anyio


class Noisy(RuntimeAgent):
    """Tells what happens to it."""

    def __init__(self, told: list[str], error: Exception | None = None) -> None:
        self._told, self._error = told, error

    async def on_start(self, context: MessageContext) -> None:
        self._told.append(f"start {context.id}")

    @handles
    async def greet(self, message: Greeting) -> None:
        self._told.append(f"greet {message.name}")

    async def on_stop(self) -> None:
        self._told.append("stop")
        if self._error:
            raise self._error


async def test_an_agent_starts_before_its_first_message_and_stops_with_the_runtime(make_runtime: MakeRuntime) -> None:
    told: list[str] = []
    async with make_runtime() as runtime:
        await runtime.register("noisy", Noisy, make=lambda _: Noisy(told, OSError("too loud")))
        assert told == []
        await runtime.send(Greeting(name="a"), to="noisy/x")
        await runtime.send(Greeting(name="b"), to="noisy/x")
        assert told == ["start noisy/x", "greet a", "greet b"]
    assert told[3:] == ["stop"]


async def test_outside_of_its_block_a_runtime_takes_nothing(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()
    await runtime.register("greeter", Greeter)
    with pytest.raises(StoppedError, match="is not started"):
        await runtime.send(Greeting(name=""), to="greeter")
    async with runtime:
        await runtime.send(Greeting(name=""), to="greeter")
    with pytest.raises(StoppedError, match="is stopped"):
        await runtime.publish(Greeting(name=""), topic="a")
    with pytest.raises(UsageError, match="has been started already"):
        await runtime.__aenter__()


async def test_leaving_the_block_waits_for_what_is_under_way(make_runtime: MakeRuntime) -> None:
    door, read = Door(), list[str]()

    @handles
    async def take(message: News) -> None:
        await door.pass_through()
        read.append(message.headline)

    async with anyio.create_task_group() as group, make_runtime() as runtime:
        await runtime.register("reader", take, grants=READING, subscriptions=["news.*"])
        for headline in "abc":
            await runtime.publish(News(headline=headline), topic="news.a")

        async def open_later() -> None:
            await door.reached.wait()
            door.opened.set()

        group.start_soon(open_later)
    assert read == ["a", "b", "c"]


async def test_an_error_in_the_block_cancels_and_comes_out_as_it_is(make_runtime: MakeRuntime) -> None:
    door = Door()

    async def host() -> None:
        async with make_runtime() as runtime:
            await runtime.register("waiter", Waiter, make=lambda _: Waiter(door))
            group.start_soon(_expect_stopped, runtime)
            await door.reached.wait()
            raise KeyError("mine")

    async with anyio.create_task_group() as group:
        with pytest.raises(KeyError, match="mine"):
            await host()
    assert (door.inside, door.cancelled) == (0, 1)


async def _expect_stopped(runtime: LocalRuntime) -> None:
    with pytest.raises(StoppedError, match="was stopped before there was an answer"):
        await runtime.send(Greeting(name=""), to="waiter")


async def test_stopping_without_draining_tells_who_waits_and_keeps_what_was_not_handled(
    make_runtime: MakeRuntime,
) -> None:
    door = Door()

    @handles
    async def take(message: News) -> None:
        await door.pass_through()

    async with make_runtime() as runtime:
        await runtime.register("reader", take, grants=READING, subscriptions=["news.*"])
        for headline in "abc":
            await runtime.publish(News(headline=headline), topic="news.a")
        await door.reached.wait()
        await runtime.stop(drain=False)
        await anyio.wait_all_tasks_blocked()
        assert door.cancelled == 1
        await runtime.stop()
    assert [letter.reason for letter in runtime.dead_letters] == [Reason.STOPPED] * 2


async def test_who_drains_is_not_left_waiting_when_somebody_else_cancels(make_runtime: MakeRuntime) -> None:
    door = Door()

    @handles
    async def take(message: News) -> None:
        await door.pass_through()

    async with make_runtime() as runtime:
        await runtime.register("reader", take, grants=READING, subscriptions=["news.*"])
        await runtime.publish(News(headline=""), topic="news.a")
        await door.reached.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.idle)
            group.start_soon(runtime.stop)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(StoppedError):
                await runtime.publish(News(headline=""), topic="news.a")
            await runtime.stop(drain=False)


async def test_cancelling_the_block_leaves_no_handler(make_runtime: MakeRuntime) -> None:
    door = Door()

    async def host() -> None:
        async with make_runtime() as runtime:
            await runtime.register("waiter", Waiter, make=lambda _: Waiter(door))
            await runtime.send(Greeting(name=""), to="waiter")

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        await door.reached.wait()
        group.cancel_scope.cancel()
    assert (door.inside, door.cancelled) == (0, 1)


async def test_states_are_saved_and_given_back_when_agents_are_made_again(make_runtime: MakeRuntime) -> None:
    async with make_runtime() as runtime:
        await runtime.register("counter", Counter)
        for key in "aab":
            await runtime.send(Greeting(name=""), to=f"counter/{key}")
        state = json.loads(json.dumps(await runtime.save_state()))
    assert state == {"version": 1, "agents": {"counter/a": {"count": 2}, "counter/b": {"count": 1}}}

    async with make_runtime() as runtime:
        await runtime.register("counter", Counter)
        await runtime.load_state(state)
        assert await runtime.send(Greeting(name=""), to="counter/a") == Reply(text="3")
        # b has not been needed yet, and is not forgotten.
        assert (await runtime.save_state())["agents"] == {"counter/a": {"count": 3}, "counter/b": {"count": 1}}
        with pytest.raises(UsageError, match="counter/a exists already"):
            await runtime.load_state(state)


@pytest.mark.parametrize(
    ("state", "complaint"),
    [
        ({}, "the state of the runtime is not valid"),
        ({"version": 2, "agents": {}}, "it must have version 1"),
        ({"version": 1, "agents": []}, "the state of the runtime is not valid"),
        ({"version": 1, "agents": {"cuonter/a": {}}}, "did you mean counter"),
        ({"version": 1, "agents": {"counter/a": 5}}, "must be a mapping"),
        ({"version": 1, "agents": {"counter/\n": {}}}, "printable"),
    ],
)
async def test_a_state_that_makes_no_sense_is_one_clear_error(
    make_runtime: MakeRuntime, state: Mapping[str, object], complaint: str
) -> None:
    async with make_runtime() as runtime:
        await runtime.register("counter", Counter)
        with pytest.raises(UsageError, match=complaint):
            await runtime.load_state(state)


async def test_a_state_that_json_cannot_hold_names_the_agent(make_runtime: MakeRuntime) -> None:
    class Odd(Counter):
        async def save_state(self) -> Mapping[str, object]:
            return {"odd": object()}

    async with make_runtime() as runtime:
        await runtime.register("odd", Odd)
        await runtime.send(Greeting(name=""), to="odd")
        with pytest.raises(UsageError, match="the state of odd/default is not valid JSON data"):
            await runtime.save_state()
        assert await runtime.send(Greeting(name=""), to="odd") == Reply(text="2")


async def test_a_state_that_its_agent_refuses_is_not_lost(make_runtime: MakeRuntime) -> None:
    async with make_runtime() as runtime:
        await runtime.register("counter", Counter)
        await runtime.load_state({"version": 1, "agents": {"counter/a": {"count": "many"}}})
        with pytest.raises(AgentFailedError, match="could not be created"):
            await runtime.send(Greeting(name=""), to="counter/a")
        assert (await runtime.save_state())["agents"] == {"counter/a": {"count": "many"}}


async def test_an_agent_that_is_retired_is_made_anew(make_runtime: MakeRuntime) -> None:
    told: list[str] = []
    async with make_runtime() as runtime:
        await runtime.register("noisy", Noisy, make=lambda _: Noisy(told))
        await runtime.send(Greeting(name="a"), to="noisy")
        await runtime.idle()
        await runtime.retire("noisy")
        await runtime.retire("noisy/never-made")
        await runtime.send(Greeting(name="b"), to="noisy")
    assert told == ["start noisy/default", "greet a", "stop", "start noisy/default", "greet b", "stop"]


async def test_the_runtime_limits_how_many_handlers_are_at_work(make_runtime: MakeRuntime) -> None:
    door = Door()
    async with make_runtime(limits=RuntimeLimits(handlers=2)) as runtime:
        await runtime.register("waiter", Waiter, make=lambda _: Waiter(door))
        async with anyio.create_task_group() as group:
            for key in "abcdef":
                group.start_soon(lambda key=key: runtime.send(Greeting(name=""), to=f"waiter/{key}"))
            await until(lambda: door.inside == 2)
            assert door.inside == 2
            door.opened.set()
    assert door.most == 2


async def test_handlers_that_wait_for_others_do_not_use_up_the_limit(make_runtime: MakeRuntime) -> None:
    async with make_runtime(limits=RuntimeLimits(handlers=1)) as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("errand", Errand, grants=Grants(agents=["greeter"]))
        replies: list[object] = []

        async def ask(key: str) -> None:
            replies.append(await runtime.send(Order(what="greet", target=f"greeter/{key}"), to=f"errand/{key}"))

        async with anyio.create_task_group() as group:
            for key in "abcdef":
                group.start_soon(ask, key)
    assert len(replies) == 6


async def test_a_handler_may_wait_for_several_answers_at_once(make_runtime: MakeRuntime) -> None:
    @handles
    async def fan_out(message: Order, context: MessageContext) -> Reply:
        replies: list[str] = []

        async def ask(key: str) -> None:
            replies.append((await context.send(Greeting(name=key), to=f"counter/{key}", reply=Reply)).text)

        async with anyio.create_task_group() as group:
            for key in "abcdef":
                group.start_soon(ask, key)
        return Reply(text="".join(replies))

    async with make_runtime(limits=RuntimeLimits(handlers=2)) as runtime:
        await runtime.register("counter", Counter)
        await runtime.register("fan", fan_out, grants=Grants(agents=["counter"]), at_once=3)
        for _ in range(3):
            await runtime.send(Order(what=""), to="fan")
        assert await runtime.send(Order(what=""), to="fan") == Reply(text="444444")


async def test_messages_of_one_sender_to_one_agent_keep_their_order(make_runtime: MakeRuntime) -> None:
    read: list[str] = []

    @handles
    async def take(message: News) -> None:
        read.append(message.headline)

    async with make_runtime(limits=RuntimeLimits(queue_messages=3)) as runtime:
        await runtime.register("reader", take, grants=READING, subscriptions=["news.*"])
        for number in range(50):
            await runtime.publish(News(headline=str(number)), topic="news.a")
    assert read == [str(number) for number in range(50)]


@pytest.mark.parametrize("type", ["", "a/b", "a b", "a*"])
async def test_a_type_that_could_be_taken_for_something_else_is_refused(make_runtime: MakeRuntime, type: str) -> None:
    with pytest.raises(UsageError, match="an agent's type is made of letters"):
        await make_runtime().register(type, Greeter)


async def test_what_cannot_be_an_agent_is_one_clear_error(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()

    class Idle(RuntimeAgent):
        pass

    class Twofold(Greeter):
        @handles
        async def greet_again(self, message: Greeting) -> None: ...

    with pytest.raises(UsageError, match="Idle handles no message"):
        await runtime.register("idle", Idle)
    with pytest.raises(UsageError, match="two handlers of Twofold take Greeting"):
        await runtime.register("twofold", Twofold)
    with pytest.raises(UsageError, match="at_once must be 1 or more"):
        await runtime.register("greeter", Greeter, at_once=0)
    await runtime.register("greeter", Greeter)
    with pytest.raises(UsageError, match="there is an agent type 'greeter' already"):
        await runtime.register("greeter", Greeter)


def test_a_handler_says_with_types_what_it_takes() -> None:
    with pytest.raises(UsageError, match="needs a type annotation for 'message'"):

        @handles
        async def untyped(message) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(UsageError, match="must be an `async def`"):

        @handles  # type: ignore[arg-type]
        def blocking(message: Greeting) -> None: ...

    with pytest.raises(UsageError, match="must take a message and optionally a context"):

        @handles
        async def greedy(message: Greeting, context: MessageContext, more: int) -> None: ...


async def test_a_child_overrides_a_handler_with_or_without_saying_so(make_runtime: MakeRuntime) -> None:
    class Loud(Greeter):
        async def greet(self, message: Greeting, context: MessageContext) -> Reply:
            return Reply(text="HELLO")

    async with make_runtime() as runtime:
        await runtime.register("loud", Loud)
        assert await runtime.send(Greeting(name=""), to="loud") == Reply(text="HELLO")


async def test_what_make_returns_must_be_what_was_registered(make_runtime: MakeRuntime) -> None:
    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter, make=lambda _: Counter())
        with pytest.raises(AgentFailedError, match=r"greeter/default could not be created \(TypeError\)"):
            await runtime.send(Greeting(name=""), to=AgentId("greeter"))
    (letter,) = runtime.dead_letters
    assert "`make` returned Counter, and Greeter was registered" in letter.detail
