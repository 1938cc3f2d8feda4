"""Programs of ours and functions of the application's as source that can run in a sandbox."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from textwrap import dedent
from typing import Any


def function_source(function: Callable[..., Any]) -> str:
    """Without its decorators: these belong to the application, and a sandbox does not know them.

    Raises ValueError when there is none.
    """
    try:
        source = dedent(inspect.getsource(function))
        (definition,) = ast.parse(source).body
    except (OSError, TypeError, ValueError, SyntaxError) as error:
        raise ValueError(f"the source of {function!r} cannot be found; write it with `def` in a file") from error
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        raise ValueError(f"{function!r} is not a plain function; write it with `def`")
    return "".join(source.splitlines(keepends=True)[definition.lineno - 1 :])


def apart(program: str) -> str:
    """The same program with names of its own: in a session it must not meet the user's, nor leave any."""
    return f"exec({program!r}, {{'__name__': '__main__'}})"
