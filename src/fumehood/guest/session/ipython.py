"""IPython's shell."""

from __future__ import annotations

from .figures import Figures
from .interrupts import Gate
from .publishing import Publisher


def make_shell(gate: Gate, publisher: Publisher, figures: Figures, scratch: str):
    return None
