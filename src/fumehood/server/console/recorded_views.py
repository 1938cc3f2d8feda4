"""Which views of other people's code and output the log has, so that a page that goes on showing one adds no more."""

from __future__ import annotations

from collections import OrderedDict

_MOST = 4096


class RecordedViews:
    """Of one log, since the process has started. The oldest are forgotten: such a view is recorded once more."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def __contains__(self, view: tuple[str, str, str]) -> bool:
        """By whom, of what kind, and which."""
        return view in self._known

    def add(self, view: tuple[str, str, str]) -> None:
        self._known[view] = None
        self._known.move_to_end(view)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
