"""The same agents for AutoGen's runtime. Importing this needs AutoGen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from autogen_core import (
    AgentId,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    TopicId,
    TypeSubscription,
    message_handler,
    try_get_known_serializers_for_type,
)
from autogen_ext.runtimes.grpc import GrpcWorkerAgentRuntime


@dataclass
class Greeting:
    name: str


@dataclass
class Reply:
    text: str


@dataclass
class Ball:
    left: int


class Greeter(RoutedAgent):
    @message_handler
    async def greet(self, message: Greeting, ctx: MessageContext) -> Reply:
        return Reply(f"Hello {message.name}")


class ServerListener(RoutedAgent):
    def __init__(self, heard: Callable[[], None]) -> None:
        super().__init__("listens")
        self._heard = heard

    @message_handler
    async def hear(self, message: Greeting, ctx: MessageContext) -> None:
        self._heard()


class Neighbour(RoutedAgent):
    def __init__(self, other: str, heard: Callable[[], None]) -> None:
        super().__init__("is a neighbour")
        self._other, self._heard = other, heard

    @message_handler
    async def ask(self, message: Greeting, ctx: MessageContext) -> Reply:
        return await self.send_message(Reply("How are you?"), AgentId(self._other, "default"))

    @message_handler
    async def answer(self, message: Reply, ctx: MessageContext) -> Reply:
        return message

    @message_handler
    async def hit(self, message: Ball, ctx: MessageContext) -> None:
        self._heard()
        if message.left > 1:
            await self.publish_message(Ball(message.left - 1), TopicId(self._other, "default"))


class AutoGenSide:
    def __init__(self, runtime: SingleThreadedAgentRuntime) -> None:
        self._runtime = runtime

    async def ask(self) -> None:
        await self._runtime.send_message(Greeting("Anna"), AgentId("greeter", "default"))

    async def publish(self) -> None:
        await self._runtime.publish_message(Greeting("Anna"), TopicId("news", "default"))

    async def ask_neighbour(self, name: str) -> None:
        await self._runtime.send_message(Greeting("Anna"), AgentId(name, "default"))

    async def throw(self, name: str, ball: int) -> None:
        await self._runtime.publish_message(Ball(ball), TopicId(name, "default"))


@asynccontextmanager
async def open_side(heard: Callable[[], None]) -> AsyncIterator[AutoGenSide]:
    runtime = SingleThreadedAgentRuntime()
    await Greeter.register(runtime, "greeter", lambda: Greeter("greets"))
    await ServerListener.register(runtime, "listener", lambda: ServerListener(heard))
    await runtime.add_subscription(TypeSubscription("news", "listener"))
    for name, other in (("left", "right"), ("right", "left")):
        await Neighbour.register(runtime, name, lambda other=other: Neighbour(other, heard))
        await runtime.add_subscription(TypeSubscription(name, name))
    runtime.start()
    try:
        yield AutoGenSide(runtime)
    finally:
        await runtime.stop()


class DistantSide:
    """Asks a greeter in another process, through AutoGen's gRPC runtime."""

    def __init__(self, runtime: GrpcWorkerAgentRuntime) -> None:
        self._runtime = runtime

    async def ask(self) -> None:
        await self._runtime.send_message(Greeting("Anna"), AgentId("greeter", "default"))


def introduce(runtime: GrpcWorkerAgentRuntime) -> None:
    """Both processes have to know the messages."""
    for each in (Greeting, Reply):
        runtime.add_message_serializer(try_get_known_serializers_for_type(each))
