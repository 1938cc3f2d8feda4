"""Agents that wait for each other: questions in a circle are answered, publications go on or are refused."""

from __future__ import annotations

from collections import Counter as Tally

import anyio
import pytest
import sampling
from unit.runtime.sample_agents import Greeting, MakeRuntime, News, Order, Reply

from fumehood.errors import DeliveryError, LoopError, OverloadedError
from fumehood.runtime import Grants, LocalRuntime, Message, MessageContext, Reason, RuntimeAgent, RuntimeLimits, handles

pytestmark = pytest.mark.anyio

EVERYTHING = Grants(agents=["*"], publish=["*"], subscribe=["*"])
# Whoever waits until then has not been answered.
PATIENCE = 20
# NATS takes milliseconds for each of 480 hits, or 13,000; queues of five are full at once.
BALLS, LENGTH = sampling.amount(20, whole=50), sampling.amount(4, whole=7)


class Rendezvous:
    """Handlers go on when all of them are there."""

    def __init__(self, count: int) -> None:
        self._missing, self._complete = count, anyio.Event()

    async def meet(self) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._complete.set()
        await self._complete.wait()


class Asker(RuntimeAgent):
    """Told to ask somebody, it asks; asked, it answers."""

    def __init__(self, meeting: Rendezvous) -> None:
        self._meeting = meeting
        self.log: list[str] = []

    @handles
    async def ask(self, message: Order, context: MessageContext) -> Reply:
        self.log.append("asks")
        await self._meeting.meet()
        answer = await context.send(Greeting(name=context.id.type), to=message.target, reply=Reply)
        self.log.append("goes on")
        return answer

    @handles
    async def answer(self, message: Greeting, context: MessageContext) -> Reply:
        self.log.append(f"answers {message.name}")
        return Reply(text=f"{context.id.type} to {message.name}")


async def ask_in_a_circle(runtime: LocalRuntime, names: str) -> dict[str, str]:
    answers: dict[str, str] = {}

    async def order(name: str, target: str) -> None:
        try:
            reply = await runtime.send(Order(what="ask", target=target), to=name, reply=Reply, deadline=PATIENCE)
            answers[name] = reply.text
        except DeliveryError as error:
            answers[name] = str(error)

    async with anyio.create_task_group() as group:
        for name, target in zip(names, names[1:] + names[0], strict=True):
            group.start_soon(order, name, target)
    return answers


@pytest.mark.parametrize("names", ["ab", "abc", "abcdefghij"])
async def test_agents_that_ask_each_other_at_once_are_answered(make_runtime: MakeRuntime, names: str) -> None:
    meeting = Rendezvous(len(names))
    agents = {name: Asker(meeting) for name in names}
    async with make_runtime() as runtime:
        for name in names:
            await runtime.register(name, Asker, make=lambda id: agents[id.type], grants=EVERYTHING)
        answers = await ask_in_a_circle(runtime, names)
    wanted = {name: f"{target} to {name}" for name, target in zip(names, names[1:] + names[0], strict=True)}
    assert answers == wanted
    # One of them closed the circle, and was answered in the middle of a handler that waited.
    assert sum(agent.log[1].startswith("answers") for agent in agents.values()) == 1


async def test_an_agent_that_is_not_reentrant_refuses_the_circle_at_once(make_runtime: MakeRuntime) -> None:
    meeting = Rendezvous(2)
    refused: list[str] = []

    class Firm(Asker):
        reentrant = False

        @handles
        async def ask(self, message: Order, context: MessageContext) -> Reply:
            try:
                return await super().ask(message, context)
            except LoopError as error:
                refused.append(str(error))
                return Reply(text="refused")

    async with make_runtime() as runtime:
        for name in "ab":
            await runtime.register(name, Firm, make=lambda _: Firm(meeting), grants=EVERYTHING)
        answers = await ask_in_a_circle(runtime, "ab")
    (text,) = refused
    assert sorted(answers.values())[1] == "refused"
    assert "takes no request meanwhile" in text


async def test_what_register_says_of_reentrancy_counts_more_than_the_class(make_runtime: MakeRuntime) -> None:
    async with make_runtime() as runtime:
        await runtime.register("a", Myself, grants=EVERYTHING, reentrant=False)
        await runtime.register("b", Myself, grants=EVERYTHING)
        assert (await runtime.send(Order(what="3"), to="b", reply=Reply)).text == "3 2 1 0"
        assert (await runtime.send(Order(what="3"), to="a", reply=Reply)).text == "3 LoopError"


class Myself(RuntimeAgent):
    @handles
    async def count_down(self, message: Order, context: MessageContext) -> Reply:
        if message.what == "0":
            return Reply(text="0")
        try:
            rest = await context.send(Order(what=str(int(message.what) - 1)), to=context.id, reply=Reply)
        except DeliveryError as error:
            return Reply(text=f"{message.what} {type(error).__name__}")
        return Reply(text=f"{message.what} {rest.text}")


