"""What the model refused, in the words of whoever wrote the policy.

Owns the translation of pydantic's errors; finds the nearest valid key by walking the models' own fields.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fumehood.policy.section import Section
from fumehood.policy.source import Path, Problem, shown

_WORDS = {
    "string_type": "must be text; put quotes around it",
    "string_unicode": "must be text without broken characters",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "tuple_type": "must be a list",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
}


def explain(error: ValidationError, model: type[Section]) -> list[Problem]:
    """One problem for each thing that is wrong."""
    return [_problem(details, model) for details in error.errors(include_url=False)]


def _problem(details: ErrorDetails, model: type[Section]) -> Problem:
    path = details["loc"]
    match details["type"]:
        case "missing":
            return Problem(path, "is required")
        case "extra_forbidden":
            return Problem(path, f"unknown key{_got(details)}; {_nearest_key(path, model)}")
        case "literal_error":
            return Problem(path, _choices(details))
        case "value_error":
            return Problem(path, f"{details.get('ctx', {}).get('error')}{_got(details)}")
        case kind:
            return Problem(path, _WORDS.get(kind, details["msg"]) + _got(details))


def _got(details: ErrorDetails) -> str:
    # What stands below `secrets` may be a credential that somebody pasted there; it must not reach a log. A whole
    # section or list says nothing that the line number does not.
    if details["loc"][:1] == ("secrets",) or isinstance(details["input"], dict | list | tuple | Section):
        return ""
    return f" (got {shown(details['input'])})"


def _choices(details: ErrorDetails) -> str:
    allowed = [word.strip("'") for word in re.findall(r"'[^']*'", details.get("ctx", {}).get("expected", ""))]
    guess = difflib.get_close_matches(shown(details["input"]).strip("'"), allowed, n=1)
    hint = f"; did you mean {guess[0]}?" if guess else ""
    return f"must be one of {', '.join(allowed)}{_got(details)}{hint}"


def _nearest_key(path: Path, model: type[Section]) -> str:
    known = _keys(path[:-1], model)
    guess = difflib.get_close_matches(str(path[-1])[:64].lower(), known, n=1)
    return f"did you mean {guess[0]}?" if guess else f"the keys here are {', '.join(known)}"


def _keys(path: Path, model: type[Section]) -> list[str]:
    for part in path:
        if isinstance(part, str):
            model = _section(model.model_fields[part].annotation) or model
    return list(model.model_fields)


def _section(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for member in get_args(annotation) if (found := _section(member)) is not None), None)
