"""What docs/mcp.md says that people should write into the configuration of their clients."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from unit.test_docs import ROOT, blocks_of

from fumehood.cli.mcp import build_parser

BLOCKS = [
    block
    for name in ("README.md", "docs/mcp.md")
    for block in blocks_of(Path(ROOT, name).read_text(encoding="utf-8"))
    if block.language in ("json", "toml")
]


def test_there_are_configurations() -> None:
    assert len(BLOCKS) >= 7


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"line-{block.line}")
def test_a_configuration_can_be_read_and_hood_takes_its_arguments(block: Any) -> None:
    data = json.loads(block.text) if block.language == "json" else tomllib.loads(block.text)
    (servers,) = data.values()
    (server,) = servers.values()
    if "url" in server:
        assert server["url"].endswith("/mcp")
        return
    command = server["command"] if isinstance(server["command"], list) else [server["command"], *server["args"]]
    assert command[:2] == ["hood", "mcp"]
    assert build_parser().parse_args(command[2:]).policy.endswith("served.yaml")
