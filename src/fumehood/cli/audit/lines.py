"""A record as a line of a terminal, cut to fit and coloured; `audit.words` has the words."""

from __future__ import annotations

import shutil
import sys

from fumehood.audit.words import TROUBLES, Shown, summary
from fumehood.characters import cut, padded, width_of
from fumehood.cli.output import BOLD, DIM, GREEN, RED, YELLOW, paint
from fumehood.results import Status

_ID_CHARACTERS = 12
_WHOLE_ID_CHARACTERS = 20
_KIND_CHARACTERS = 15
_LONGEST_KIND = 24
_STATUS_COLOURS = {Status.SUCCESS: GREEN, Status.CANCELLED: YELLOW}


def line(record: Shown) -> str:
    """Cut to the width of a terminal; whole where it goes into a file or to another program."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    subject, kind, told = record.run_id or record.sandbox_id or "", record.kind, summary(record)
    if width is None:
        subject, kind = padded(subject, _WHOLE_ID_CHARACTERS), padded(kind, _KIND_CHARACTERS)
    else:
        subject = padded(cut(subject, _ID_CHARACTERS, end=""), _ID_CHARACTERS)
        kind = padded(cut(kind, _LONGEST_KIND), _KIND_CHARACTERS)
        told = cut(told, max(20, width - width_of(f"{record.clock}  {subject}  {kind}  ")))
    return f"{paint(record.clock, DIM)}  {subject}  {paint(kind, BOLD)}  {_coloured(record, told)}".rstrip()


def heading(record: Shown) -> str:
    return f"{paint(record.clock, DIM)}  {paint(record.kind, BOLD)}  {_coloured(record, summary(record))}".rstrip()


def _coloured(record: Shown, text: str) -> str:
    if record.kind == "run.finished":
        status = str(record.data.get("status"))
        colour = _STATUS_COLOURS.get(Status(status), RED) if status in set(Status) else RED
        return text.replace(status, paint(status, colour), 1)
    return paint(text, RED) if record.kind in TROUBLES else text
