"""Messages and agents that tests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import anyio

from fumehood.runtime import AgentId, Grants, LocalRuntime, Message, MessageContext, RuntimeAgent, handles

MakeRuntime = Callable[..., LocalRuntime]


async def until(holds: Callable[[], bool]) -> None:
    """What has to come from another process takes as long as NATS does, while every task here waits for it."""
    with anyio.fail_after(20):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.005)
    await anyio.wait_all_tasks_blocked()


class Greeting(Message):
    name: str


class Reply(Message):
    text: str


class Order(Message):
    """What an `Errand` is to do."""

    what: str
    target: str = ""


class News(Message):
    headline: str


class Greeter(RuntimeAgent):
    @handles
    async def greet(self, message: Greeting, context: MessageContext) -> Reply:
        return Reply(text=f"Hello {message.name}, I am {context.id} and you are {context.sender}")


class Errand(RuntimeAgent):
    """Does whatever it is told, as a model that was talked into something does."""

    @handles
    async def obey(self, message: Order, context: MessageContext) -> Reply:
        match message.what:
            case "greet":
                return await context.send(Greeting(name="you"), to=message.target, reply=Reply)
            case "publish":
                await context.publish(News(headline="hot"), topic=message.target)
            case "subscribe":
                await context.subscribe(message.target)
            case "unsubscribe":
                await context.unsubscribe(message.target)
            case "pass on":
                return await context.send(message, to=message.target, reply=Reply)
            case _:
                raise ValueError(f"cannot {message.what}")
        return Reply(text="done")


class Reader(RuntimeAgent):
    """Keeps what it has read; `read` tells the test."""

    subscriptions = ("news.*",)
    read: list[tuple[AgentId, str]]

    def __init__(self, read: list[tuple[AgentId, str]] | None = None) -> None:
        self.read = [] if read is None else read

    @handles
    async def take(self, message: News, context: MessageContext) -> None:
        self.read.append((context.id, f"{context.topic}: {message.headline}"))


class Counter(RuntimeAgent):
    """Has a state."""

    def __init__(self) -> None:
        self.count = 0

    @handles
    async def add(self, message: Greeting) -> Reply:
        self.count += 1
        return Reply(text=str(self.count))

    async def save_state(self) -> Mapping[str, object]:
        return {"count": self.count}

    async def load_state(self, state: Mapping[str, object]) -> None:
        count = state["count"]
        assert isinstance(count, int)
        self.count = count


class Door:
    """A place where a handler waits until the test lets it go on, and where the test waits for handlers."""

    def __init__(self) -> None:
        self.reached, self.opened = anyio.Event(), anyio.Event()
        self.inside = self.most = self.cancelled = 0

    async def pass_through(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.reached.set()
        try:
            await self.opened.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        finally:
            self.inside -= 1


class Waiter(RuntimeAgent):
    def __init__(self, door: Door) -> None:
        self._door = door

    @handles
    async def wait(self, message: Greeting) -> Reply:
        await self._door.pass_through()
        return Reply(text=message.name)


READING = Grants(subscribe=["news.*"])
