"""Any Python function as a tool, in the application or in the sandbox."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from fumehood import AsyncSandbox, UsageError
from fumehood.tools import PYTHON, Risk, Toolbox, ToolStatus, as_tools, tool

pytestmark = pytest.mark.anyio


@tool
def add(first: int, second: Annotated[int, Field(description="What is added.")] = 1) -> int:
    """Add two numbers."""
    return first + second


@tool(name="fetch", risk=Risk.LOW)
async def look_up(key: Literal["a", "b"]) -> dict[str, str]:
    """Look a key up."""
    if key == "b":
        raise KeyError("b is not there")
    return {"key": key}


@tool(inside=True, imports=["import os", "import platform"])
def where(words: list[str]) -> dict[str, Any]:
    """Tell where this runs."""
    print("on my way")
    return {"words": words, "host": platform.node(), "secret": os.environ.get("SECRET")}  # type: ignore[name-defined]  # noqa: F821


@tool(inside=True)
async def slow(count: int) -> int:
    """Wait, and double."""
    import asyncio

    await asyncio.sleep(0)
    return count * 2


@tool(inside=True)
def broken() -> None:
    """Fail."""
    raise ValueError("as expected")


@pytest.fixture
async def toolbox(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Toolbox]:
    monkeypatch.setenv("SECRET", "of the application")
    async with AsyncSandbox() as box:
        yield Toolbox(box, add, look_up, where, slow, broken)


async def test_the_signature_becomes_the_schema(toolbox: Toolbox) -> None:
    schema = toolbox.schemas()[0]
    assert (schema["name"], schema["description"], schema["risk"]) == ("add", "Add two numbers.", "medium")
    assert schema["parameters"]["required"] == ["first"]
    assert schema["parameters"]["properties"]["second"] == {
        "default": 1,
        "description": "What is added.",
        "type": "integer",
    }


async def test_a_function_of_the_application_is_called_there(toolbox: Toolbox) -> None:
    result = await toolbox.call("add", {"first": 2})
    assert (result.text, result.value) == ("3", 3)
    assert (await toolbox.call("fetch", {"key": "a"})).text == '{"key": "a"}'


async def test_an_exception_of_a_function_is_a_result(toolbox: Toolbox) -> None:
    result = await toolbox.call("fetch", {"key": "b"})
    assert (result.status, result.text) == (ToolStatus.ERROR, "It failed: KeyError: 'b is not there'")
    assert (await toolbox.call("fetch", {"key": "c"})).status is ToolStatus.INVALID


async def test_a_function_inside_knows_nothing_of_the_application(toolbox: Toolbox) -> None:
    assert os.environ["SECRET"]
    result = await toolbox.call("where", {"words": ["é", "it's", '"']})
    assert result.value == {"words": ["é", "it's", '"'], "host": "sandbox", "secret": None}
    assert result.text.endswith("printed:\non my way\n")
    assert (await toolbox.call("slow", {"count": 4})).value == 8


async def test_a_function_that_fails_inside_is_a_result_with_its_traceback(toolbox: Toolbox) -> None:
    result = await toolbox.call("broken", {})
    assert result.status is ToolStatus.ERROR
    assert "ValueError: as expected" in result.text


async def test_a_function_that_no_model_could_call_is_refused_when_it_is_defined() -> None:
    outer = 5

    def no_words(x: int) -> None: ...

    def no_type(x) -> None:  # type: ignore[no-untyped-def]
        """Words."""

    def any_words(*x: int) -> None:
        """Words."""

    def uses_others() -> int:
        """Words."""
        return outer

    for function, complaint in ((no_words, "no docstring"), (no_type, "needs a type"), (any_words, "all have names")):
        with pytest.raises(UsageError, match=complaint):
            tool(function)
    with pytest.raises(UsageError, match="from around it"):
        tool(inside=True)(uses_others)
    with pytest.raises(UsageError, match="cannot run in a sandbox"):
        tool(name="x", inside=True)(_without_source())


def _without_source() -> Any:
    namespace: dict[str, Any] = {}
    exec("def made() -> int:\n    'Words.'\n    return 1\n", namespace)
    return namespace["made"]


def plain(city: str, days: int = 1) -> str:
    """Tell the weather of the next days."""
    return f"{city}: {days} days of rain"


async def test_a_plain_function_is_a_tool_wherever_tools_are_taken() -> None:
    async with AsyncSandbox() as box:
        toolbox = Toolbox(box, plain, PYTHON)
        assert [schema["name"] for schema in toolbox.schemas()] == ["plain", "python"]
        assert (await toolbox.call("plain", {"city": "Bergen"})).text == "Bergen: 1 days of rain"
    # The same function is the same tool, as for an agent and its runtime.
    assert as_tools([plain]) == as_tools((plain,))


@pytest.mark.parametrize("given", [{"name": "plain"}, "python", 42, None, AsyncSandbox, [plain]])
def test_what_is_not_a_tool_is_refused_with_what_is_taken(given: Any) -> None:
    with pytest.raises(UsageError, match="such as PYTHON, or a function with types and a docstring; this is"):
        as_tools([given])


@pytest.mark.parametrize("given", [PYTHON, plain, "python", {"python": PYTHON}, None])
def test_tools_are_a_list(given: Any) -> None:
    with pytest.raises(UsageError, match="tools must be a list of tools and functions; this is"):
        as_tools(given)


def test_a_function_without_a_docstring_is_refused_by_its_name() -> None:
    def bare(city: str) -> str:
        return city

    with pytest.raises(UsageError, match="the function 'bare' has no docstring"):
        as_tools([bare])
