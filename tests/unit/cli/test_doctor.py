"""What a diagnosis means, which command mends what, and how it looks on 80 columns."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from fumehood.backends.native.doctor import Diagnosis, MechanismCheck, MechanismState
from fumehood.backends.native.doctor.cgroups import explain_absence, version_of
from fumehood.backends.native.doctor.checks import AFTER_CGROUPS, BEFORE_CGROUPS, judge
from fumehood.backends.native.doctor.diagnosis import KernelSettings, explain, read_settings
from fumehood.cli import doctor
from fumehood.cli.doctor import SmokeTest
from fumehood.guest.probe import PROBES, ProbeAnswer

PLAIN = KernelSettings(
    sysctls={}, in_container=False, is_root=False, has_all_users=True, interpreter="/usr/bin/python3.12"
)
REFUSED: ProbeAnswer = {"errno": errno.EPERM, "error": "Operation not permitted"}
WORKING: dict[str, ProbeAnswer] = {name: {"value": 7} for name in PROBES}


def settings(**sysctls: str) -> KernelSettings:
    return replace(PLAIN, sysctls={name.replace("__", "."): value for name, value in sysctls.items()})


def test_every_probe_has_a_meaning() -> None:
    assert {m.name for m in (*BEFORE_CGROUPS, *AFTER_CGROUPS)} == set(PROBES)


@pytest.mark.parametrize(
    ("found", "fix"),
    [
        (
            settings(kernel__apparmor_restrict_unprivileged_userns="1"),
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (settings(kernel__unprivileged_userns_clone="0"), "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        (settings(user__max_user_namespaces="0"), "sudo sysctl -w user.max_user_namespaces=15000"),
        (replace(PLAIN, in_container=True), "docker run --security-opt seccomp=unconfined"),
        (replace(PLAIN, is_root=True, has_all_users=False), "setpriv --reuid 1000"),
    ],
)
def test_what_stands_in_the_way_of_user_namespaces_is_found_and_mended(found: KernelSettings, fix: str) -> None:
    assert explain("user namespaces", REFUSED, found).fixes[0].startswith(fix)


@pytest.mark.parametrize("mechanism", ["user namespaces", "mount namespace", "fresh /proc"])
def test_in_a_container_one_command_has_all_that_is_needed(mechanism: str) -> None:
    """The next wall shows only when the first is gone."""
    (fix,) = explain(mechanism, REFUSED, replace(PLAIN, in_container=True)).fixes
    assert all(f"{name}=unconfined" in fix for name in ("seccomp", "apparmor", "systempaths"))


def test_apparmor_can_be_told_to_trust_one_interpreter() -> None:
    remedy = explain("mount namespace", REFUSED, settings(kernel__apparmor_restrict_unprivileged_userns="1"))
    assert "/usr/bin/python3.12" in remedy.fixes[1]
    assert remedy.fixes[1].endswith("sudo apparmor_parser -r /etc/apparmor.d/fumehood")


def test_switches_for_ordinary_users_do_not_concern_root() -> None:
    found = replace(settings(kernel__apparmor_restrict_unprivileged_userns="1"), is_root=True)
    assert explain("user namespaces", REFUSED, found).fixes == ()


def test_an_old_kernel_is_called_old() -> None:
    remedy = explain("mount attributes", {"errno": errno.ENOSYS, "error": "mount_setattr: not implemented"}, PLAIN)
    assert "Linux 5.12" in remedy.reason


def test_settings_are_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "sys/user").mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "sys/user/max_user_namespaces").write_text("0\n")
    (tmp_path / "self/uid_map").write_text("         0       1000          1\n")
    found = read_settings(is_root=True, interpreter="python", proc=tmp_path)
    assert found.sysctls == {"user.max_user_namespaces": "0"}
    assert not found.has_all_users


def test_without_landlock_the_rest_still_works() -> None:
    checks = judge(BEFORE_CGROUPS, {**WORKING, "Landlock": {"value": 0}}, PLAIN, is_root=True)
    conditions = {check.name: check.condition for check in checks}
    assert conditions.pop("Landlock") is MechanismState.WEAKER
    assert set(conditions.values()) == {MechanismState.WORKS}


def test_what_only_lacks_user_namespaces_says_so() -> None:
    answers: dict[str, ProbeAnswer] = dict.fromkeys(PROBES, REFUSED)
    checks = {c.name: c for c in judge(BEFORE_CGROUPS, answers, settings(user__max_user_namespaces="0"), is_root=True)}
    assert checks["user namespaces"].fixes
    assert checks["network namespace"].detail == "needs user namespaces"


def test_id_mapped_mounts_are_not_needed_by_an_ordinary_user() -> None:
    answers: dict[str, ProbeAnswer] = {**WORKING, "id-mapped mounts": REFUSED}
    checks = {c.name: c.condition for c in judge(BEFORE_CGROUPS, answers, PLAIN, is_root=False)}
    assert checks["id-mapped mounts"] is MechanismState.UNUSED


@pytest.mark.parametrize(
    ("version", "is_root", "words"),
    [(1, False, "only root"), (2, False, "not ours to divide"), (2, True, "read-only"), (None, True, "no cgroup tree")],
)
def test_the_absence_of_a_controller_has_a_reason(version: int | None, is_root: bool, words: str) -> None:
    assert words in explain_absence("memory", version, is_root=is_root).reason  # type: ignore[arg-type]


def test_the_version_of_a_controller_is_that_of_its_tree(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory\n")
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(
        "30 29 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
        f"31 29 0:27 / {tmp_path} rw - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    assert [version_of(name, mountinfo) for name in ("pids", "memory", "hugetlb")] == [1, 2, None]


BAD_NEWS = (
    MechanismCheck(
        "user namespaces",
        MechanismState.MISSING,
        "users of its own",
        "a reason of many words " * 9,
        ("sudo a", "sudo b"),
    ),
    MechanismCheck("mount namespace", MechanismState.MISSING, "files of its own", "needs user namespaces"),
    MechanismCheck("memory cgroup", MechanismState.WEAKER, "one limit for all", "\x1b[2J " * 20, ("sudo a", "sudo b")),
    MechanismCheck("pidfd", MechanismState.WORKS, "signals"),
)


def test_a_diagnosis_fits_80_columns_and_names_each_fix_once() -> None:
    lines = list(doctor._lines(Diagnosis("Linux", "root", BAD_NEWS), SmokeTest(False, "it broke " * 20), []))
    assert all(len(line) <= 80 and line.isprintable() for line in lines)
    assert sum("sudo a" in line for line in lines) == 1
    assert "           fix: as for user namespaces" in lines
    assert "  missing  mount namespace    files of its own (needs user namespaces)" in lines
    assert lines[-1] == "Sandboxes do not work here."


def test_purposes_leave_room_for_their_remarks() -> None:
    checks = judge((*BEFORE_CGROUPS, *AFTER_CGROUPS), WORKING, PLAIN, is_root=False)
    lines = [line for check in checks for line in doctor._check_lines(check)]
    assert len(lines) == len(PROBES)
    assert max(map(len, lines)) <= 80
