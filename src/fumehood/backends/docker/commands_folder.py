"""A folder of the host with the commands `pip` and `uv` for containers, whose root a guest cannot write to."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from fumehood.backends.package_commands import PLACE, PROGRAM, PackageCommands, package_commands
from fumehood.frozen import frozen
from fumehood.host.folders import HOME, find_home, remove_folder
from fumehood.policy import Policy

# As its PATH finds it in any image.
_PYTHON = "python3"


@frozen
class CommandsFolder:
    path: str
    """To be shown at PLACE, with the installer at PROGRAM."""
    installer: str


def make_commands_folder(policy: Policy, *, is_open: bool) -> CommandsFolder | None:
    """By its content, once; None where there is no uv to show."""
    commands = package_commands(policy, _PYTHON, is_open=is_open)
    if commands.installer is None:
        return None
    home = find_home(os.environ)
    root = home / "commands"
    for folder in (home, root):
        HOME.make(folder)
    content = json.dumps([commands.files, commands.programs], sort_keys=True)
    place = root / hashlib.sha256(content.encode()).hexdigest()
    if not place.is_dir():
        _make(commands, place)
    return CommandsFolder(str(place), commands.installer)


def _make(commands: PackageCommands, place: Path) -> None:
    """Complete or not at all; another process may make it at the same time."""
    draft = Path(tempfile.mkdtemp(dir=place.parent))
    for path, text in {**commands.files, **commands.programs, PROGRAM: ""}.items():
        file = draft / Path(path).relative_to(PLACE)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.parent.chmod(0o755)
        file.chmod(0o755 if path in commands.programs else 0o644)
    draft.chmod(0o755)
    with suppress(OSError):
        draft.rename(place)
        return
    remove_folder(draft)
