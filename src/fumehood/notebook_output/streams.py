"""The output of one cell as a notebook has it: text of two streams, and bundles of media types."""

from __future__ import annotations

import codecs
from typing import Protocol

from fumehood.events import Event, Stderr, Stdout
from fumehood.notebook_output.bundle import media_bundle
from fumehood.results import Display

_MOST_TRACEBACK = 100_000


class CellOutput(Protocol):
    """Where the output of a cell goes."""

    def text(self, name: str, text: str) -> None:
        """`name` is stdout or stderr."""
        ...

    def display(self, data: dict[str, object]) -> None:
        """Media type -> value."""
        ...


class CellStreams:
    """Passes the events of one cell on to its output. A character may come in two pieces."""

    def __init__(self, output: CellOutput) -> None:
        self._output = output
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}
        self.stderr = ""
        """The end of it, where a traceback is."""

    def show(self, event: Event) -> None:
        match event:
            case Stdout(data):
                self._text("stdout", data)
            case Stderr(data):
                self._text("stderr", data)
            case Display():
                if bundle := media_bundle(event):
                    self._output.display(bundle)
            case _:
                pass

    def finish(self) -> None:
        for name in self._decoders:
            self._text(name, b"", is_last=True)

    def _text(self, name: str, data: bytes, *, is_last: bool = False) -> None:
        if text := self._decoders[name].decode(data, is_last):
            self._output.text(name, text)
            if name == "stderr":
                self.stderr = (self.stderr + text)[-_MOST_TRACEBACK:]
