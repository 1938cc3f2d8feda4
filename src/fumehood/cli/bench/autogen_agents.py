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
)


@dataclass
class Greeting:
    name: str


@dataclass
class Reply:
    text: str


class Greeter(RoutedAgent):
    @message_handler
    async def greet(self, message: Greeting, ctx: MessageContext) -> Reply:
        return Reply(f"Hello {message.name}")


class Listener(RoutedAgent):
    def __init__(self, heard: Callable[[], None]) -> None:
        super().__init__("listens")
        self._heard = heard

    @message_handler
    async def hear(self, message: Greeting, ctx: MessageContext) -> None:
        self._heard()


class AutoGenSide:
    def __init__(self, runtime: SingleThreadedAgentRuntime) -> None:
        self._runtime = runtime

    async def ask(self) -> None:
        await self._runtime.send_message(Greeting("Anna"), AgentId("greeter", "default"))

    async def publish(self) -> None:
        await self._runtime.publish_message(Greeting("Anna"), TopicId("news", "default"))


@asynccontextmanager
async def open_side(heard: Callable[[], None]) -> AsyncIterator[AutoGenSide]:
    runtime = SingleThreadedAgentRuntime()
    await Greeter.register(runtime, "greeter", lambda: Greeter("greets"))
    await Listener.register(runtime, "listener", lambda: Listener(heard))
    await runtime.add_subscription(TypeSubscription("news", "listener"))
    runtime.start()
    try:
        yield AutoGenSide(runtime)
    finally:
        await runtime.stop()
