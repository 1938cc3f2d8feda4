"""The names that users and adapters rely on: they exist, cost nothing to import, and mean the same blocking or not."""

from __future__ import annotations

import inspect
import subprocess
import sys
from functools import cache

import pytest

import fumehood
from fumehood import AsyncBackgroundRun, AsyncFiles, AsyncSandbox, BackgroundRun, Files, Sandbox

PROMISED = {
    "run",
    "Policy",
    "AsyncSandbox",
    "Sandbox",
    "Status",
    "Cause",
    "RunResult",
    "Stdout",
    "Stderr",
    "Finished",
    "FumehoodError",
    "UsageError",
    "PolicyError",
    "DeniedError",
    "UnenforceableError",
    "SandboxError",
    "StepFailedError",
}
HEAVY = [
    "pydantic",
    "yaml",
    "anyio",
    "typer",
    "rich",
    "cryptography",
    "asyncio",
    "subprocess",
    "ctypes",
    "socket",
    "json",
    "typing",
    "re",
]


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


# Each home of names in a fork of an interpreter that has imported nothing of ours, only what we import.
FIRST = """
import os, sys, anyio, pydantic
for names in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        exec(f"from fumehood import {names}")
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        print(names.replace(",", " "))
"""


@cache
def importable_first() -> list[str]:
    homes: dict[str, list[str]] = {}
    for name in fumehood.__all__:
        homes.setdefault(getattr(fumehood, name).__module__, []).append(name)
    command = [sys.executable, "-c", FIRST, *map(",".join, homes.values())]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("name", fumehood.__all__)
def test_every_exported_name_can_be_imported(name: str) -> None:
    assert getattr(fumehood, name) is not None
    assert name in importable_first()


def test_the_promised_names_are_exported() -> None:
    assert set(fumehood.__all__) >= PROMISED
    assert sorted(fumehood.__all__) == list(fumehood.__all__)


def test_a_star_import_brings_what_is_exported() -> None:
    assert python("from fumehood import *\nprint(Policy.__name__, run.__name__)") == "Policy run\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fumehood' has no attribute 'Sandbux'"):
        _ = fumehood.Sandbux  # type: ignore[attr-defined]
    assert not hasattr(fumehood, "_HOME")


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        f"import sys; before = set(sys.modules); import fumehood; "
        f"print(sorted(set({HEAVY}) & (set(sys.modules) - before)))"
    )
    assert python(code) == "[]\n"


def test_importing_the_package_prints_and_makes_nothing(tmp_path: object) -> None:
    code = "import os, fumehood; from fumehood import AsyncSandbox, Policy, Sandbox; print(os.listdir())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=str(tmp_path), check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_results_and_errors_need_no_pydantic() -> None:
    code = (
        "import sys, fumehood; fumehood.Status; fumehood.UsageError; "
        "fumehood.Finished; print('pydantic' in sys.modules)"
    )
    assert python(code) == "False\n"


# Of a run's end, and what a server does for a client, which is async.
ALONE = ("close", "is_concluded", "release", "record_in", "expose_to")
TWINS = {AsyncSandbox: Sandbox, AsyncFiles: Files, AsyncBackgroundRun: BackgroundRun}


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in TWINS for name in vars(kind) if name[0] != "_" and name not in ALONE],
)
def test_the_blocking_classes_have_every_method(kind: type, name: str) -> None:
    twin = getattr(TWINS[kind], name)
    original = getattr(kind, name)
    assert callable(twin) == callable(original)
    if callable(original):
        assert inspect.signature(twin).parameters == inspect.signature(original).parameters
        assert twin.__doc__ == original.__doc__


def test_the_version_is_told() -> None:
    assert fumehood.__version__.count(".") == 2


def test_the_error_tree_says_who_must_act() -> None:
    tree = {"PolicyError": "UsageError", "UnenforceableError": "DeniedError", "StepFailedError": "SandboxError"}
    for child, parent in tree.items():
        assert issubclass(getattr(fumehood, child), getattr(fumehood, parent))
    for name in ("UsageError", "DeniedError", "SandboxError"):
        assert getattr(fumehood, name).__bases__ == (fumehood.FumehoodError,)
