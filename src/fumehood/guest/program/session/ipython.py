"""The shell of an environment that has IPython: IPython's own, with our ways out for output, displays and endings.

IPython is the environment's, not ours: nothing of it is imported before a session starts or the policy preloads it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from functools import partial
from typing import Any

from ...contract.ipython import PACKAGE
from ..source import text_of
from . import tracebacks
from .event_loop import EventLoop
from .figures import Figures
from .interrupts import InterruptGate
from .ipython_parts import import_part, shell_class
from .publisher import Publisher

_CONFIGURATION = "traitlets.config"  # what IPython is built on


def make_shell(gate: InterruptGate, publisher: Publisher, figures: Figures, scratch: str) -> IPythonShell | None:
    """None where the environment has no IPython, or none that works."""
    try:
        if importlib.util.find_spec(PACKAGE) is None:
            return None
        return IPythonShell(gate, publisher, figures, scratch)
    except Exception as error:
        print(f"{PACKAGE} does not work here, a plain shell is used: {type(error).__name__}: {error}", file=sys.stderr)
        return None


class IPythonShell:
    name = "ipython"

    def __init__(self, gate: InterruptGate, publisher: Publisher, figures: Figures, scratch: str) -> None:
        self._gate = gate
        self._event_loop = EventLoop(gate)
        self._shell = shell_class(gate, publisher, self._event_loop).instance(
            config=_config(),
            ipython_dir=f"{scratch}/ipython",
            user_module=sys.modules["__main__"],
        )
        self._shell.display_formatter.formatters["image/png"].for_type_by_name(
            "matplotlib.figure", "Figure", figures.png
        )
        self._shell.loop_runner = self._event_loop.run
        page = import_part("core.page")
        self._shell.set_hook("show_in_pager", page.as_hook(page.display_page), 99)
        # The result says that the program wanted to leave; how to leave IPython is no concern of its author.
        warnings.filterwarnings("ignore", "To exit: use")

    def run(self, source: bytes, number: int) -> BaseException | None:
        """What ended it, shown already, or None."""
        errors: list[BaseException | None] = []
        # Closed, because IPython's own code swallows interrupts in some places; it is open where the user's code runs.
        failure = self._gate.call(lambda: errors.append(self._execute(source, number)), is_open=False)
        if failure is None:
            return errors[0]
        if not isinstance(failure, SystemExit):
            self._gate.call(partial(tracebacks.show, failure))
        return failure

    def _execute(self, source: bytes, number: int) -> BaseException | None:
        text = text_of(source, f"<run {number}>")
        vars(sys.modules["__main__"]).pop("__warningregistry__", None)
        self._shell.execution_count = number
        result = self._shell.run_cell(text, store_history=True)
        return self._event_loop.interruption_of(result.error_before_exec or result.error_in_exec)


def _config() -> Any:
    """No files, no threads, no colours, nothing that is for a person at a terminal."""
    config: Any = importlib.import_module(_CONFIGURATION).Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.xmode = "Plain"  # for a machine to read, and in a quarter of the time
    config.InteractiveShell.warn_venv = False
    config.Completer.use_jedi = False
    return config
