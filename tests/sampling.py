"""Which parameters of a test run where. Every test runs on every backend that it concerns.

The native backend runs with all of them. Elsewhere most parameters repeat a mechanism that the first has shown already.
On containers, at a server (remote), and in the second run as an ordinary user (PARAMETERS=first), a test runs with the
first of its parameters and the first of those that differences.py names. `@pytest.mark.every_parameter` keeps them all,
for tests in which each parameter meets another mechanism. `@pytest.mark.one_container` is for tests of what the host
does, with the same code for docker and gVisor: they run on docker. Sessions with IPython repeat what those with the
plain shell have shown, and take the first parameter likewise. PARAMETERS=all (`make test-all`) leaves nothing out.

Tests that try many times, at random or against a clock, try fewer times than `make test-all` (`amount`).
"""

from __future__ import annotations

import os

import differences
import engine
import pytest


def amount(sample: int, *, whole: int) -> int:
    """How much of something that is tried many times: `whole` in `make test-all`."""
    return whole if is_whole() else sample


def is_whole() -> bool:
    return _extent() == "all"


def functions_on_native(items: list[pytest.Item]) -> set[str]:
    """Those that run with all their parameters somewhere: on the native backend, or with the plain shell."""
    return {_function(item) for item in items if differences.backend_of(item) == "native" or _shell(item) == "plain"}


def deselect(config: pytest.Config, items: list[pytest.Item], on_native: set[str]) -> None:
    extent = _extent()
    seen: set[tuple[object, ...]] = set()
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        is_sampled = extent != "all" and (extent == "first" or _repeats(item, on_native)) and not _keeps_all(item)
        is_repeated = _is_of_host(item) and extent != "all"
        (dropped if is_repeated or (is_sampled and _kind(item) in seen) else kept).append(item)
        seen.add(_kind(item))
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def _extent() -> str:
    extent = os.environ.get("PARAMETERS", "")
    if extent not in ("", "first", "all"):
        raise pytest.UsageError(f"PARAMETERS={extent} is neither 'first' nor 'all'")
    return extent


def _repeats(item: pytest.Item, on_native: set[str]) -> bool:
    """On containers what the native backend has shown; gVisor is slow under an engine of the tests' own, and always."""
    backend = differences.backend_of(item)
    is_second = backend in (*engine.BACKENDS, "remote") or _shell(item) == "ipython"
    return backend == "gvisor" or (is_second and _function(item) in on_native)


def _shell(item: pytest.Item) -> str:
    """Of a session, where it has one or the other."""
    return differences.parameter_of(item, "session")


def _keeps_all(item: pytest.Item) -> bool:
    return differences.backend_of(item) != "gvisor" and item.get_closest_marker("every_parameter") is not None


def _is_of_host(item: pytest.Item) -> bool:
    return differences.backend_of(item) == "gvisor" and item.get_closest_marker("one_container") is not None


def _kind(item: pytest.Item) -> tuple[object, ...]:
    """Equal for the parameters of one test on one backend that are expected to end alike."""
    return (_function(item), differences.backend_of(item), _shell(item), item.get_closest_marker("xfail") is not None)


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
