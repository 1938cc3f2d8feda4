"""Direct messages: they arrive, are answered, or an error says why not."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import pytest
from unit.runtime.sample_agents import (
    Counter,
    Door,
    Errand,
    Greeter,
    Greeting,
    MakeRuntime,
    Order,
    Reply,
    Waiter,
    until,
)

from fumehood import UsageError
from fumehood.runtime import (
    AgentFailedError,
    AgentId,
    DeadlineError,
    DeliveryError,
    Grants,
    Message,
    MessageContext,
    MessageError,
    NotGrantedError,
    Reason,
    RefusedError,
    RuntimeAgent,
    handles,
)

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered(make_runtime: MakeRuntime) -> None:
    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        reply = await runtime.send(Greeting(name="Anna"), to=AgentId("greeter", "one"), reply=Reply)
    assert reply.text == "Hello Anna, I am greeter/one and you are None"
    assert list(runtime.dead_letters) == []


async def test_an_agent_is_made_once_for_each_key(make_runtime: MakeRuntime) -> None:
    made: list[AgentId] = []

    async def make(id: AgentId) -> Counter:
        made.append(id)
        return Counter()

    async with make_runtime() as runtime:
        await runtime.register("counter", Counter, make=make)
        replies = [await runtime.send(Greeting(name=""), to=f"counter/{key}", reply=Reply) for key in "aabab"]
    assert [reply.text for reply in replies] == ["1", "2", "1", "3", "2"]
    assert made == [AgentId("counter", "a"), AgentId("counter", "b")]


async def test_the_recipient_sees_who_sent_it(make_runtime: MakeRuntime) -> None:
    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("errand", Errand, grants=Grants(agents=["greeter"]))
        reply = await runtime.send(Order(what="greet", target="greeter/x"), to="errand/boy", reply=Reply)
    assert reply.text == "Hello you, I am greeter/x and you are errand/boy"


async def test_functions_are_agents_too(make_runtime: MakeRuntime) -> None:
    @handles
    async def greet(message: Greeting, context: MessageContext) -> Reply:
        return Reply(text=f"{context.id.key} greets {message.name}")

    async def obey(message: Order) -> None:
        assert message.what == "nothing"

    async with make_runtime() as runtime:
        await runtime.register("greeter", greet)
        await runtime.register("both", [greet, handles(obey)])
        assert await runtime.send(Greeting(name="Anna"), to="greeter/g") == Reply(text="g greets Anna")
        assert await runtime.send(Greeting(name="Anna"), to="both/b") == Reply(text="b greets Anna")
        assert await runtime.send(Order(what="nothing"), to="both") is None


@dataclass(frozen=True)
class Point:
    x: int


@dataclass(frozen=True)
class RuntimeLink:
    points: tuple[Point, ...]


async def test_a_dataclass_is_a_message_and_a_handler_may_take_several(make_runtime: MakeRuntime) -> None:
    class Plotter(RuntimeAgent):
        @handles
        async def plot(self, message: Point | RuntimeLink) -> Point | None:
            return message if isinstance(message, Point) else None

    async with make_runtime() as runtime:
        await runtime.register("plotter", Plotter)
        assert await runtime.send(Point(3), to="plotter") == Point(3)
        assert await runtime.send(RuntimeLink((Point(1), Point(2))), to="plotter") is None


async def test_nobody_shares_an_object_with_anybody(make_runtime: MakeRuntime) -> None:
    class Basket(Message):
        things: list[str]

    class Thief(RuntimeAgent):
        @handles
        async def take(self, message: Basket) -> Basket:
            message.things.clear()
            return message

    async with make_runtime() as runtime:
        await runtime.register("thief", Thief)
        basket = Basket(things=["apple"])
        assert await runtime.send(basket, to="thief") == Basket(things=[])
    assert basket.things == ["apple"]


async def test_an_answer_of_another_type_than_expected_is_an_error(make_runtime: MakeRuntime) -> None:
    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        with pytest.raises(MessageError, match="greeter/default answered with Reply, and Greeting was expected"):
            await runtime.send(Greeting(name=""), to="greeter", reply=Greeting)


@pytest.mark.parametrize(
    ("to", "message", "complaint"),
    [
        ("greter", Greeting(name=""), "there is no agent type 'greter'; did you mean greeter?"),
        ("greeter", Order(what=""), "greeter/default has no handler for Order; it takes Greeting"),
    ],
)
async def test_a_message_that_nobody_takes_is_an_error_and_a_dead_letter(
    make_runtime: MakeRuntime, to: str, message: Message, complaint: str
) -> None:
    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("errand", Errand)
        with pytest.raises((DeliveryError, MessageError)) as caught:
            await runtime.send(message, to=to)
    assert str(caught.value) == complaint
    (letter,) = runtime.dead_letters
    assert (letter.sender, letter.detail) == (None, complaint)


@pytest.mark.parametrize("to", ["", "a b", "a/", "a/\n", "a..b", "x" * 200, "a/" + "k" * 300])
async def test_a_name_that_makes_no_sense_is_one_clear_error(make_runtime: MakeRuntime, to: str) -> None:
    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        with pytest.raises(UsageError, match="this is not"):
            await runtime.send(Greeting(name=""), to=to)


async def test_an_agent_that_fails_tells_its_sender_the_kind_and_the_dead_letter_the_rest(
    make_runtime: MakeRuntime,
) -> None:
    async with make_runtime() as runtime:
        await runtime.register("errand", Errand)
        for _ in range(2):
            with pytest.raises(AgentFailedError, match=r"errand/default failed with ValueError at Order;") as caught:
                await runtime.send(Order(what="fly"), to="errand")
            assert "fly" not in str(caught.value)
    assert [(letter.reason, letter.detail) for letter in runtime.dead_letters] == [
        (Reason.FAILED, "ValueError: cannot fly")
    ] * 2


async def test_an_agent_may_refuse_in_words_for_its_sender(make_runtime: MakeRuntime) -> None:
    class Clerk(RuntimeAgent):
        @handles
        async def serve(self, message: Greeting) -> Reply:
            raise RefusedError(f"nobody by the name {message.name} is known")

    async with make_runtime() as runtime:
        await runtime.register("clerk", Clerk)
        with pytest.raises(RefusedError, match=r"^nobody by the name Anna is known$"):
            await runtime.send(Greeting(name="Anna"), to="clerk")


async def test_an_error_inside_of_another_agent_is_that_agents_failure(make_runtime: MakeRuntime) -> None:
    async with make_runtime() as runtime:
        await runtime.register("errand", Errand)
        with pytest.raises(AgentFailedError, match="failed with NotGrantedError"):
            await runtime.send(Order(what="greet", target="errand"), to="errand")


async def test_a_deadline_ends_the_waiting_and_the_handler(make_runtime: MakeRuntime) -> None:
    door = Door()
    async with make_runtime() as runtime:
        await runtime.register("waiter", Waiter, make=lambda _: Waiter(door))
        with pytest.raises(DeadlineError, match="waiter/default has not answered Greeting in time"):
            await runtime.send(Greeting(name=""), to="waiter", deadline=0.01)
        await runtime.idle()
        # On a busy machine it may be late before the handler has begun.
        assert (door.inside, door.cancelled) == (0, int(door.reached.is_set()))
        door.opened.set()
        assert await runtime.send(Greeting(name="next"), to="waiter") == Reply(text="next")
    assert next(iter(runtime.dead_letters)).reason in (Reason.EXPIRED, Reason.CANCELLED)


async def test_a_deadline_is_never_later_than_that_of_the_message_before(make_runtime: MakeRuntime) -> None:
    remaining: list[float] = []

    @handles
    async def ask(message: Order, context: MessageContext) -> None:
        await context.send(Greeting(name=""), to="clock", deadline=1000)

    @handles
    async def tell(message: Greeting, context: MessageContext) -> None:
        remaining.append(context.remaining)

    async with make_runtime() as runtime:
        await runtime.register("asker", ask, grants=Grants(agents=["clock"]))
        await runtime.register("clock", tell)
        await runtime.send(Order(what=""), to="asker", deadline=50)
    assert remaining[0] <= 50


@pytest.mark.parametrize("deadline", [0, -1, float("inf"), float("nan")])
async def test_a_deadline_that_makes_no_sense_is_refused(make_runtime: MakeRuntime, deadline: float) -> None:
    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        with pytest.raises(UsageError, match="a deadline must be more than 0 seconds"):
            await runtime.send(Greeting(name=""), to="greeter", deadline=deadline)


async def test_cancelling_the_sender_cancels_the_handler_and_what_is_in_the_queue_is_not_begun(
    make_runtime: MakeRuntime,
) -> None:
    door = Door()
    async with make_runtime() as runtime:
        await runtime.register("waiter", Waiter, make=lambda _: Waiter(door))
        async with anyio.create_task_group() as group:
            for name in ("first", "second"):
                group.start_soon(lambda name=name: runtime.send(Greeting(name=name), to="waiter"))
            await door.reached.wait()
            group.cancel_scope.cancel()
        await runtime.idle()
        assert (door.cancelled, door.most) == (1, 1)
    assert {letter.reason for letter in runtime.dead_letters} == {Reason.CANCELLED}


async def test_an_agent_handles_one_message_at_a_time_unless_registered_otherwise(make_runtime: MakeRuntime) -> None:
    for at_once in (1, 3):
        door = Door()
        async with make_runtime() as runtime:
            await runtime.register("waiter", Waiter, make=lambda _, door=door: Waiter(door), at_once=at_once)
            async with anyio.create_task_group() as group:
                for name in "abcde":
                    group.start_soon(lambda name=name: runtime.send(Greeting(name=name), to="waiter"))
                await door.reached.wait()
                await until(lambda door=door, at_once=at_once: door.inside == at_once)
                assert door.inside == at_once
                door.opened.set()
        assert door.most == at_once


async def test_the_application_has_an_agents_grants_when_it_sends_in_its_name(make_runtime: MakeRuntime) -> None:
    errand = AgentId("errand", "boy")
    async with make_runtime() as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("errand", Errand, grants=Grants(agents=["greeter/x"]))
        reply = await runtime.send(Greeting(name="you"), to="greeter/x", sender=errand, reply=Reply)
        assert reply.text.endswith("you are errand/boy")
        with pytest.raises(NotGrantedError):
            await runtime.send(Greeting(name="you"), to="greeter/y", sender=errand)


async def test_the_first_parameter_of_a_method_may_have_any_name(make_runtime: MakeRuntime) -> None:
    class Casual(RuntimeAgent):
        @handles
        async def greet(this, message: Greeting) -> Reply:
            return Reply(text=f"{type(this).__name__} greets {message.name}")

        @handles
        async def obey(_, message: Order, context: MessageContext) -> Reply:
            return Reply(text=f"{context.id} obeys")

    async with make_runtime() as runtime:
        await runtime.register("casual", Casual)
        assert await runtime.send(Greeting(name="Anna"), to="casual") == Reply(text="Casual greets Anna")
        assert await runtime.send(Order(what=""), to="casual") == Reply(text="casual/default obeys")