async def test_who_asks_itself_for_ever_is_stopped_by_the_limit_of_hops(make_runtime: MakeRuntime) -> None:
    async with make_runtime(limits=RuntimeLimits(hops=5)) as runtime:
        await runtime.register("a", Myself, grants=EVERYTHING)
        assert (await runtime.send(Order(what="99"), to="a", reply=Reply)).text == "99 98 97 96 95 94 LoopError"


class Hub(RuntimeAgent):
    """Asks many at once, each of which asks back."""

    def __init__(self, count: int) -> None:
        self._count, self.running, self.most = count, 0, 0

    @handles
    async def fan_out(self, message: Order, context: MessageContext) -> Reply:
        outcomes: list[str] = []

        async def ask(number: int) -> None:
            try:
                outcomes.append((await context.send(Greeting(name="?"), to=f"spoke/{number}", reply=Reply)).text)
            except DeliveryError as error:
                outcomes.append(type(error).__name__)

        async with anyio.create_task_group() as group:
            for number in range(self._count):
                group.start_soon(ask, number)
        return Reply(text=" ".join(f"{name}={count}" for name, count in sorted(Tally(outcomes).items())))

    @handles
    async def answer(self, message: News) -> Reply:
        self.running += 1
        self.most = max(self.most, self.running)
        await anyio.lowlevel.checkpoint()
        self.running -= 1
        return Reply(text="back")


class Spoke(RuntimeAgent):
    @handles
    async def ask_back(self, message: Greeting, context: MessageContext) -> Reply:
        try:
            return await context.send(News(headline=""), to="hub", reply=Reply)
        except OverloadedError as error:
            return Reply(text=type(error).__name__)


async def test_of_questions_in_the_middle_of_a_handler_one_runs_at_a_time(make_runtime: MakeRuntime) -> None:
    hub = Hub(30)
    async with make_runtime() as runtime:
        await runtime.register("hub", Hub, make=lambda _: hub, grants=EVERYTHING)
        await runtime.register("spoke", Spoke, grants=EVERYTHING)
        assert (await runtime.send(Order(what=""), to="hub", reply=Reply)).text == "back=30"
    assert hub.most == 1


async def test_questions_in_the_middle_of_a_handler_have_a_limit(make_runtime: MakeRuntime) -> None:
    hub = Hub(10)
    async with make_runtime(limits=RuntimeLimits(reentrant_requests=4)) as runtime:
        await runtime.register("hub", Hub, make=lambda _: hub, grants=EVERYTHING)
        await runtime.register("spoke", Spoke, grants=EVERYTHING)
        assert (await runtime.send(Order(what=""), to="hub", reply=Reply)).text == "OverloadedError=6 back=4"
    assert {letter.reason for letter in runtime.dead_letters} == {Reason.OVERLOADED}


async def test_only_those_whom_it_waits_for_interrupt_a_handler(make_runtime: MakeRuntime) -> None:
    """Everybody else waits for a place in the queue: what a handler knows does not change behind its back."""
    log: list[str] = []
    strangers = anyio.Event()

    class Clerk(RuntimeAgent):
        @handles
        async def work(self, message: Order, context: MessageContext) -> Reply:
            log.append("begins")
            answer = await context.send(Greeting(name=""), to="friend", reply=Reply)
            log.append("ends")
            return answer

        @handles
        async def answer(self, message: News, context: MessageContext) -> Reply:
            log.append(f"answers {context.sender or 'the application'}")
            return Reply(text="")

    class Friend(RuntimeAgent):
        @handles
        async def ask_back(self, message: Greeting, context: MessageContext) -> Reply:
            await strangers.wait()
            return await context.send(News(headline=""), to="clerk", reply=Reply)

    async with make_runtime() as runtime:
        await runtime.register("clerk", Clerk, grants=EVERYTHING)
        await runtime.register("friend", Friend, grants=EVERYTHING)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: runtime.send(Order(what=""), to="clerk"))
            await anyio.wait_all_tasks_blocked()
            group.start_soon(lambda: runtime.send(News(headline=""), to="clerk"))
            await anyio.wait_all_tasks_blocked()
            strangers.set()
    assert log == ["begins", "answers friend/default", "ends", "answers the application"]


async def test_an_agent_that_is_being_made_is_not_asked_in_between(make_runtime: MakeRuntime) -> None:
    told: list[str] = []

    class Newborn(RuntimeAgent):
        async def on_start(self, context: MessageContext) -> None:
            await context.send(Greeting(name=""), to="godfather")

        @handles
        async def answer(self, message: Order) -> Reply:
            return Reply(text="here")

    class Godfather(RuntimeAgent):
        @handles
        async def ask(self, message: Greeting, context: MessageContext) -> None:
            try:
                await context.send(Order(what=""), to="newborn")
            except LoopError as error:
                told.append(str(error))

    async with make_runtime() as runtime:
        await runtime.register("newborn", Newborn, grants=EVERYTHING)
        await runtime.register("godfather", Godfather, grants=EVERYTHING)
        reply = await runtime.send(Order(what=""), to="newborn", reply=Reply, deadline=PATIENCE)
    assert reply.text == "here"
    # Being reentrant would not help: there is nobody yet who could answer.
    (text,) = told
    assert "newborn/default is being created and waits for godfather/default" in text
    assert "reentrant" not in text


