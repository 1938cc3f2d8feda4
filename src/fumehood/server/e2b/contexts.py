"""Code contexts: Python sessions of a sandbox, each with its state and its folder."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from fumehood.backends.languages import find_language
from fumehood.errors import UsageError
from fumehood.events import Event, Finished
from fumehood.guest.contract.paths import WORKSPACE
from fumehood.remote.handlers.parts import ServedSession
from fumehood.results import Cause, RunResult, Status
from fumehood.server.e2b.environment import variables_for
from fumehood.server.e2b.errors import MissingError, NotHereError
from fumehood.server.e2b.paths import inner_path, outer_path
from fumehood.server.e2b.usage import SandboxUsage
from fumehood.server.sandboxes.placement import PlacedSandbox

_MOST = 32
_PYTHON = ("", "python", "python3")


class CodeContext:
    def __init__(
        self, identifier: str, cwd: str, session: ServedSession, variables: Mapping[str, str], usage: SandboxUsage
    ) -> None:
        self.id, self.cwd, self._session, self._variables, self._usage = identifier, cwd, session, variables, usage
        self._is_prepared = False
        self.runs = 0

    @property
    def description(self) -> dict[str, str]:
        return {"id": self.id, "language": "python", "cwd": outer_path(self.cwd)}

    async def prepare(self) -> None:
        """Variables and folder of a new process; what goes wrong, such as a folder that is not there, is an error."""
        if self._is_prepared:
            return
        code = _setting(self._variables)
        if self.cwd != WORKSPACE:
            code += f"__import__('os').chdir({self.cwd!r})\n"
        if code:
            _checked(await self._session.run(code), f"the context cannot begin in {outer_path(self.cwd)}")
        self._is_prepared = True

    async def stream(self, code: str, variables: Mapping[str, str]) -> AsyncGenerator[Event, None]:
        """`variables` are for this run alone."""
        await self.prepare()
        self.runs += 1
        if variables:
            _checked(await self._session.run(_setting(variables)), "the variables cannot be set")
        async with aclosing(self._session.stream(code)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    self._usage.add(event.result)
                    self._is_prepared = not _has_lost_state(event.result)
                    if variables and self._is_prepared:
                        await self._session.run(_resetting(variables, self._variables))
                yield event

    async def restart(self) -> None:
        self._is_prepared = False
        await self._session.restart()

    async def close(self) -> None:
        await self._session.close()


def _setting(variables: Mapping[str, str]) -> str:
    return f"__import__('os').environ.update({dict(variables)!r})\n" if variables else ""


def _resetting(variables: Mapping[str, str], lasting: Mapping[str, str]) -> str:
    gone = [name for name in variables if name not in lasting]
    code = _setting({name: lasting[name] for name in variables if name in lasting})
    return code + "".join(f"__import__('os').environ.pop({name!r}, None)\n" for name in gone) + "None\n"


def _has_lost_state(result: RunResult) -> bool:
    return result.status not in (Status.SUCCESS, Status.ERROR) or result.cause is Cause.SIGNAL


def _checked(result: RunResult, problem: str) -> None:
    if not result.ok:
        last = (result.stderr.strip().splitlines() or [result.detail])[-1]
        raise UsageError(f"{problem}: {last}")


class Contexts:
    def __init__(self, box: PlacedSandbox, variables: Mapping[str, str], usage: SandboxUsage) -> None:
        self._box, self._variables, self._usage = box, variables, usage
        self._contexts: dict[str, CodeContext] = {}
        self._usual: CodeContext | None = None

    async def create(self, language: str, cwd: str) -> CodeContext:
        if language.lower() not in _PYTHON:
            raise NotHereError(f"a context keeps the state of Python; run_code(language={language!r}) runs without one")
        context = self._make(cwd)
        try:
            await context.prepare()
        except BaseException:
            await self.remove(context.id)
            raise
        return context

    def _make(self, cwd: str) -> CodeContext:
        if len(self._contexts) >= _MOST:
            raise UsageError(f"the sandbox has {_MOST} contexts; remove some of them")
        place = inner_path(cwd)
        home = variables_for(self._box, place)
        home.pop("PWD", None)
        variables = home | dict(self._variables)
        context = CodeContext(secrets.token_hex(8), place, self._box.session(), variables, self._usage)
        self._contexts[context.id] = context
        return context

    def usual(self) -> CodeContext:
        """The one of those who name none."""
        if self._usual is None or self._usual.id not in self._contexts:
            self._usual = self._make("")
        return self._usual

    def list(self) -> list[CodeContext]:
        return [self.usual(), *(each for each in self._contexts.values() if each is not self._usual)]

    def find(self, identifier: str) -> CodeContext:
        found = self._contexts.get(identifier)
        if found is None:
            raise MissingError(f"there is no context {identifier[:64]!r}")
        return found

    async def remove(self, identifier: str) -> None:
        context = self.find(identifier)
        del self._contexts[identifier]
        await context.close()

    def stream_once(self, language: str, code: str, variables: Mapping[str, str]) -> AsyncGenerator[Event, None]:
        """Another language than Python: a run of its own, without state."""
        name = find_language(language.lower()).name
        env = variables_for(self._box, WORKSPACE) | dict(self._variables) | dict(variables)
        return self._box.stream(code, language=name, env=env)
