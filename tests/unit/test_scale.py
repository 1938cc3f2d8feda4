"""examples/scale: the simulation of a fleet, small and with a fixed seed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "scale"


@pytest.fixture(scope="module")
def fleet() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FOLDER))
    try:
        import fleet

        yield fleet
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("fleet", "figures"):
            sys.modules.pop(name, None)


def simulate(fleet: ModuleType, *, flood: float = 0, **options: object) -> Any:
    load = replace(fleet.Load(), flood=flood)
    figures = fleet.Figures(run_cpu_seconds=0.02, open_seconds=0.01, cold_seconds=0.05, session_mib=4, cell_mib=8)
    return fleet.Simulation(load, fleet.Fleet(**options), figures, scale=0.15, seconds=200, seed=1).run()


def test_the_figures_are_those_of_the_table(fleet: ModuleType, tmp_path: Path) -> None:
    from figures import read_figures

    figures = read_figures()
    assert 0.001 < figures.run_cpu_seconds < 0.1
    assert 0 < figures.cold_seconds < 1
    table = tmp_path / "performance.md"
    table.write_text("| what | Fumehood |\n|---|---|\n| start and end a session | quick |\n")
    with pytest.raises(SystemExit, match="has not exactly one row"):
        read_figures(table)


def test_a_home_for_each_policy_has_fewer_cold_openings_than_chance(fleet: ModuleType) -> None:
    homes, chance = simulate(fleet, placement="home"), simulate(fleet, placement="random")
    assert homes.cold < chance.cold
    assert homes.opened > 500


def test_the_same_seed_gives_the_same_day(fleet: ModuleType) -> None:
    assert simulate(fleet) == simulate(fleet)


def test_fair_queues_keep_a_flood_from_the_other_tenants(fleet: ModuleType) -> None:
    fair = simulate(fleet, flood=40, queue="fair", hosts=6)
    one = simulate(fleet, flood=40, queue="first-come", hosts=6)
    assert fair.other_wait_p999 < one.other_wait_p999 / 5


def test_an_unknown_placement_is_refused_by_its_name(fleet: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no placement 'nearest'"):
        simulate(fleet, placement="nearest")