async def test_cancelling_a_circle_leaves_nothing_behind(make_runtime: MakeRuntime) -> None:
    asked = anyio.Event()

    class Endless(RuntimeAgent):
        @handles
        async def ask(self, message: Order, context: MessageContext) -> None:
            await context.send(Greeting(name=""), to="b" if context.id.type == "a" else "a")

        @handles
        async def answer(self, message: Greeting, context: MessageContext) -> None:
            if context.id.type == "b":
                await context.send(Greeting(name=""), to="a")
            asked.set()
            await anyio.sleep_forever()

    async with make_runtime() as runtime:
        for name in "ab":
            await runtime.register(name, Endless, grants=EVERYTHING)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: runtime.send(Order(what=""), to="a"))
            await asked.wait()
            group.cancel_scope.cancel()
        await runtime.idle()
        assert all(mailbox.is_idle for mailbox in runtime._registry.mailboxes())
        assert runtime._scheduler.slots._free == RuntimeLimits().handlers
        assert [mailbox.turns._free for mailbox in runtime._registry.mailboxes()] == [1, 1]
        await runtime.save_state()


class Ball(Message):
    left: int


class Player(RuntimeAgent):
    """Plays each ball back to the other side, once or more often."""

    def __init__(self, tally: Tally[str], times: int = 1) -> None:
        self._tally, self._times = tally, times

    @handles
    async def hit(self, message: Ball, context: MessageContext) -> None:
        self._tally[context.id.type] += 1
        for _ in range(self._times if message.left else 0):
            side = "right" if context.id.type == "left" else "left"
            await context.publish(Ball(left=message.left - 1), topic=side)


async def play(runtime: LocalRuntime, times: int, balls: int, length: int) -> Tally[str]:
    tally: Tally[str] = Tally()
    for name in ("left", "right"):
        await runtime.register(
            name, Player, make=lambda _: Player(tally, times), grants=EVERYTHING, subscriptions=[name]
        )
    for _ in range(balls):
        for name in ("left", "right"):
            await runtime.publish(Ball(left=length), topic=name)
    await runtime.idle()
    return tally


async def test_two_that_publish_to_each_other_with_full_queues_go_on_and_lose_nothing(
    make_runtime: MakeRuntime,
) -> None:
    async with make_runtime(limits=RuntimeLimits(queue_messages=5, deadline_seconds=PATIENCE)) as runtime:
        tally = await play(runtime, times=1, balls=BALLS, length=9)
    assert tally == {"left": 10 * BALLS, "right": 10 * BALLS}
    assert runtime.dead_letters.total == 0


async def test_a_storm_is_refused_at_the_limit_and_does_not_stall(make_runtime: MakeRuntime) -> None:
    async with make_runtime(limits=RuntimeLimits(queue_messages=5, deadline_seconds=PATIENCE)) as runtime:
        with anyio.fail_after(PATIENCE):
            tally = await play(runtime, times=3, balls=2, length=LENGTH)
        letters = list(runtime.dead_letters)
        assert all(len(mailbox) == 0 for mailbox in runtime._registry.mailboxes())
    assert min(tally.values()) > 20
    assert {letter.reason for letter in letters} == {Reason.OVERLOADED, Reason.FAILED}
    assert any("a deadlock" in letter.detail for letter in letters)


async def test_who_waits_for_room_is_asked_in_between(make_runtime: MakeRuntime) -> None:
    """The publisher waits for room in a queue whose agent asks the publisher something first."""

    class Writer(RuntimeAgent):
        @handles
        async def write(self, message: Order, context: MessageContext) -> None:
            for _ in range(4):
                await context.publish(News(headline=""), topic="news")

        @handles
        async def answer(self, message: Greeting) -> Reply:
            return Reply(text="yes")

    class Reader(RuntimeAgent):
        @handles
        async def read(self, message: News, context: MessageContext) -> None:
            await is_full.wait()
            read.append((await context.send(Greeting(name=""), to="writer", reply=Reply)).text)

    read: list[str] = []
    is_full = anyio.Event()
    async with make_runtime(limits=RuntimeLimits(queue_messages=1, deadline_seconds=PATIENCE)) as runtime:
        await runtime.register("writer", Writer, grants=EVERYTHING)
        await runtime.register("reader", Reader, grants=EVERYTHING, subscriptions=["news"])
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: runtime.send(Order(what=""), to="writer"))
            await anyio.wait_all_tasks_blocked()
            is_full.set()
        await runtime.idle()
    assert read == ["yes"] * 4
    assert runtime.dead_letters.total == 0
