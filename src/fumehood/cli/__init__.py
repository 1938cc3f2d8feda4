"""The command line, `hood`.

Owns arguments, exit codes, what people see, and what signals do. Must not know how anything is enforced: it asks the
layers below and shows their answers. A command is one module, named in `commands`, imported only when it is used;
`entry` finds it and turns every exception into one line and an exit code.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as type checkers read it, without typing
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    # Looking for plugins of pydantic means reading the metadata of everything that is installed, on every start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from fumehood.cli.entry import run_process

    run_process()
