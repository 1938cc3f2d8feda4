"""Which parameters of a test run where. Every test runs on every backend that it concerns.

The native backend runs with all of them. Elsewhere most parameters repeat a mechanism that the first has shown already.
On containers, elsewhere, and in the second run as an ordinary user (PARAMETERS=first), a test runs with the
first of its parameters and the first of those that differences.py names. `@pytest.mark.every_parameter` keeps them all,
for tests in which each parameter meets another mechanism. `@pytest.mark.one_container` is for tests of what the host
does, with the same code for docker and gVisor: they run on docker. Sessions with IPython repeat what those with the
plain shell have shown, and take the first parameter likewise; so does `hood run` by a keeper, after that by the process
itself. The second run leaves out sandboxes at a server, which are native ones. An adapter for a framework has no code
for a backend: `@pytest.mark.adapter` names those of its tests that run in containers too.
A machine of its own runs a few tests (`ON_MACHINES`), with their first parameters.
`@pytest.mark.some_parameters` is for long lists of programs that all show one mechanism: every fourth of them runs.
PARAMETERS=all (`make test-all`) leaves nothing out.

Tests that try many times, at random or against a clock, try fewer times than `make test-all` (`amount`).
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TypeVar

import differences
import engine
import machines
import pytest

ONE_IN = 4
# Of the contract and of the attacks, in `make test`; `make test-all` has all of them.
ON_MACHINES = frozenset(
    {
        "test_the_workspace_is_shared_by_the_runs_of_a_sandbox",
        "test_an_exit_is_told_with_its_code",
        "test_processes_left_behind_do_not_hold_up_the_end",
        "test_a_program_that_is_out_of_time_as_it_begins_is_told_so_and_goes_no_further",
        "test_what_is_written_a_program_reads_and_the_other_way_round",
        "test_a_limit_on_processes_is_each_runs_own",
        "test_state_lives_on_between_runs",
        "test_http_goes_out",
        "test_what_no_rule_allows_is_refused_at_once_and_told",
        "test_packages_come_beside_those_of_the_policy",
        "test_a_host_file_cannot_be_read",
        "test_the_machine_cannot_be_administered_by",
        "test_there_is_no_route_to",
        "test_only_own_processes_are_in_proc",
        "test_process_1_keeps_to_itself_its",
    }
)
Amount = TypeVar("Amount", int, float)


def amount(sample: Amount, *, whole: Amount) -> Amount:
    """How much of something that is tried many times: `whole` in `make test-all`."""
    return whole if is_whole() else sample


def is_whole() -> bool:
    return _extent() == "all"


def functions_on_native(items: list[pytest.Item]) -> set[str]:
    """Those that run with all their parameters somewhere: on the native backend, with the plain shell, or plainly."""
    return {_function(item) for item in items if differences.backend_of(item) == "native" or _way(item) == "plain"}


def deselect(config: pytest.Config, items: list[pytest.Item], on_native: set[str]) -> None:
    extent = _extent()
    seen: Counter[tuple[object, ...]] = Counter()
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        is_sampled = extent != "all" and (extent == "first" or _repeats(item, on_native)) and not _keeps_all(item)
        is_left_out = _is_of_host(item) or _is_of_machines(item) or _is_of_adapter(item) or _is_of_first_run(item)
        is_repeated = extent != "all" and (is_left_out or _is_between(item, seen))
        (dropped if is_repeated or (is_sampled and seen[_kind(item)]) else kept).append(item)
        seen[_kind(item)] += 1
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def _extent() -> str:
    extent = os.environ.get("PARAMETERS", "")
    if extent not in ("", "first", "all"):
        raise pytest.UsageError(f"PARAMETERS={extent} is neither 'first' nor 'all'")
    return extent


def _is_of_machines(item: pytest.Item) -> bool:
    """A machine whose processor is software is slow: some tests show that the contract holds there."""
    return differences.backend_of(item) == machines.BACKEND and _function(item).rpartition("::")[2] not in ON_MACHINES


def _repeats(item: pytest.Item, on_native: set[str]) -> bool:
    """On containers what the native backend has shown; gVisor is slow under an engine of the tests' own, and always."""
    backend = differences.backend_of(item)
    is_elsewhere = backend in (*engine.BACKENDS, machines.BACKEND, *differences.ELSEWHERE)
    is_second = is_elsewhere or _way(item) in ("ipython", "keeper")
    return backend == "gvisor" or (is_second and _function(item) in on_native)


def _way(item: pytest.Item) -> str:
    """The shell of a session, where it has one or the other, or how `hood run` is done; other tests have other ways."""
    way = differences.parameter_of(item, "way")
    return differences.parameter_of(item, "session") or (way if way in ("plain", "keeper") else "")


def _keeps_all(item: pytest.Item) -> bool:
    return differences.backend_of(item) != "gvisor" and item.get_closest_marker("every_parameter") is not None


def _is_of_host(item: pytest.Item) -> bool:
    return differences.backend_of(item) == "gvisor" and item.get_closest_marker("one_container") is not None


def _is_of_first_run(item: pytest.Item) -> bool:
    """A server's sandboxes are native ones, which the second run has, and its client knows nothing of users."""
    return _extent() == "first" and differences.backend_of(item) == "remote"


def _is_of_adapter(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("adapter")
    backend = differences.backend_of(item) or differences.parameter_of(item, "backend_name")
    return marker is not None and backend in engine.BACKENDS and _function(item).rpartition("::")[2] not in marker.args


def _is_between(item: pytest.Item, seen: Counter[tuple[object, ...]]) -> bool:
    return item.get_closest_marker("some_parameters") is not None and seen[_kind(item)] % ONE_IN != 0


def _kind(item: pytest.Item) -> tuple[object, ...]:
    """Equal for the parameters of one test on one backend that are expected to end alike."""
    return (_function(item), differences.backend_of(item), _way(item), item.get_closest_marker("xfail") is not None)


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
