"""What is put into a sandbox before the first block runs: links to volumes, the caller's functions, `init_command`."""

from __future__ import annotations

import inspect
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import indent
from typing import Any, cast

from autogen_core.code_executor import Alias, FunctionWithRequirements, FunctionWithRequirementsStr, Import

from fumehood.errors import DeniedError, SandboxError
from fumehood.integrations.autogen.merge import ExecutorPlan
from fumehood.integrations.autogen.options import OptionError
from fumehood.policy.paths import WORKSPACE
from fumehood.results import Cause, RunResult
from fumehood.sandbox.interface import AnySandbox
from fumehood.tools.source import function_source

Function = FunctionWithRequirements[Any, ...] | FunctionWithRequirementsStr | Callable[..., Any]
"""A function of the caller that blocks may import: its source becomes part of a module in the sandbox."""


def make_host_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise OptionError("work_dir", f"{path!r} cannot be made: {error.strerror}") from error


async def set_up(box: AnySandbox, plan: ExecutorPlan, modules: Mapping[str, str], init_command: str | None) -> None:
    """Idempotent: a restart repeats it."""
    if plan.host_folder is None:
        await box.files.mkdir(plan.folder)
    for place, mount in plan.links.items():
        await box.files.mkdir(posixpath.dirname(place))
        _expect(await box.run(argv=["ln", "-sfn", "--", mount, place]), "volumes")
    if init_command is not None:
        _expect(await box.run(init_command, language="sh", cwd=plan.folder, env=plan.environment), "init_command")
    for name, source in modules.items():
        path = posixpath.join(plan.folder, name)
        await box.files.write(path, source)
        _expect(await box.run(source, name=path, cwd=plan.folder, env=plan.environment), "functions")
    await share_workspace(box, plan)


# AutoGen's folder is /workspace itself, so prompts and programs name it. Nothing can be mounted there, so what is made
# there is moved to the folder and linked to, and what is in the folder is linked to. Names that are in both stay.
_SHARE = """
for name in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ -L "$name" ] || [ ! -e "$name" ]; then continue; fi
    place=$2/${name##*/}
    if [ -e "$place" ] || [ -L "$place" ]; then echo "${name##*/}"; else mv -- "$name" "$place"; fi
done
find "$2" -mindepth 1 -maxdepth 1 ! -name 'tmp_code_*' -exec sh -c 'ln -s -- "$@" '"$1"' 2>/dev/null' sh {} + || true
"""
_MOST_NAMES = 10


async def share_workspace(box: AnySandbox, plan: ExecutorPlan) -> str:
    """Make /workspace show the folder in which blocks work. Returns a note for the model, if there is one."""
    if plan.host_folder is None:
        return ""
    try:
        done = await box.run(argv=["sh", "-c", _SHARE, "sh", WORKSPACE, plan.folder])
    except (DeniedError, SandboxError):  # the policy's commands do not include these, or nothing is left to share
        return ""
    names = ", ".join(done.stdout.splitlines()[:_MOST_NAMES])
    return f"{WORKSPACE} is not {plan.folder}, and both have: {names}\n" if names else ""


async def is_alive(box: AnySandbox) -> bool:
    """Whether it can still run something."""
    try:
        return (await box.run(argv=["true"])).cause is not Cause.LOST
    except SandboxError:
        return False


def _expect(result: RunResult, option: str) -> None:
    if not result.ok:
        words = result.detail or f"exit code {result.exit_code}"
        raise OptionError(option, f"failed in the sandbox ({words}): {result.stderr or result.stdout}")


def required_packages(functions: Sequence[Function]) -> list[str]:
    return sorted({package for function in functions for package in _requirements(function).python_packages})


def module_source(functions: Sequence[Function]) -> str:
    imports = dict.fromkeys(line for function in functions for line in _imports(function))
    return "\n".join(imports) + "\n\n\n" + "\n\n".join(_source(function) for function in functions)


def stub(function: Function) -> str:
    """Signature and docstring, for the prompt."""
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
    for required in _requirements(function).global_imports:
        yield _import_line(required)


def _import_line(required: Import) -> str:
    if isinstance(required, str | Alias):
        return f"import {_renamed(required)}"
    return f"from {required.module} import {', '.join(_renamed(name) for name in required.imports)}"


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
