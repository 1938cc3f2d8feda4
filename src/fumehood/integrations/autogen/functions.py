"""Functions of the caller's that blocks may import: their source goes into a module of the sandbox's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from textwrap import indent
from typing import Any, cast

from autogen_core.code_executor import (
    Alias,
    FunctionWithRequirements,
    FunctionWithRequirementsStr,
    Import,
)

from fumehood.integrations.autogen.refusals import OptionError
from fumehood.tools.source import function_source

Function = FunctionWithRequirements[Any, ...] | FunctionWithRequirementsStr | Callable[..., Any]


def required_packages(functions: Sequence[Function]) -> list[str]:
    return sorted({package for function in functions for package in _requirements(function).python_packages})


def module_source(functions: Sequence[Function]) -> str:
    imports = dict.fromkeys(line for function in functions for line in _imports(function))
    return "\n".join(imports) + "\n\n\n" + "\n\n".join(_source(function) for function in functions)


def stub(function: Function) -> str:
    """What a model has to know to call it."""
    called = _callable(function)
    text = f"def {called.__name__}{inspect.signature(called)}:\n"
    documented = inspect.getdoc(called)
    return text + (indent(f'"""{documented}"""\n', "    ") if documented else "") + "    ..."


def _requirements(function: Function) -> FunctionWithRequirements[Any, ...] | FunctionWithRequirementsStr:
    if isinstance(function, FunctionWithRequirements | FunctionWithRequirementsStr):
        return cast("FunctionWithRequirements[Any, ...] | FunctionWithRequirementsStr", function)
    return FunctionWithRequirements[Any, ...](func=function)


def _callable(function: Function) -> Callable[..., Any]:
    described = _requirements(function)
    return described.compiled_func if isinstance(described, FunctionWithRequirementsStr) else described.func


def _imports(function: Function) -> Iterator[str]:
    for wanted in _requirements(function).global_imports:
        yield _import_line(wanted)


def _import_line(wanted: Import) -> str:
    if isinstance(wanted, str | Alias):
        return f"import {_renamed(wanted)}"
    return f"from {wanted.module} import {', '.join(_renamed(name) for name in wanted.imports)}"


def _renamed(name: str | Alias) -> str:
    return f"{name.name} as {name.alias}" if isinstance(name, Alias) else name


def _source(function: Function) -> str:
    if isinstance(function, FunctionWithRequirementsStr):
        return function.func
    called = _callable(function)
    try:
        return function_source(called)
    except ValueError as error:
        raise OptionError("functions", f"the source of {called!r} cannot be found; write it with `def`") from error
