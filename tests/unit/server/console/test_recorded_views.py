"""What is remembered of views is bounded, and a view that is forgotten is recorded again."""

from __future__ import annotations

from fumehood.server.console.recorded_views import RecordedViews


def test_the_views_that_are_longest_ago_make_room() -> None:
    views = RecordedViews()
    kept = ("key:a", "run", "run_0")
    for number in range(10_000):
        views.add(("key:a", "run", f"run_{number}"))
        views.add(kept)
    known = [number for number in range(10_000) if ("key:a", "run", f"run_{number}") in views]
    assert known == [0, *range(10_000 - len(known) + 1, 10_000)]
    assert 1000 < len(known) < 10_000
