"""What a program was refused on its way out, for whoever sits in front."""

from __future__ import annotations

import os
from collections.abc import Callable

from fumehood.cli.messages import say
from fumehood.results import Denial

_USUAL_COLUMNS = 80


def tell(denials: tuple[Denial, ...], remedy_of: Callable[[Denial], str] = lambda denial: denial.remedy) -> None:
    """One line each. On a terminal that is too narrow for it, what would help gets a line of its own."""
    width = os.get_terminal_size(2).columns or _USUAL_COLUMNS if os.isatty(2) else None
    for denial in denials:
        times = f" ({denial.count} times)" if denial.count > 1 else ""
        said = f"denied: {denial.what}: {denial.why}{times}"
        remedy = remedy_of(denial)
        if not remedy:
            say(said)
        elif width is None or len(f"hood: {said}; {remedy}") <= width:
            say(f"{said}; {remedy}")
        else:
            say(f"{said};\n{remedy}")
