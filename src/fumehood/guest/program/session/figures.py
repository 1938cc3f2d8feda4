"""matplotlib's figures as displays: at `plt.show()`, and those that are still open at the end of a run.

matplotlib gets a backend that exists in memory only, set when it is imported and the user has chosen no other. No
environment variable is set, so that child processes are as they would be anywhere.
"""

from __future__ import annotations

import importlib
import io
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_LIBRARY = "matplotlib"
_BACKEND = "session_figures"

Publish = Callable[[Mapping[str, object], Mapping[str, object]], None]


class Figures:
    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._shown: weakref.WeakSet[Any] = weakref.WeakSet()
        self._manager_class: type | None = None

    def watch(self) -> None:
        """From now on, or from the library's import on."""
        sys.meta_path.insert(0, _Finder(self))
        if _LIBRARY in sys.modules:
            _choose_backend(sys.modules[_LIBRARY])

    def render(self, value: object) -> Mapping[str, object]:
        """The picture, if it is a figure. The end of the run will not show it again."""
        png = self.png(value) if _is_figure(value) else None
        return {} if png is None else {"image/png": png}

    def png(self, figure: Any) -> bytes | None:
        self._shown.add(figure)
        if not figure.axes and not figure.lines:
            return None
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi="figure", bbox_inches="tight")
        return stream.getvalue()

    def show_open(self) -> None:
        """Show and close what the user has not closed; figures of another backend are the user's own affair."""
        helpers = sys.modules.get(f"{_LIBRARY}._pylab_helpers")
        if helpers is None or self._manager_class is None:
            return
        managers = helpers.Gcf.get_all_fig_managers()
        for manager in [each for each in managers if isinstance(each, self._manager_class)]:
            helpers.Gcf.destroy(manager)
            if manager.canvas.figure not in self._shown:
                self._show(manager.canvas.figure)

    def end_run(self) -> None:
        try:
            self.show_open()
        finally:
            self._shown.clear()

    def _show(self, figure: Any) -> None:
        self._publish({"text/plain": repr(figure), **self.render(figure)}, {})

    def fill_backend(self, module: ModuleType) -> None:
        agg = importlib.import_module(f"{_LIBRARY}.backends.backend_agg")
        bases = importlib.import_module(f"{_LIBRARY}.backend_bases")
        figures = self

        class FigureManager(bases.FigureManagerBase):
            def show(self) -> None:
                figures._show(self.canvas.figure)

            @classmethod
            def pyplot_show(cls, *_: object, **__: object) -> None:
                figures.show_open()

        class FigureCanvas(agg.FigureCanvasAgg):
            manager_class = FigureManager

        self._manager_class = FigureManager
        vars(module).update(FigureCanvas=FigureCanvas, FigureManager=FigureManager)


class _Finder:
    """Notices the library's import, and knows the backend that is nowhere on disk."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _BACKEND:
            return ModuleSpec(name, self)  # type: ignore[arg-type]
        return _spec_that_chooses(self, path, target) if name == _LIBRARY else None

    def create_module(self, _: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self._figures.fill_backend(module)


def _spec_that_chooses(ours: _Finder, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    """The library's own spec, whose loader does one thing more, once."""
    others = [finder for finder in sys.meta_path if finder is not ours]
    spec = next(filter(None, (finder.find_spec(_LIBRARY, path, target) for finder in others)), None)
    loader: Any = spec and spec.loader
    if loader is None:
        return spec

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        loader.exec_module(module)
        _choose_backend(module)

    loader.exec_module = exec_module
    return spec


def _choose_backend(library: Any) -> None:
    """Unless the user did. A dict's own method, because the library's looks for a screen when it is asked."""
    options: dict[str, Any] = library.rcParams
    if isinstance(dict[str, Any].__getitem__(options, "backend"), str):
        return
    library.rcParams["backend"] = f"module://{_BACKEND}"


def _is_figure(value: object) -> bool:
    module = sys.modules.get(f"{_LIBRARY}.figure")
    return module is not None and isinstance(value, module.Figure)
