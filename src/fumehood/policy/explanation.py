"""Validation errors of the policy's model, in the terms of the policy's file.

Owns the translation of pydantic's errors; finds the nearest valid key by walking the models' own fields.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fumehood.policy.section import Section
from fumehood.policy.source import Path, PolicyProblem, shown

_WORDS = {
    "string_type": "must be text; put quotes around it",
    "string_unicode": "must be text without broken characters",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "tuple_type": "must be a list",
}


def explain(error: ValidationError, model: type[Section]) -> list[PolicyProblem]:
    """One problem for each thing that is wrong."""
    return [_problem(details, model) for details in error.errors(include_url=False)]


def _problem(details: ErrorDetails, model: type[Section]) -> PolicyProblem:
    path = details["loc"]
    match details["type"]:
        case "missing":
            return PolicyProblem(path, "is required")
        case "extra_forbidden":
            return PolicyProblem(path, f"unknown key{_got(details)}; {_nearest_key(path, model)}")
        case "literal_error":
            return PolicyProblem(path, _choices(details))
        case "model_type" | "model_attributes_type":
            return PolicyProblem(
                path, f"must be a mapping of keys to values{_got(details)}{_written_out(details, model)}"
            )
        case "value_error":
            return PolicyProblem(path, f"{details.get('ctx', {}).get('error')}{_got(details)}")
        case kind:
            return PolicyProblem(path, _WORDS.get(kind, details["msg"]) + _got(details))


def _got(details: ErrorDetails) -> str:
    # What stands below `secrets` may be a credential that was pasted there; it must not reach a log. A whole
    # section or list says nothing that the line number does not.
    if details["loc"][:1] == ("secrets",) or isinstance(details["input"], dict | list | tuple | Section):
        return ""
    return f" (got {shown(details['input'])})"


def _choices(details: ErrorDetails) -> str:
    allowed = [word.strip("'") for word in re.findall(r"'[^']*'", details.get("ctx", {}).get("expected", ""))]
    guess = difflib.get_close_matches(shown(details["input"]).strip("'"), allowed, n=1)
    hint = f"; did you mean {guess[0]}?" if guess else ""
    return f"must be one of {', '.join(allowed)}{_got(details)}{hint}"


def _written_out(details: ErrorDetails, model: type[Section]) -> str:
    """The mapping that stands for a single word written in place of a mapping."""
    word = details["input"]
    meant = _section_at(details["loc"], model).written_out(word) if isinstance(word, str) else None
    return f"; write {meant}" if meant and meant.isprintable() else ""


def _nearest_key(path: Path, model: type[Section]) -> str:
    name, known = str(path[-1])[:64].lower(), list(_section_at(path[:-1], model).model_fields)
    if elsewhere := [dotted for dotted in _all_keys(model) if dotted.rpartition(".")[2] == name]:
        return f"did you mean {elsewhere[0]}?"
    guess = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {guess[0]}?" if guess else f"the keys here are {', '.join(known)}"


def _all_keys(model: type[Section], prefix: str = "") -> Iterator[str]:
    """Keys of sections, dotted; those of the items of a list are none that could be written elsewhere."""
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _all_keys(field.annotation, f"{prefix}{name}.")


def _section_at(path: Path, model: type[Section]) -> type[Section]:
    for part in path:
        if isinstance(part, str):
            model = _section(model.model_fields[part].annotation) or model
    return model


def _section(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for member in get_args(annotation) if (found := _section(member)) is not None), None)
