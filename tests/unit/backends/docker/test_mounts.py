"""Whom programs in a container run as for the sake of its mounts, and which mounts that user may use."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from requirements import require

from fumehood import Policy, UnenforceableError
from fumehood.backends.docker.engine import EngineFacts
from fumehood.backends.docker.mounts import MountFacts, common_owner, keeps_ids, look_at_mounts, refuse_strangers
from fumehood.backends.docker.users import ProgramUser

FOLDER, FILE = stat.S_IFDIR, stat.S_IFREG


def mount(uid: int, gid: int, mode: int = FOLDER | 0o755, *, is_writable: bool = False) -> MountFacts:
    return MountFacts("/host/x", "/data", is_writable, uid, gid, mode)


@pytest.mark.parametrize(
    ("mounts", "owner"),
    [
        ([], None),
        ([mount(1000, 100)], (1000, 100)),
        ([mount(0, 0)], None),
        ([mount(1000, 0)], (1000, 65534)),
        ([mount(1000, 100), mount(1000, 101)], (1000, 65534)),
        ([mount(1000, 100), mount(1001, 100)], None),
        ([mount(0, 0), mount(1000, 100, is_writable=True)], (1000, 100)),
        ([mount(1000, 100), mount(0, 0, is_writable=True)], None),
        ([mount(1, 1, is_writable=True), mount(2, 2, is_writable=True)], None),
    ],
)
def test_programs_are_the_one_owner_of_what_they_may_write_and_never_root(
    mounts: list[MountFacts], owner: tuple[int, int] | None
) -> None:
    assert common_owner(mounts) == owner


@pytest.mark.parametrize(
    ("mode", "is_writable", "user", "expected"),
    [
        (FOLDER | 0o700, True, (1000, 100), True),
        (FOLDER | 0o500, True, (1000, 100), False),
        (FOLDER | 0o077, False, (1000, 100), False),
        (FOLDER | 0o750, False, (1, 100), True),
        (FOLDER | 0o750, True, (1, 100), False),
        (FOLDER | 0o705, False, (1, 100), False),
        (FOLDER | 0o705, False, (1, 1), True),
        (FOLDER | 0o704, False, (1, 1), False),
        (FILE | 0o604, False, (1, 1), True),
        (FILE | 0o604, True, (1, 1), False),
        (FILE | 0o606, True, (1, 1), True),
    ],
)
def test_owner_and_mode_decide_who_may_use_a_mount(
    mode: int, is_writable: bool, user: tuple[int, int], expected: bool
) -> None:
    assert mount(1000, 100, mode, is_writable=is_writable).allows(*user) is expected


def test_a_refusal_says_which_mount_and_which_user_and_what_to_do() -> None:
    with pytest.raises(UnenforceableError) as caught:
        refuse_strangers([mount(0, 0, FOLDER | 0o700, is_writable=True)], "docker", ProgramUser(1000, 1001))
    said = str(caught.value)
    for words in ("'/host/x'", "'/data'", "written by user 1000:1001", "0:0 with mode 700", "`chown -R 1000:1001`"):
        assert words in said
    assert "backend: native" in said


def test_with_an_access_list_only_the_kernel_knows(tmp_path: Path) -> None:
    policy = Policy(filesystem={"mounts": [{"source": str(tmp_path), "target": "/data"}]})
    tmp_path.chmod(0o700)
    (plain,) = look_at_mounts(policy)
    assert (plain.uid, plain.allows(os.geteuid() + 1, 65534)) == (os.geteuid(), False)
    # Version 2; the owner, a user by number, the group, the mask and the others.
    entries = ((1, 7, -1), (2, 5, os.geteuid() + 1), (4, 0, -1), (16, 5, -1), (32, 0, -1))
    packed = b"\2\0\0\0" + b"".join(
        tag.to_bytes(2, "little") + permission.to_bytes(2, "little") + (number & 0xFFFFFFFF).to_bytes(4, "little")
        for tag, permission, number in entries
    )
    try:
        os.setxattr(tmp_path, "system.posix_acl_access", packed)
    except OSError as error:
        require(False, f"the file system of {tmp_path} has no access lists: {error.strerror}")
    assert look_at_mounts(policy)[0].allows(os.geteuid() + 1, 65534)


def test_an_engine_with_ids_of_its_own_is_left_to_judge_itself() -> None:
    facts = EngineFacts(
        "unix:///x", "x86_64", 1, "2", ("runc",), frozenset(), "runc", frozenset(), ("name=seccomp,profile=default",)
    )
    assert keeps_ids(facts)
    assert not keeps_ids(replace(facts, security=("name=seccomp", "name=userns")))
    assert not keeps_ids(replace(facts, security=("name=rootless",)))
    assert not keeps_ids(replace(facts, host="tcp://engine:2376"))
