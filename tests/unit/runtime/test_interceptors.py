"""Interceptors see every message, and may change, drop or refuse it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from unit.runtime.sample_agents import READING, Errand, Greeter, Greeting, MakeRuntime, News, Order, Reader, Reply

from fumehood.runtime import (
    DROP,
    AgentId,
    Grants,
    MessageInfo,
    NotGrantedError,
    Reason,
    RefusedError,
    RuntimeLimits,
    Stage,
    TopicId,
)

pytestmark = pytest.mark.anyio


class Hook:
    def __init__(self, act: Callable[[object, MessageInfo], object]) -> None:
        self._act = act
        self.seen: list[tuple[Stage, object, str, str]] = []

    async def intercept(self, message: object, info: MessageInfo) -> object:
        self.seen.append((info.stage, message, str(info.sender), str(info.target)))
        return self._act(message, info)


async def test_an_interceptor_sees_messages_publications_and_answers(make_runtime: MakeRuntime) -> None:
    hook = Hook(lambda message, info: message)
    async with make_runtime(interceptors=[hook]) as runtime:
        await runtime.register("greeter", Greeter)
        await runtime.register("reader", Reader, grants=READING)
        await runtime.register("errand", Errand, grants=Grants(agents=["greeter"]))
        await runtime.send(Order(what="greet", target="greeter/g"), to="errand/e")
        await runtime.publish(News(headline="x"), topic="news.a")
    reply = Reply(text="Hello you, I am greeter/g and you are errand/e")
    assert hook.seen == [
        (Stage.SEND, Order(what="greet", target="greeter/g"), "None", "errand/e"),
        (Stage.SEND, Greeting(name="you"), "errand/e", "greeter/g"),
        (Stage.ANSWER, reply, "greeter/g", "errand/e"),
        (Stage.ANSWER, reply, "errand/e", "None"),
        (Stage.PUBLISH, News(headline="x"), "None", "news.a/default"),
    ]


async def test_interceptors_change_messages_one_after_the_other(make_runtime: MakeRuntime) -> None:
    def adding(text: str) -> Callable[[object, MessageInfo], object]:
        return lambda message, info: Greeting(name=message.name + text) if isinstance(message, Greeting) else message

    async with make_runtime(interceptors=[Hook(adding("1")), Hook(adding("2"))]) as runtime:
        await runtime.register("greeter", Greeter)
        reply = await runtime.send(Greeting(name="0"), to="greeter", reply=Reply)
    assert reply.text.startswith("Hello 012,")


def _refuse(message: object, info: MessageInfo) -> object:
    raise RefusedError("not today")


def _fail(message: object, info: MessageInfo) -> object:
    raise KeyError("inner secret")


@pytest.mark.parametrize(
    ("act", "reason", "told"),
    [
        (_refuse, Reason.REFUSED, "not today"),
        (_fail, Reason.REFUSED, "the interceptor Hook failed with KeyError"),
        (lambda message, info: DROP, Reason.DROPPED, "the interceptor Hook dropped it"),
        (lambda message, info: None, Reason.REFUSED, "the interceptor Hook returned what is not a valid message"),
        (lambda message, info: Greeting(name="x" * 900), Reason.REFUSED, "bytes, and 500 are the limit"),
    ],
    ids=["refuses", "fails", "drops", "forgets", "blows up"],
)
@pytest.mark.parametrize("stage", [Stage.SEND, Stage.ANSWER])
async def test_what_an_interceptor_lets_not_pass_goes_no_further(
    make_runtime: MakeRuntime, stage: Stage, act: Callable[[object, MessageInfo], object], reason: Reason, told: str
) -> None:
    hook = Hook(lambda message, info: act(message, info) if info.stage is stage else message)
    async with make_runtime(interceptors=[hook], limits=RuntimeLimits(message_bytes=500)) as runtime:
        await runtime.register("greeter", Greeter)
        with pytest.raises(RefusedError, match=told) as caught:
            await runtime.send(Greeting(name=""), to="greeter")
        assert "secret" not in str(caught.value)
    (letter,) = runtime.dead_letters
    assert letter.reason is reason


async def test_a_dropped_publication_is_no_error_for_its_publisher(make_runtime: MakeRuntime) -> None:
    read: list[tuple[AgentId, str]] = []
    async with make_runtime(interceptors=[Hook(lambda message, info: DROP)]) as runtime:
        await runtime.register("reader", Reader, make=lambda _: Reader(read), grants=READING)
        await runtime.publish(News(headline=""), topic="news.a")
    assert read == []
    assert [(letter.reason, letter.target) for letter in runtime.dead_letters] == [(Reason.DROPPED, TopicId("news.a"))]


async def test_what_is_not_granted_does_not_even_get_to_interceptors(make_runtime: MakeRuntime) -> None:
    hook = Hook(lambda message, info: message)
    async with make_runtime(interceptors=[hook]) as runtime:
        await runtime.register("greeter", Greeter)
        with pytest.raises(NotGrantedError):
            await runtime.send(Greeting(name=""), to="greeter", sender=AgentId("greeter"))
    assert hook.seen == []
