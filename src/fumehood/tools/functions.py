"""Any Python function as a tool: carried out in the application, or in the sandbox."""

from __future__ import annotations

import inspect
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, cast, get_type_hints, overload

import anyio.to_thread
from pydantic import BaseModel, create_model
from pydantic_core import to_jsonable_python

from fumehood.errors import UsageError
from fumehood.keywords import known_keywords
from fumehood.tools.result import LongText, ToolOutput, ToolResult, ToolStatus, describe_run
from fumehood.tools.source import apart, function_source
from fumehood.tools.tool import Arguments, Risk, Tool, ToolContext

Function = Callable[..., Any]

# Only this run knows the mark, so that nothing that the function prints can be taken for what it returns.
_ENDING = """
import asyncio as _asyncio, inspect as _inspect, json as _json, sys as _sys
_given = _json.loads(_sys.stdin.read())
_value = {name}(**_given)
if _inspect.isawaitable(_value):
    async def _wait():
        return await _value
    _value = _asyncio.run(_wait())
_sys.stdout.flush()
print({mark!r} + _json.dumps(_value, default=repr))
"""


@overload
def tool(function: Function, /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    risk: Risk = Risk.MEDIUM,
    inside: bool = False,
    imports: Sequence[str] = (),
    parallel: bool = True,
) -> Callable[[Function], Tool]: ...


@known_keywords()
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    risk: Risk = Risk.MEDIUM,
    inside: bool = False,
    imports: Sequence[str] = (),
    parallel: bool = True,
) -> Tool | Callable[[Function], Tool]:
    """Make a tool of a function with types and a docstring: `@tool`, or `@tool(risk=Risk.LOW)`.

    With `inside` it runs in the sandbox: its source goes there, together with the `imports`, and nothing else of the
    application does. Without, it runs in the application, with all that the application may do. Without `parallel` it
    is never carried out at the same time as other calls of the same answer.
    """
    make = partial(_make, name=name, risk=risk, inside=inside, imports=tuple(imports), parallel=parallel)
    return make if function is None else make(function)


def as_tools(given: Iterable[Tool | Function]) -> tuple[Tool, ...]:
    """Tools as callers give them: functions are made into tools as `@tool` does, anything else is a UsageError."""
    whatever: object = given
    if isinstance(whatever, list | tuple | set | frozenset | Iterator):
        return tuple(map(_as_tool, given))
    raise UsageError(f"tools must be a list of tools and functions; this is {type(whatever).__name__}")


def _as_tool(given: object) -> Tool:
    if isinstance(given, Tool):
        return given
    if inspect.isroutine(given):
        return _made_once(given)
    raise UsageError(
        "a tool is one of `fumehood.tools`, such as PYTHON, or a function with types and a docstring; this is "
        f"{type(given).__name__}: {str(given)[:60]!r}"
    )


# The same function given twice, such as to an agent and to its runtime, is the same tool.
@lru_cache(256)
def _made_once(function: Function) -> Tool:
    return tool(function)


def _make(
    function: Function, *, name: str | None, risk: Risk, inside: bool, imports: tuple[str, ...], parallel: bool
) -> Tool:
    chosen = name or function.__name__
    description = inspect.getdoc(function)
    if not description:
        raise UsageError(f"the function {chosen!r} has no docstring, which is what tells a model when to call it")
    arguments = _arguments_of(function, chosen)
    run = partial(_call_here, function)
    if inside:
        run = partial(_call_inside, _program(function, chosen, imports))
    return Tool(chosen, description, arguments, risk, run, parallel)


def _arguments_of(function: Function, name: str) -> type[BaseModel]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise UsageError(f"a type of the function {name!r} is not known: {error}") from error
    return create_model(f"{name}_arguments", __base__=Arguments, **dict(_fields(function, name, hints)))


def _fields(function: Function, name: str, hints: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"the function {name!r} has {parameter}, and a tool's arguments all have names")
        if parameter.name not in hints:
            raise UsageError(f"the function {name!r} needs a type for {parameter.name!r}, so that a model can be told")
        default: Any = ... if parameter.default is parameter.empty else parameter.default
        yield parameter.name, (hints[parameter.name], default)


def _program(function: Function, name: str, imports: tuple[str, ...]) -> str:
    try:
        source = function_source(function)
    except ValueError as error:
        raise UsageError(f"the function {name!r} cannot run in a sandbox: {error}") from error
    free = inspect.getclosurevars(function).nonlocals
    if free:
        raise UsageError(f"the function {name!r} uses {', '.join(sorted(free))} from around it, which no sandbox has")
    return "\n".join(("from __future__ import annotations", *imports, source)) + _ENDING.replace(
        "{name}", function.__name__
    )


async def _call_here(function: Function, context: ToolContext, given: BaseModel) -> ToolOutput:
    values = {field: getattr(given, field) for field in type(given).model_fields}
    try:
        if inspect.iscoroutinefunction(function):
            value = await function(**values)
        else:
            value = await anyio.to_thread.run_sync(partial(function, **values))
    except Exception as error:
        return ToolOutput(f"It failed: {type(error).__name__}: {error}", ToolStatus.ERROR)
    return _returned(value)


async def _call_inside(program: str, context: ToolContext, given: BaseModel) -> ToolOutput:
    mark = f"<{secrets.token_hex(16)}>"
    result = await context.sandbox.run(apart(program.replace("{mark!r}", repr(mark))), stdin=given.model_dump_json())
    printed, found, returned = result.stdout.rpartition(mark)
    if not result.ok or not found:
        return describe_run(result)
    try:
        value = json.loads(returned)
    except ValueError:
        return describe_run(result)
    shown = _returned(value).parts
    return ToolOutput((*shown, "\nprinted:\n", LongText(printed)) if printed else shown, run=result, value=value)


def _returned(value: object) -> ToolOutput:
    if isinstance(value, ToolResult):
        return ToolOutput(value.text, value.status, value.run, value.value)
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(cast("object", to_jsonable_python(value, fallback=repr)), ensure_ascii=False)
    return ToolOutput(LongText(text), value=value)
