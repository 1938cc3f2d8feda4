"""Every key of a policy is described, and the page about them is what the models say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import fumehood.policy
from fumehood.policy import Policy
from fumehood.policy.reference import write_reference
from fumehood.policy.section import Section

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "policy.md"


def sections(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
        for field in annotation.model_fields.values():
            yield from sections(field.annotation)
    for part in get_args(annotation):
        yield from sections(part)


def test_every_key_has_a_description_that_is_a_sentence() -> None:
    found = set(sections(Policy))
    bare = [
        f"{section.__name__}.{name}"
        for section in found
        for name, field in section.model_fields.items()
        if not (field.description or "").endswith(".")
    ]
    assert len(found) > 10
    assert bare == []


def test_every_section_is_exported_under_its_name() -> None:
    names = {section.__name__: section for section in sections(Policy)}
    assert names.keys() <= set(fumehood.policy.__all__)
    assert all(getattr(fumehood.policy, name) is section for name, section in names.items())


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == write_reference(), "write it anew: hood policy reference > docs/reference/policy.md"


def test_the_page_names_every_key_with_its_place() -> None:
    page = write_reference()
    for key in ("`resources.memory` | size | `512M`", "`network.allow[].host` | text | required", "`strict`"):
        assert key in page
