"""What a shell that is started by a command would run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fumehood.policy.commands.programs import READABLE_SHELLS
from fumehood.policy.commands.rules import rule_for
from fumehood.policy.commands.verdict import RefusedError
from fumehood.policy.commands.words import Word

_OPTIONS = re.compile(r"-[euxfv]*c?")
_HARMLESS = frozenset({"--version", "--help", "--norc", "--noprofile"})


def inner_text(name: str, arguments: Sequence[Word], shown: tuple[int, int]) -> Word | None:
    """The text of `-c`, known in full; None when nothing is run. Raises RefusedError for anything else."""
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if (
            word.text is None
            or word.text == "-"
            or (_OPTIONS.fullmatch(word.text) is None and word.text not in _HARMLESS)
        ):
            break
        place += 1
        if word.text.endswith("c") and not word.text.startswith("--"):
            return _text(name, arguments[place] if place < len(arguments) else None, shown)
        if word.text in ("--version", "--help"):
            return None
    why = f"{name} would run a file, its input or its start-up files, which cannot be read here"
    rule = rule_for(name, arguments) if arguments else None
    raise RefusedError(*shown, why, f"use {name} -c '...'" + (f", or add {rule!r} to commands.allow" if rule else ""))


def _text(name: str, text: Word | None, shown: tuple[int, int]) -> Word:
    if name not in READABLE_SHELLS:
        raise RefusedError(*shown, f"the text of {name} cannot be read here", "use bash -c")
    if text is not None and text.prefix.startswith(("-", "+")):
        why = f"{name} takes {text.raw} for an option, and the word after it for the text"
        raise RefusedError(*shown, why, "write options before -c")
    if text is None or text.text is None:
        why = f"what {name} -c runs is put together while it runs, so that it cannot be judged"
        raise RefusedError(*shown, why, "write it out in single quotes")
    return text
