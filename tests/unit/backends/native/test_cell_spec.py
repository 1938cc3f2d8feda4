"""What a cell is told follows from the policy and the machine; drawing it changes nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest

from fumehood import Sandbox
from fumehood.backends.interface import PackageFolder
from fumehood.backends.native.cell_spec import build_cell_spec
from fumehood.backends.native.cgroups import Hierarchy
from fumehood.backends.native.host_facts import HostFacts, Interpreter
from fumehood.errors import UsageError
from fumehood.guest.contract.limits import SANDBOX_UID, UID_RANGE
from fumehood.policy import Policy

ALL = (Hierarchy(2, ("memory", "pids", "cpu"), Path("/sys/fs/cgroup")),)
FACTS = HostFacts(
    is_root=True,
    uid=0,
    gid=0,
    cpus=(0, 1, 2, 3),
    hierarchies=ALL,
    swap_is_counted=True,
    landlock_abi=6,
    interpreter=Interpreter("/opt/python/bin/python3.11", "/opt/python", (3, 11)),
)
ROOTLESS = dataclasses.replace(FACTS, is_root=False, uid=1000, gid=1001, hierarchies=())


def test_the_whole_plan_can_be_sent() -> None:
    spec = build_cell_spec(Policy(), FACTS)
    assert json.loads(json.dumps(spec)) == spec


def test_the_system_is_shown_read_only_and_nothing_else_of_the_host() -> None:
    spec = build_cell_spec(Policy(), FACTS)
    shown = {bind["target"]: bind for bind in spec["binds"]}
    assert {bind["mode"] for bind in spec["binds"]} == {"ro"}
    assert {"/usr", "/opt/python"} <= set(shown)
    closed = ("/home", "/root", "/var", "/etc/shadow", "/etc", "/", "/proc", "/sys", "/dev", "/run", "/tmp", "/boot")
    assert not set(shown) & set(closed)
    assert spec["writable"] == {}


def test_of_etc_only_what_belongs_to_programs_in_usr_is_shown() -> None:
    """And uv, under a name of ours."""
    shown = [bind["target"] for bind in build_cell_spec(Policy(), FACTS)["binds"] if bind["target"].startswith("/etc")]
    ours = r"/etc/(ld\.so\.cache|alternatives|java-\d+-openjdk|python/uv)"
    assert shown
    assert [path for path in shown if not re.fullmatch(ours, path)] == []


def test_an_interpreter_below_usr_is_not_shown_twice() -> None:
    interpreter = Interpreter("/usr/bin/python3", "/usr", (3, 11))
    spec = build_cell_spec(Policy(), dataclasses.replace(FACTS, interpreter=interpreter))
    assert [bind["target"] for bind in spec["binds"]].count("/usr") == 1


def test_every_folder_of_the_system_is_a_bind_or_a_link() -> None:
    spec = build_cell_spec(Policy(), FACTS)
    shown = {bind["target"] for bind in spec["binds"]} | set(spec["symlinks"])
    for name in ("/bin", "/lib", "/lib64", "/sbin"):
        assert (name in shown) == os.path.exists(name)


def test_packages_of_the_hosts_interpreter_are_hidden(tmp_path: Path) -> None:
    packages = tmp_path / "lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    interpreter = Interpreter(f"{tmp_path}/bin/python3", str(tmp_path), (3, 11))
    spec = build_cell_spec(Policy(), dataclasses.replace(FACTS, interpreter=interpreter))
    assert spec["covered"] == {str(packages): "/etc/python/site-packages"}


def test_every_cell_of_a_root_host_has_uids_of_its_own() -> None:
    bases = [build_cell_spec(Policy(), FACTS)["uid_base"] for _ in range(50)]
    assert len(set(bases)) > 45
    assert all(base >= 1_000_000_000 and base + UID_RANGE < 2**32 - 2 for base in bases)
    assert len({base % UID_RANGE for base in bases}) == 1  # ranges are the same or apart, never overlapping


def test_a_rootless_plan_names_the_user() -> None:
    spec = build_cell_spec(Policy(), ROOTLESS)
    assert (spec["rootless"], spec["host_uid"], spec["host_gid"]) == (True, 1000, 1001)


def test_mounts_become_binds_that_belong_to_the_sandboxs_user(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    policy = Policy(
        filesystem={
            "mounts": [
                {"source": str(tmp_path / "link"), "target": "/in"},
                {"source": str(tmp_path), "target": "/out", "mode": "rw"},
            ]
        }
    )
    spec = build_cell_spec(policy, FACTS)
    owner = spec["uid_base"] + SANDBOX_UID
    assert spec["binds"][-2:] == [
        {"source": str((tmp_path / "real").resolve()), "target": "/in", "mode": "ro", "executes": True, "owner": owner},
        {"source": str(tmp_path.resolve()), "target": "/out", "mode": "rw", "executes": True, "owner": owner},
    ]
    assert spec["writable"] == {"/out": False}
    assert build_cell_spec(policy, ROOTLESS)["binds"][-1]["owner"] is None


@pytest.mark.parametrize("name", ["missing", "loop", "file/below"])
def test_a_mount_source_that_cannot_be_used_is_the_callers_mistake(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    policy = Policy(filesystem={"mounts": [{"source": str(tmp_path / name), "target": "/in"}]})
    with pytest.raises(UsageError, match=f"mount source '{tmp_path / name}' cannot be used: .*Check the path"):
        build_cell_spec(policy, FACTS)


def test_limits_are_the_policys() -> None:
    policy = Policy(
        resources={
            "memory": "64M",
            "cpus": 0.5,
            "processes": 7,
            "disk": "3M",
            "inodes": 99,
            "open_files": 33,
            "cpu_time": 2,
        },
        filesystem={"workspace": {"size": "5M"}},
    )
    limits = build_cell_spec(policy, FACTS)["limits"]
    assert limits == {
        "memory_bytes": 64 * 1024**2,
        "cpus": 0.5,
        "processes": 7,
        "disk_bytes": 3 * 1024**2,
        "workspace_bytes": 5 * 1024**2,
        "inodes": 99,
        "open_files": 33,
        "cpu_seconds": 2.0,
        "address_space_bytes": None,
        "affinity": None,
    }


def test_without_a_size_the_workspace_is_as_large_as_the_disk() -> None:
    assert build_cell_spec(Policy(resources={"disk": "3M"}), FACTS)["limits"]["workspace_bytes"] == 3 * 1024**2


@pytest.mark.parametrize(
    ("cpus", "affinity"), [(1, [0]), (2, [0, 1]), (4, [0, 1, 2, 3]), (100, [0, 1, 2, 3]), (4.5, [0, 1, 2, 3])]
)
def test_without_cgroups_limits_fall_back_to_address_space_and_affinity(cpus: float, affinity: list[int]) -> None:
    limits = build_cell_spec(Policy(resources={"cpus": cpus, "memory": "64M"}), ROOTLESS)["limits"]
    assert (limits["address_space_bytes"], limits["affinity"]) == (64 * 1024**2, affinity)


def test_the_environment_is_small_and_finds_the_interpreter_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SECRET_OF_THE_HOST", "PYTHONPATH", "LD_PRELOAD"):
        monkeypatch.setenv(name, "x")
    environment = build_cell_spec(Policy(), FACTS)["environment"]
    assert environment["PATH"].split(":")[0] == "/etc/python/bin"
    assert (environment["HOME"], environment["TMPDIR"]) == ("/workspace", "/tmp")
    assert len(environment) < 20
    assert not set(environment) & {"SECRET_OF_THE_HOST", "PYTHONPATH", "LD_PRELOAD"}


def test_preloaded_modules_of_the_policy_come_after_the_usual_ones() -> None:
    preload = build_cell_spec(Policy(environment={"preload": ["decimal", "statistics"]}), FACTS)["preload"]
    assert preload[-2:] == ["decimal", "statistics"]


def test_drawing_twice_gives_plans_that_do_not_share_what_can_change() -> None:
    first, second = build_cell_spec(Policy(), FACTS), build_cell_spec(Policy(), FACTS)
    first["symlinks"]["/x"] = "y"
    first["preload"].append("x")
    first["environment"]["X"] = "y"
    assert "/x" not in second["symlinks"]
    assert "x" not in second["preload"]
    assert "X" not in second["environment"]


def test_packages_are_shown_read_only_and_found_by_the_program_and_what_it_starts() -> None:
    spec = build_cell_spec(Policy(), FACTS, PackageFolder("/cache/packages", "sha256:abc"))
    expected = {
        "source": "/cache/packages",
        "target": "/opt/environment",
        "mode": "ro",
        "executes": True,
        "owner": None,
    }
    assert expected in spec["binds"]
    assert spec["module_path"] == ["/opt/environment"]
    assert spec["environment"]["PYTHONPATH"] == "/opt/environment"
    assert spec["environment"]["PATH"].startswith("/opt/environment/bin:")


@pytest.mark.parametrize("target", ["/opt", "/opt/environment", "/opt/environment/six"])
def test_a_mount_over_packages_is_refused(tmp_path: Path, target: str) -> None:
    policy = Policy(filesystem={"mounts": [{"source": str(tmp_path), "target": target}]})
    assert build_cell_spec(policy, FACTS)
    with pytest.raises(UsageError, match="would cover the packages"):
        build_cell_spec(policy, FACTS, PackageFolder("/cache/packages", "sha256:abc"))


def test_the_workspace_has_a_second_name_unless_something_of_the_host_lies_there(tmp_path: Path) -> None:
    assert build_cell_spec(Policy(), FACTS)["symlinks"]["/home/user"] == "../workspace"
    for target in ("/home", "/home/user", "/home/user/data"):
        policy = Policy(filesystem={"mounts": [{"source": str(tmp_path), "target": target}]})
        assert "/home/user" not in build_cell_spec(policy, FACTS)["symlinks"]


def test_programs_find_the_workspace_by_its_second_name() -> None:
    with Sandbox(Policy()) as box:
        code = "cd /home/user && echo x > made && pwd && ls /workspace && rm -rf /home/user; ls /home"
        done = box.run(code, language="sh")
    assert done.stdout == "/home/user\nmade\nuser\n"
