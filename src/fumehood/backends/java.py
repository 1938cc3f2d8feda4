"""Which class of a Java source is the program, and what its file must be called. Reads the text; knows no compiler.

A guess that is wrong is harmless: the compiler or `java` then says in its own words what it misses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Sources can be large and hostile, and this runs on the host. No pattern here goes over a character twice.
_MOST_CHARACTERS = 1024 * 1024
_NOISE = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""|\Z)|"(?:\\.|[^"\\\n])*+"?|' + r"'(?:\\.|[^'\\\n])*+'?|//[^\n]*+|/\*.*?(?:\*/|\Z)",
    re.DOTALL,
)
_TOKENS = re.compile(
    r"(?P<brace>[{}])|(?P<public>\bpublic\b)|(?P<main>\bvoid\s++main\s*+\()|\bpackage\s++(?P<package>[\w.]++)\s*+;"
    r"|\b(?:class|record|interface|enum)\s++(?P<type>\w++)"
)
_DEFAULT = "Main"


@dataclass(slots=True)
class _Type:
    name: str
    is_public: bool
    has_main: bool = False


def find_names(source: bytes) -> tuple[str, str]:
    """The file's name, without suffix, and the main class's, with its package."""
    package, types = _top_level(_NOISE.sub(" ", source[:_MOST_CHARACTERS].decode("utf-8", "replace")))
    public = next((found for found in types if found.is_public), None)
    starting = [found for found in types if found.has_main]
    main = public if public in starting else next(iter((*starting, *types)), None)
    program = main.name if main else _DEFAULT
    return public.name if public else program, f"{package}.{program}" if package else program


def _top_level(text: str) -> tuple[str, list[_Type]]:
    package, types, depth, is_public = "", list[_Type](), 0, False
    for token in _TOKENS.finditer(text):
        if token["brace"]:
            depth += 1 if token["brace"] == "{" else -1
            is_public = False
        elif token["main"] and types:
            types[-1].has_main = types[-1].has_main or depth == 1
        elif depth == 0 and token["type"]:
            types.append(_Type(token["type"], is_public))
        elif depth == 0:
            package = token["package"] or package
            is_public = is_public or token["public"] is not None
    return package, types
