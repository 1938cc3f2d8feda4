"""What makes an interpreter worth copying: modules are imported ahead of time, and ours are out of sight."""

from __future__ import annotations

import os
import sys

from ..isolation.steps import StepError
from . import start


def preload(interpreter: start.GuestInterpreter, modules: list[str]) -> None:
    # Numeric libraries start a thread for each core when they are imported; a forked run could not use them.
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    usual = dict(os.environ)
    for variable in threads:
        os.environ[variable] = "1"
    try:
        interpreter.preload(modules)
    except start.PreloadError as error:
        raise StepError("preloading modules", str(error)) from error
    for variable in threads:
        del os.environ[variable]
    os.environ.update(usual)


def take_out_of_sight() -> list[object]:
    """Our own modules leave the table that the program will see; held on to, because freeing them would cost."""
    names = [name for name in sys.modules if name.partition(".")[0] == "guest"]
    return [sys.modules.pop(name) for name in names]
