"""Programs that run other programs, and shells: which command or text is inside, so that it can be judged as well."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from fumehood.policy.commands.decision import RefusalError
from fumehood.policy.commands.programs import READABLE_SHELLS, WRAPPERS, WrapperOptions
from fumehood.policy.commands.rules import rule_for
from fumehood.policy.commands.syntax import ONE, PLAIN, Hole, Word, known, rest_of_line
from fumehood.policy.commands.tools import FIND_FLAGS, FIND_VALUED
from fumehood.policy.commands.write_targets import WRITABLE, is_astray

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_EXECUTING = frozenset({"-exec", "-ok"})
_FOUND = "{}"
_COUNTING_OF_XARGS = frozenset({"-n", "--max-args", "-L"})
_WITH_ENDING = re.compile(
    r"[\w*?-]+\.(?:txt|log|csv|tsv|md|rst|html|xml|css|py|pyi|js|mjs|jsx|ts|tsx|c|h|cc|cpp|hpp|go|rs|java|rb|json|ya?ml|toml|sql)"
)
_CHOOSING = frozenset({"!", "-not", "-o", "-or", ",", "("})
_FOLLOWING = frozenset({"-L", "-follow"})


@dataclass(slots=True)
class InnerCommands:
    """What a wrapper starts: commands as words, text for a shell, and variables that it sets."""

    commands: list[list[Word]] = field(default_factory=list[list[Word]])
    text: list[Word] | None = None
    assignments: list[Word] = field(default_factory=list[Word])
    written: list[Word] = field(default_factory=list[Word])
    """Files that it makes."""


def unwrap(name: str, arguments: Sequence[Word], granted: frozenset[str] = frozenset()) -> InnerCommands:
    """Raises RefusalError where it cannot be told which word is the inner command."""
    if name == "find":
        return _find(arguments, granted)
    wrapper = WRAPPERS.get(name)
    return InnerCommands() if wrapper is None else unwrap_by(name, wrapper, arguments)


def unwrap_by(name: str, wrapper: WrapperOptions, arguments: Sequence[Word]) -> InnerCommands:
    place, values = _skip_options(name, wrapper, arguments)
    inside = InnerCommands()
    if wrapper.takes_assignments:
        inside.assignments += [word for option, word in values if option in ("-u", "--unset") and name == "env"]
    while wrapper.takes_assignments and place < len(arguments) and "=" in arguments[place].prefix:
        if _ASSIGNMENT.match(arguments[place].prefix) is None:
            why = f"{name} takes {arguments[place].raw} for a variable, and runs the next word"
            _refuse(arguments[place], why, "use a name of letters, digits and _")
        if arguments[place].is_many:
            _refuse(
                arguments[place], f"{arguments[place].raw} may become several words, of which {name} runs the second"
            )
        inside.assignments.append(arguments[place])
        place += 1
    rest = list(arguments[place + wrapper.own_words :])
    for word in arguments[place : place + wrapper.own_words]:
        if word.is_many:
            _refuse(word, f"{word.raw} may become several words, so it cannot be told what {name} runs")
        if name == "flock":
            inside.written.append(word)
    if name == "flock" and rest and rest[0].text in ("-c", "--command"):
        inside.text = rest[1:2]
    elif wrapper.is_text:
        inside.text = rest or None
    elif rest:
        inside.commands.append(_completed(name, rest, values))
    if not rest and wrapper.reads_commands and arguments:
        _refuse(arguments[-1], f"{name} without a command starts a shell, which runs whatever it reads")
    return inside


def _skip_options(name: str, wrapper: WrapperOptions, arguments: Sequence[Word]) -> tuple[int, list[tuple[str, Word]]]:
    place, values = 0, list[tuple[str, Word]]()
    while place < len(arguments):
        word = arguments[place]
        if not word.may_be_option:
            break
        if word.text is None:
            _refuse(word, f"{word.raw} may be an option of {name}, so it cannot be told what it runs")
        text, option = str(word.text), str(word.text).partition("=")[0]
        place += 1
        if text == "--":
            break
        if text in wrapper.valued:
            if place >= len(arguments) or arguments[place].is_many:
                _refuse(word, f"the value of {name}'s {text} cannot be told")
            values.append((text, arguments[place]))
            place += 1
        elif "=" in text and option.startswith("--") and option in wrapper.valued:
            values.append((option, known(text.partition("=")[2], word.start, word.end)))
        elif text in wrapper.flags or _is_attached(text, wrapper) or _is_cluster(text, wrapper):
            if _is_attached(text, wrapper):
                values.append((text[:2], known(text[2:], word.start, word.end)))
        else:
            _refuse(word, f"{name}'s option {text} is not known here, so it cannot be told what it runs")
    return place, values


def _is_attached(text: str, wrapper: WrapperOptions) -> bool:
    return len(text) > 2 and not text.startswith("--") and text[:2] in wrapper.valued


def _is_cluster(text: str, wrapper: WrapperOptions) -> bool:
    return not text.startswith("--") and len(text) > 2 and all(f"-{letter}" in wrapper.flags for letter in text[1:])


def _completed(name: str, rest: list[Word], values: list[tuple[str, Word]]) -> list[Word]:
    """`xargs` adds words at the end, or puts them in the place of a marker."""
    if name != "xargs":
        return rest
    markers = [word for option, word in values if option == "-I"]
    if not markers:
        return [*rest, rest_of_line(rest[-1])]
    counts = [option for option, _ in values if option in _COUNTING_OF_XARGS]
    if len(markers) > 1 or counts or not markers[0].text:
        _refuse(markers[0], "it cannot be told where xargs puts its words", "use -I once, without -n and -L")
    return [_with_marker(word, str(markers[0].text)) for word in rest]


def _with_marker(word: Word, marker: str) -> Word:
    """What is not known may make the marker complete, and then all of the word comes from elsewhere."""
    return word.replaced(marker) if word.text is not None else replace(word, pieces=(ONE, *word.holes))


def _find(arguments: Sequence[Word], granted: frozenset[str]) -> InnerCommands:
    inside, place = InnerCommands(), 0
    while place < len(arguments):
        word, place = arguments[place], place + 1
        if not word.may_be_option and word.text not in FIND_FLAGS and word.text != ";":
            continue  # a folder
        if word.text in FIND_VALUED:
            if place < len(arguments) and arguments[place].is_many:
                _refuse(arguments[place], f"{arguments[place].raw} may become several words, of which one may be -exec")
            place += 1
        elif word.text in _EXECUTING:
            inner: list[Word] = []
            names_of_found = _plain_names_found(arguments[: place - 1])
            takes_batch = word.text == "-exec"  # `-ok` asks for each file, and knows no +
            while place < len(arguments) and arguments[place].text != ";":
                if takes_batch and _ends_batch(arguments, place):
                    break
                inner.append(_replaced(_not_syntax(arguments[place]), names_of_found))
                place += 1
            if not inner or place >= len(arguments):
                _refuse(word, f"the command of {word.raw} has no end")
            place += 1
            inside.commands.append(inner)
        elif word.text not in FIND_FLAGS | granted:
            raise RefusalError(
                word.start,
                word.end,
                f"{word.raw} of find is not known to be harmless"
                if word.text
                else f"{word.raw} may be -delete or -exec",
                f"leave it out, or add 'find {word.raw}' to commands.allow"
                if word.text
                else "write ./ before it, or set it to a plain name in the line itself",
            )
    return inside


def _plain_names_found(arguments: Sequence[Word]) -> Hole | None:
    """What stands before the command finds only names with an ending, in folders that may be written; None if not so.

    Capitals count for `-name` alone.
    """
    texts = [word.text or "" for word in arguments]
    named = {text: before for before, text in pairwise(texts) if before in ("-name", "-iname")}
    chosen = next((text for text in named if _WITH_ENDING.fullmatch(text)), None)
    words = [word for word in arguments if word.text not in ("-H", "-P")]
    count = next((number for number, word in enumerate(words) if word.prefix[:1] in ("-", "(", "!")), len(words))
    is_elsewhere = any(is_astray(folder, WRITABLE) for folder in words[:count])
    if chosen is None or (_CHOOSING | _FOLLOWING) & set(texts) or is_elsewhere:
        return None
    pattern = chosen.replace("?", "*")
    return replace(PLAIN, choices=(pattern, f"**/{pattern}")) if named[chosen] == "-name" else PLAIN


def _ends_batch(arguments: Sequence[Word], place: int) -> bool:
    return arguments[place].text == "+" and arguments[place - 1].text == _FOUND


def _not_syntax(word: Word) -> Word:
    """Raises RefusalError for what may end the command, so that find takes what follows for its own."""
    if word.text is None and any(map(word.may_be, (";", "+", _FOUND))):
        why = f"{word.raw} may turn out to be ; or + or {{}}, by which find ends the command"
        _refuse(word, why, "write a letter or ./ before it, or set it to a plain word in the line itself")
    return word


def _replaced(word: Word, found: Hole | None) -> Word:
    """What is found begins with the folder that was searched, and so is never an option."""
    if word.text == _FOUND:
        return Word(("./", found or ONE), word.start, word.end, word.raw)
    return word.replaced(_FOUND)


def _refuse(word: Word, why: str, fix: str = "write it out") -> None:
    raise RefusalError(word.start, word.end, why, fix)


_OPTIONS_OF_SHELLS = re.compile(r"-[euxfv]*c?")
_HARMLESS_OF_SHELLS = frozenset({"--version", "--help", "--norc", "--noprofile"})


def says_what_runs(word: str) -> bool:
    """Whether a word of a shell is more than a harmless option: a script, or -s, by which it reads its input."""
    return word == "-" or not (_OPTIONS_OF_SHELLS.fullmatch(word) or word in _HARMLESS_OF_SHELLS)


def inner_text(name: str, arguments: Sequence[Word], shown: tuple[int, int]) -> Word | None:
    """The text of `-c`, known in full; None when nothing is run. Raises RefusalError for anything else."""
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if word.text is None or says_what_runs(word.text):
            break
        place += 1
        if word.text.endswith("c") and not word.text.startswith("--"):
            return _text_of_shell(name, arguments[place] if place < len(arguments) else None, shown)
        if word.text in ("--version", "--help"):
            return None
    why = f"{name} would run a file, its input or its start-up files, which cannot be read here"
    rule = rule_for(name, arguments) if arguments else None
    raise RefusalError(*shown, why, f"use {name} -c '...'" + (f", or add {rule!r} to commands.allow" if rule else ""))


def _text_of_shell(name: str, text: Word | None, shown: tuple[int, int]) -> Word:
    if name not in READABLE_SHELLS:
        raise RefusalError(*shown, f"the text of {name} cannot be read here", "use bash -c")
    if text is not None and text.prefix.startswith(("-", "+")):
        why = f"{name} takes {text.raw} for an option, and the word after it for the text"
        raise RefusalError(*shown, why, "write options before -c")
    if text is None or text.text is None:
        why = f"what {name} -c runs is put together while it runs, so that it cannot be judged"
        raise RefusalError(*shown, why, "write it out in single quotes")
    return text
