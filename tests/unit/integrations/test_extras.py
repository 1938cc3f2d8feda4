"""Every integration names the command that installs what it needs, and costs nothing before it is asked for."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXTRAS = {
    "agent_framework": "agent-framework",
    "autogen": "autogen",
    "inspect_ai": "inspect",
    "jupyter": "jupyter",
    "langchain": "deepagents",
    "mcp": "mcp",
    "openai_agents": "openai-agents",
    "pydantic_ai": "pydantic-ai",
    "smolagents": "smolagents",
}
FRAMEWORKS = (
    *("agent_framework", "agents", "autogen_core", "deepagents", "inspect_ai", "mcp", "pydantic_ai", "smolagents"),
    *("IPython", "ipykernel"),
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(("name", "extra"), EXTRAS.items())
def test_without_its_framework_an_integration_says_how_to_install_it(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert extra in PROJECT["optional-dependencies"]
    module = f"fumehood.integrations.{name}"
    monkeypatch.setattr("importlib.util.find_spec", lambda wanted: None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=rf"{module} needs .*: pip install 'fumehood\[{extra}\]'"):
        importlib.import_module(module)


def test_every_integration_is_in_this_list() -> None:
    folders = (ROOT / "src" / "fumehood" / "integrations").iterdir()
    assert {folder.name for folder in folders if (folder / "__init__.py").exists()} == EXTRAS.keys()


def test_no_framework_is_imported_before_its_integration_is() -> None:
    code = f"""
import sys
import fumehood.integrations.adapter, fumehood.integrations.toolboxes
print([name for name in {FRAMEWORKS!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_inspect_finds_its_provider_by_an_entry_point() -> None:
    assert PROJECT["entry-points"]["inspect_ai"] == {"fumehood": "fumehood.integrations.inspect_ai"}
