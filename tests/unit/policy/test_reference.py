"""Every key of a policy is described, and the page and the schema about them are what the models say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

import fumehood.policy
from fumehood.errors import PolicyError, UsageError
from fumehood.policy import Policy
from fumehood.policy.reference import find_entry, json_schema, write_reference
from fumehood.policy.section import Section

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "docs" / "reference" / "policy.md"
SCHEMA = REPOSITORY / "docs" / "reference" / "policy.schema.json"
EXAMPLES = sorted([*REPOSITORY.glob("examples/**/*.yaml")])
RULE = {"host": "api.example.com", "ports": [443]}


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


def validators() -> Any:
    """Not before a test needs them: each process that collects tests would import them, which takes seconds."""
    import jsonschema

    return jsonschema


def is_valid_by_schema(document: object) -> bool:
    return validators().Draft202012Validator(json_schema()).is_valid(document)


def is_valid_by_model(document: object) -> bool:
    try:
        Policy.model_validate(document)
    except PolicyError:
        return False
    return True


def test_the_schema_is_up_to_date() -> None:
    assert json.loads(SCHEMA.read_text()) == json_schema(), "write it anew: hood policy schema > " + str(SCHEMA)


def test_the_schema_is_a_schema_and_describes_every_key() -> None:
    schema = json_schema()
    validators().Draft202012Validator.check_schema(schema)
    sections = [schema, *schema["$defs"].values()]
    properties = [(name, each) for section in sections for name, each in section["properties"].items()]
    assert len(properties) > 60
    assert [name for name, each in properties if not each.get("description", "").endswith(".")] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_schema_accepts_the_examples(example: Path) -> None:
    assert is_valid_by_schema(yaml.safe_load(example.read_text()))


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"resources": {"memory": "256M", "timeout": "500ms", "disk": 8192, "cpus": 0.5}},
        {"resources": {"memory": "1.5 GiB", "timeout": 2.5, "cpu_time": None}},
        {"network": {"allow": [RULE, {**RULE, "methods": ["GET"], "max_bytes": "10M", "max_rate": 0.5}]}},
        {"filesystem": {"mounts": [{"source": "/usr/share", "target": "/data"}]}, "strict": True},
        {"approvals": [{"tool": "shell", "risk": "high", "expires": "5m"}]},
    ],
    ids=str,
)
def test_the_schema_accepts_what_the_models_accept(document: dict[str, object]) -> None:
    assert is_valid_by_model(document)
    assert is_valid_by_schema(document)


@pytest.mark.parametrize(
    "document",
    [
        {"memory": "1G"},
        {"resources": {"memory": "lots"}},
        {"resources": {"memory": "1K "}},
        {"resources": {"memory": 1024}},
        {"resources": {"timeout": "5 minutes"}},
        {"resources": {"processes": 0}},
        {"resources": {"processes": 1.5}},
        {"resources": {"cpus": "two"}},
        {"network": {"allow": ["api.example.com"]}},
        {"network": {"allow": [{"host": "api.example.com"}]}},
        {"network": {"allow": [{**RULE, "ports": [70000]}]}},
        {"network": {"allow": [{**RULE, "protocol": "udp"}]}},
        {"network": {"allow": [{**RULE, "max_connections": 0}]}},
        {"backend": "podman"},
        {"strict": "yes"},
        {"audit": {"code": "all"}},
        [],
    ],
    ids=str,
)
def test_the_schema_refuses_what_the_models_refuse(document: object) -> None:
    assert not is_valid_by_model(document)
    assert not is_valid_by_schema(document)


def test_a_key_is_found_with_or_without_the_marks_of_lists() -> None:
    entry = find_entry("network.allow[].ports")
    assert entry == find_entry("network.allow.ports")
    assert (entry.kind, entry.default) == ("list: whole number", "required")


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("memory", "did you mean resources.memory?"),
        ("resorces.memory", "did you mean resources.memory?"),
        ("banana", "`hood policy reference` lists all"),
    ],
)
def test_a_key_that_does_not_exist_is_an_error_with_advice(wrong: str, advice: str) -> None:
    with pytest.raises(UsageError, match="is neither a key of a policy nor a file") as caught:
        find_entry(wrong)
    assert str(caught.value).endswith(advice)
