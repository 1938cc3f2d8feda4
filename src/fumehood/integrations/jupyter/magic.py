"""`%%hood` runs a cell in the sandbox of the notebook; `%hood` restarts or closes it."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any, NoReturn, cast

from IPython import display as ipython_display
from IPython.core.error import UsageError as MagicUsageError
from IPython.core.interactiveshell import InteractiveShell

from fumehood.characters import neutralise
from fumehood.errors import FumehoodError
from fumehood.integrations.jupyter.session import NotebookSandbox
from fumehood.policy import Policy, read_policy
from fumehood.policy.arguments import add_packages

_ADVICE = r"begin with %%hood --with \1"
_ATTRIBUTE = "_fumehood_magics"


class SandboxCellError(Exception):
    """A cell that failed in the sandbox. Its traceback has been shown; it stops the cells that would follow."""

    def _render_traceback_(self) -> list[str]:
        """IPython shows this instead of a traceback of the host's."""
        return [str(self)]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise MagicUsageError(f"%%hood: {message}; %%hood --help lists the options")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise MagicUsageError("the cell was not run")


def _build_parser() -> argparse.ArgumentParser:
    description = "Run the cell in the notebook's sandbox. Python keeps its state from cell to cell, files stay, too."
    parser = _Parser(prog="%%hood", description=description, allow_abbrev=False)
    parser.add_argument(
        "-p", "--policy", help="a file, or the name of a built-in policy; without it nothing is allowed"
    )
    parser.add_argument(
        "--with", dest="packages", action="append", default=[], metavar="PACKAGE", help="install it for the notebook"
    )
    parser.add_argument("-l", "--language", default="python", help="of the cell; only Python keeps its state")
    parser.add_argument("-t", "--timeout", help="for this cell, such as 5s")
    return parser


class _ShellOutput:
    """Shown as output of the cell. A terminal obeys control characters, so there they are shown by number."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def text(self, name: str, text: str) -> None:
        stream = sys.stderr if name == "stderr" else sys.stdout
        stream.write(self.clean(text))
        stream.flush()

    def display(self, data: dict[str, object]) -> None:
        untyped = cast("Any", ipython_display)
        untyped.publish_display_data(
            {kind: self.clean(value) if isinstance(value, str) else value for kind, value in data.items()}
        )

    def clean(self, text: str) -> str:
        return neutralise(text) if self._is_terminal else text


class HoodMagics:
    """One sandbox for each notebook, opened by the first cell, with the policy that it names."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._notebook: NotebookSandbox | None = None
        self._output = _ShellOutput(is_terminal=is_terminal)

    def run_cell(self, line: str, cell: str) -> None:
        """%%hood [--policy FILE] [--with PACKAGE] [--language NAME] [--timeout TIME]"""
        try:
            chosen = _build_parser().parse_args(shlex.split(line))
            notebook = self._sandbox(chosen.policy, chosen.packages)
            failure = notebook.run(cell, self._output, language=chosen.language, timeout=chosen.timeout)
        except (FumehoodError, ValueError) as error:
            raise MagicUsageError(str(error)) from None
        if failure is not None:
            raise SandboxCellError(self._output.clean(failure.line))

    def control(self, line: str) -> None:
        """`%hood restart`: begin without state, keep the files. `%hood close`: end the sandbox with its files."""
        word = line.strip()
        if word not in ("restart", "close"):
            raise MagicUsageError("%hood takes restart or close; code goes into a cell that begins with %%hood")
        if self._notebook is not None and word == "restart":
            self._notebook.restart()
        elif self._notebook is not None:
            self._notebook.close()
            self._notebook = None

    def _sandbox(self, policy: str | None, packages: list[str]) -> NotebookSandbox:
        """The first cell says what the sandbox has; a later one may say the same again, or nothing."""
        if self._notebook is None:
            self._notebook = NotebookSandbox(add_packages(_read(policy), packages, "--with"), _ADVICE)
        elif policy is not None and add_packages(_read(policy), packages, "--with") != self._notebook.policy:
            raise MagicUsageError("the notebook's sandbox is open under another policy; `%hood close` ends it first")
        elif missing := set(packages) - set(self._notebook.policy.environment.packages):
            raise MagicUsageError(
                f"the notebook's sandbox was opened without {', '.join(sorted(missing))}; `%hood close` ends it first"
            )
        return self._notebook


def _read(policy: str | None) -> Policy:
    return read_policy(policy) or Policy()


def load(shell: InteractiveShell) -> None:
    magics = HoodMagics(is_terminal=type(shell).__name__ != "ZMQInteractiveShell")
    register = cast("Any", shell).register_magic_function
    register(magics.run_cell, magic_kind="cell", magic_name="hood")
    register(magics.control, magic_kind="line", magic_name="hood")
    setattr(shell, _ATTRIBUTE, magics)


def unload(shell: InteractiveShell) -> None:
    getattr(shell, _ATTRIBUTE).control("close")
    delattr(shell, _ATTRIBUTE)
    registered = cast("Any", shell).magics_manager.magics
    for kind in ("line", "cell"):
        registered[kind].pop("hood", None)
