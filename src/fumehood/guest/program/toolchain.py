"""What a run needs of the sandbox besides Python: the commands of its language, and the folder in which a compiler
leaves its product for the run that follows. All of it happens as the sandbox's user, with every restriction in force.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from ..contract.paths import PRODUCT_FOLDER, RUN_FOLDER


def find_commands(request: dict[str, Any]) -> str | None:
    """Settles which file the interpreter's name stands for; says what is missing if the language is not there.

    The sandbox's own PATH decides. The one that the caller may have set is the program's.
    """
    commands: dict[str, list[str]] | None = request["commands"]
    if commands is None:
        return None
    missing = [name for name in commands[request["language"]] if not _find(name)]
    if missing:
        available = [language for language, needed in commands.items() if all(map(_find, needed))]
        return (
            f"language {request['language']!r} is not available in this sandbox: it has no {' and no '.join(missing)}; "
            f"available: {', '.join(available)}"
        )
    first = request["interpreter"][0]
    request["interpreter"][0] = _find(first) or first
    return None


def hand_over(request: dict[str, Any], run_folder: str = RUN_FOLDER) -> None:
    """Make the folder that a compiler is to fill, or take over what is in it. Raises OSError."""
    if request["leaves"]:
        os.mkdir(request["leaves"], 0o700)
    if request["takes"]:
        shutil.copytree(request["takes"], _product_folder(run_folder), symlinks=True)
        shutil.rmtree(request["takes"])


def relocate(request: dict[str, Any], run_folder: str) -> None:
    """Moves the product's path to the run's folder if that is not the usual one, which the host assumes."""
    if request["takes"] and run_folder != RUN_FOLDER:
        place = _product_folder(run_folder)
        request["interpreter"] = [word.replace(PRODUCT_FOLDER, place) for word in request["interpreter"]]


def _product_folder(run_folder: str) -> str:
    return run_folder + PRODUCT_FOLDER.removeprefix(RUN_FOLDER)


def _find(command: str) -> str | None:
    folders = [""] if "/" in command else os.environ["PATH"].split(":")
    paths = (os.path.join(folder, command) for folder in folders)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)
