"""A runtime whose application is in another process than its agents, as far as NATS can tell."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from fumehood.runtime import DeadLetter, DeadLetters
from fumehood.runtime.nats import NatsRuntime


class _BothEnds:
    """The dead letters of two processes."""

    def __init__(self, *runtimes: NatsRuntime) -> None:
        self._runtimes = runtimes

    @property
    def _letters(self) -> list[DeadLetters]:
        return [runtime._dead_letters.letters for runtime in self._runtimes]

    def __iter__(self) -> Iterator[DeadLetter]:
        for letters in self._letters:
            yield from letters

    def __len__(self) -> int:
        return sum(map(len, self._letters))

    def take(self) -> list[DeadLetter]:
        return [letter for letters in self._letters for letter in letters.take()]

    @property
    def total(self) -> int:
        return sum(letters.total for letters in self._letters)


class DistantRuntime(NatsRuntime):
    """Agents are registered here; what the application sends and publishes goes through a second connection."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._application = NatsRuntime(url, **options)

    @property
    def dead_letters(self) -> Any:
        return _BothEnds(self, self._application)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._application.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.stop(drain=error is None)
        finally:
            try:
                await self._application.__aexit__(kind, error, traceback)
            finally:
                await super().__aexit__(kind, error, traceback)

    async def send(self, message: object, **options: Any) -> Any:
        self._check_running()
        self._introduce()
        return await self._application.send(message, **options)

    async def publish(self, message: object, **options: Any) -> None:
        self._check_running()
        self._introduce()
        await self._application.publish(message, **options)

    def _introduce(self) -> None:
        """The application knows the messages of its agents, as it would by importing them."""
        for type, shape in self.messages._by_type.items():
            self._application.messages.add(type, shape.name)
