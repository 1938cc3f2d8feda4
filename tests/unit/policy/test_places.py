"""What rulings believe every sandbox to show is what the native backend builds."""

from __future__ import annotations

import pytest

from fumehood.backends.native.cell_spec import build_cell_spec
from fumehood.backends.native.host_facts import detect
from fumehood.guest.contract.cell_spec import CellSpec
from fumehood.guest.isolation import rootfs
from fumehood.policy import Policy
from fumehood.policy.decisions import Judge, files
from fumehood.policy.paths import SYSTEM_PATHS


@pytest.fixture(scope="module")
def cell_spec() -> CellSpec:
    return build_cell_spec(Policy(), detect())


def test_every_file_and_link_of_the_root_may_be_read(cell_spec: CellSpec) -> None:
    judge = Judge(Policy())
    shown = [*cell_spec["files"], *cell_spec["symlinks"], *cell_spec["folders"]]
    shown += [bind["target"] for bind in cell_spec["binds"]]
    assert [path for path in shown if not judge.decide("read", path).allowed] == []


def test_nothing_of_the_root_may_be_written(cell_spec: CellSpec) -> None:
    judge = Judge(Policy())
    fixed = [*cell_spec["files"], *(bind["target"] for bind in cell_spec["binds"])]
    assert [path for path in fixed if judge.decide("write", path).allowed] == []


def test_everything_that_is_covered_in_proc_is_closed() -> None:
    assert [path for path, _ in rootfs.proc_masks() if not files.is_covered(path)] == []


def test_a_mount_can_never_open_what_is_closed_for_good() -> None:
    """Where no change is offered, the policy would refuse one."""
    judge = Judge(Policy())
    for path in (f"{owned}/nothing/of/ours" for owned in SYSTEM_PATHS):
        decision = judge.decide("write", path)
        assert decision.allowed or decision.fix == ""
