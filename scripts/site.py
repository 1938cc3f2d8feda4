"""Pages of the site that do not lie in docs/: the command line's, from its parsers, and the documents beside docs/.

`mkdocs.yml` names this module as its hook.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from fumehood.cli.commands import COMMANDS

_HEAD = """\
# The command line

What `hood COMMAND --help` prints, for every command. A usage error is exit code 2, everywhere.
"""
_ROOT = Path(__file__).parents[1]
_BESIDE = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "SPECIFICATION.md")
_LINK_TO_BESIDE = re.compile(rf"\]\(\.\./((?:\.\./)*(?:{'|'.join(map(re.escape, _BESIDE))}))")
_COLUMNS = 80  # a line of code on the page, without scrolling, where the window is 1280 pixels wide
# As documents name the file that a block of code is, for people above it and for the tests.
_FILE = re.compile(r"(?:^`[^`\n]+`:\n+)?^<!-- file: (\S+) -->\n+```(\w+)", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "reference/cli.md", content=command_line()))
    for name in _BESIDE:
        files.append(File.generated(config, name, content=(_ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between docs/ and what lies beside it lead to where both are on the site. Files have their names above."""
    if page.file.src_uri in _BESIDE:
        return markdown.replace("](docs/", "](")
    if page.file.src_uri == "index.md":
        markdown = markdown.replace(", the command line,", ", [the command line](reference/cli.md),")
    return _FILE.sub(r'```\2 title="\1"', _LINK_TO_BESIDE.sub(r"](\1", markdown))


def command_line() -> str:
    os.environ["COLUMNS"] = str(_COLUMNS + 2)
    sections = (part for command in COMMANDS for part in _sections(command.load().build_parser(), 2))
    return "\n".join([_HEAD, *sections])


def _sections(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"{'#' * level} {parser.prog}\n"
    # Descriptions are lines as they were written, whatever the width.
    lines = [wrapped for line in parser.format_help().rstrip().split("\n") for wrapped in wrap(line, _COLUMNS) or [""]]
    yield "\n".join(["```text", *lines, "```\n"])
    for verb in _verbs(parser):
        yield from _sections(verb, level + 1)


def _verbs(parser: argparse.ArgumentParser) -> Iterator[Any]:
    """Each once, also one with a second name."""
    for action in parser._actions:
        if isinstance(action.choices, dict):
            yield from dict.fromkeys(action.choices.values())
