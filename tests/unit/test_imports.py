"""What applications import directly can be the first that they import, and commands import no more than they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from live.loaded_hood import run_python

import fumehood

ROOT = Path(fumehood.__file__).parent
INTEGRATIONS = sorted(path.parent.name for path in (ROOT / "integrations").glob("*/__init__.py"))


# In forks of a process that has imported the frameworks, most of which take seconds, and of which ours is taken away.
_FIRST = """
import importlib, os, sys
for framework in ("agent_framework", "agents", "autogen_core", "deepagents", "inspect_ai", "mcp", "pydantic_ai",
                  "smolagents", "starlette", "uvicorn"):
    assert framework in sys.modules, framework
for name in [name for name in sys.modules if name.partition(".")[0] in ("fumehood", "fumehood_client")]:
    del sys.modules[name]
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(f"fumehood.integrations.{name}")
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    if os.waitpid(child, 0)[1] == 0:
        print(name)
"""


@cache
def importable_first() -> subprocess.CompletedProcess[str]:
    return run_python("-W", "ignore", "-c", _FIRST, *INTEGRATIONS, kind="frameworks", timeout=280)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", INTEGRATIONS)
def test_an_integration_can_be_imported_first(name: str) -> None:
    done = importable_first()
    assert name in done.stdout.split(), done.stderr


# Prints, as the very last thing, which modules there are and which classes `dataclass` has compiled methods for.
_HOOD = """
import atexit, sys

def report():
    modules = dict(sys.modules)
    compiled = [
        f"{name}.{each.__name__}"
        for name, module in modules.items() if name.startswith("fumehood")
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == name
        and "__dataclass_params__" in vars(each) and each.__dataclass_params__.eq
    ]
    import json
    with open(path, "w") as file:
        json.dump([list(modules), compiled], file)

atexit.register(report)
path = sys.argv.pop(1)
from fumehood_client import main
main()
"""
# What reads a policy, opens a sandbox or waits for one.
_MACHINERY = {
    *("pydantic", "asyncio", "anyio", "sqlite3", "ssl", "logging", "socket", "subprocess"),
    *("fumehood.policy", "fumehood.sandbox", "fumehood.audit", "fumehood.results", "fumehood.backends.interface"),
}
_OF_OTHER_RUNS = {
    *("importlib.metadata", "email", "zipfile", "yaml", "tomllib", "aiohttp", "difflib"),
    *("fumehood.egress", "fumehood.environments", "fumehood.backends.docker", "fumehood.images", "fumehood.tools"),
    *("fumehood.agents", "fumehood.runtime", "fumehood.integrations", "fumehood.sandbox.sandboxed_installer"),
    *("fumehood.policy.commands", "fumehood.policy.egress", "fumehood.policy.decisions", "fumehood.policy.document"),
    *("fumehood.policy.explanation", "fumehood.policy.reference", "fumehood.cli.approval_prompt"),
}


def _imported(tmp_path: Path, *arguments: str, code: int = 0) -> tuple[set[str], list[str]]:
    """The modules of a `hood` that has done this, and its compiled dataclasses."""
    report = tmp_path / "modules.json"
    done = subprocess.run(
        [sys.executable, "-I", "-c", _HOOD, str(report), *arguments],
        env={**os.environ, "FUMEHOOD_KEEPER": "off"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == code, done.stderr
    modules, compiled = json.loads(report.read_text())
    return set(modules), compiled


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_nothing_but_the_list_of_commands(argument: str, tmp_path: Path) -> None:
    modules, _ = _imported(tmp_path, argument)
    ours = {name.removeprefix("fumehood.") for name in modules if name.startswith("fumehood.")}
    assert ours == {"cli", "cli.commands", "cli.entry", "cli.exitcodes", "cli.output", "errors"}
    assert sorted(modules & {*_MACHINERY, "argparse", "dataclasses", "re", "typing"}) == []


@pytest.mark.parametrize(
    "arguments",
    [["--nope"], ["missing.py"], [], ["-c", "1", "missing.py"], ["--language", "cobol", "-c", "1"], ["--memory"]],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_a_mistake_in_the_command_line_is_found_before_what_reads_policies_is_imported(
    arguments: list[str], tmp_path: Path
) -> None:
    modules, _ = _imported(tmp_path, "run", *arguments, code=2)
    assert sorted(modules & _MACHINERY) == []


def test_the_help_of_run_imports_nothing_that_reads_policies(tmp_path: Path) -> None:
    modules, _ = _imported(tmp_path, "run", "--help")
    assert sorted(modules & _MACHINERY) == []


def test_a_run_without_a_policy_imports_nothing_that_only_other_runs_need(tmp_path: Path) -> None:
    modules, compiled = _imported(tmp_path, "run", "-c", "print(1)")
    assert sorted(modules & _OF_OTHER_RUNS) == []
    assert "pydantic.plugin._loader" not in modules, "a validator was built"
    assert compiled == [], "these are imported by every run: use fumehood.frozen"
