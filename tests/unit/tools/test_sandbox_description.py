"""What a model is told of its sandbox before it calls anything."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from fumehood import AsyncSandbox, Policy
from fumehood.tools import PYTHON, SHELL, STANDARD, Toolbox

VERSION = f"Python {sys.version_info[0]}.{sys.version_info[1]}"


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({}, [f"{VERSION}, with the standard library alone; nothing else can be installed.", "There is no network."]),
        ({}, ["A run may take 30s and 512M of memory."]),
        ({"environment": {"packages": ["pandas==2.3.*", "numpy"]}}, ["with numpy, pandas==2.3.*; nothing else"]),
        ({"network": {"allow": [{"host": "api.github.com", "ports": [443]}]}}, ["Network: api.github.com only."]),
        (
            {"network": {"allow": [{"host": "packages.example", "ports": [443]}]}},
            ["alone; `pip install` adds others if"],
        ),
        ({"backend": "docker"}, ["Python of the image"]),
    ],
)
def test_python_is_told_with_its_version_packages_and_limits(policy: dict[str, Any], words: list[str]) -> None:
    told = PYTHON.schema(Policy(**policy))["description"]
    assert told.startswith(PYTHON.description)
    assert all(each in told for each in words), told


def test_the_shell_is_told_with_its_commands() -> None:
    told = SHELL.schema(Policy(commands={"allow": ["ls", "git log"], "deny": ["git push"]}))["description"]
    assert "Allowed commands: git log, ls. Not allowed: git push." in told
    assert "commands" not in SHELL.schema(Policy())["description"]


def test_long_lists_are_cut() -> None:
    told = SHELL.schema(Policy(commands={"allow": [f"tool{n:03}" for n in range(100)]}))["description"]
    assert "tool039 and 60 more." in told


@pytest.mark.anyio
async def test_a_toolbox_tells_of_the_policy_of_now() -> None:
    async with AsyncSandbox(Policy(resources={"timeout": "7s"})) as box:
        toolbox = Toolbox(box, *STANDARD)
        assert "A run may take 7s" in toolbox.schemas()[0]["description"]
