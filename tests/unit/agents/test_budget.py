"""Usage is added up field by field, each one of them."""

from __future__ import annotations

from dataclasses import fields

from fumehood.agents import Usage


def test_every_field_of_a_usage_is_added() -> None:
    one = Usage(*range(1, len(fields(Usage)) + 1))
    assert one + one == Usage(*(2 * number for number in range(1, len(fields(Usage)) + 1)))
