"""The command line, `hood`.

Owns arguments, exit codes, what people see, and what signals do. Must not know how anything is enforced: it asks the
layers below and shows their answers. A command is one module, named in `commands`, imported only when it is used;
`entry` finds it and turns every exception into one line and an exit code.
"""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    from fumehood.cli.entry import run_process

    run_process()
