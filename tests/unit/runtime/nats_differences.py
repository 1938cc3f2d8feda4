"""What differs on NATS from the local runtime, and why. A test that is named here has to fail there."""

from __future__ import annotations

from typing import NamedTuple

import pytest


class Difference(NamedTuple):
    runtimes: tuple[str, ...]
    reason: str
    tests: tuple[str, ...]
    is_certain: bool = True
    """Whether it shows every time."""


DIFFERENCES = (
    Difference(
        ("nats", "distant"),
        "a stream holds publications for which there is no room in a queue, so that publishers need not wait for it",
        (
            "test_a_full_queue_makes_the_publisher_wait_and_nobody_else",
            "test_what_finds_no_room_in_time_is_a_dead_letter_and_the_publisher_goes_on",
            "test_a_storm_is_refused_at_the_limit_and_does_not_stall",
        ),
    ),
    Difference(
        ("nats", "distant"),
        "publications that a process has not taken when it is stopped stay in the stream, for its next start",
        ("test_stopping_without_draining_tells_who_waits_and_keeps_what_was_not_handled",),
        is_certain=False,
    ),
    Difference(
        ("distant",),
        "only the process that is an agent's home can send in its name",
        ("test_the_application_has_an_agents_grants_when_it_sends_in_its_name",),
    ),
    Difference(
        ("distant",),
        "each process records its own start, end and half of a conversation",
        ("test_a_conversation_can_be_followed_from_record_to_record",),
    ),
)


def mark(items: list[pytest.Item]) -> None:
    for difference in DIFFERENCES:
        for item in items:
            if getattr(item, "originalname", "") in difference.tests and _runtime(item) in difference.runtimes:
                item.add_marker(pytest.mark.xfail(reason=difference.reason, strict=difference.is_certain))


def _runtime(item: pytest.Item) -> object:
    return item.callspec.params["make_runtime"]  # type: ignore[attr-defined]
