"""Every option becomes a part of the policy, or is refused by its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fumehood import Policy, UsageError
from fumehood.integrations.autogen import DockerCommandLineCodeExecutor, OptionError, SandboxCodeExecutor
from fumehood.policy import Mount

MIB = 1024 * 1024
RULE = {"host": "example.org", "ports": [443]}


def policy_of(**options: Any) -> Policy:
    return SandboxCodeExecutor(**options).policy


def changed(**options: Any) -> dict[str, Any]:
    """What differs from an executor without options."""
    return policy_of(**options).model_dump(exclude_defaults=True)


def resources(**limits: float) -> dict[str, Any]:
    return {"resources": {"timeout": 60.0, **limits}}


def test_without_options_everything_is_denied_for_a_minute() -> None:
    assert policy_of() == Policy(resources={"timeout": 60})


ENFORCED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "timeout": ({"timeout": 15}, resources(timeout=15.0)),
    "mem_limit": ({"mem_limit": "256m"}, resources(memory=256 * MIB)),
    "mem_limit in bytes": ({"mem_limit": 256 * MIB}, resources(memory=256 * MIB)),
    "memswap_limit": ({"mem_limit": "256m", "memswap_limit": "256m"}, resources(memory=256 * MIB)),
    "cpu_quota": ({"cpu_quota": 50_000}, resources(cpus=0.5)),
    "cpu_period": ({"cpu_period": 50_000, "cpu_quota": 100_000}, resources(cpus=2.0)),
    "nano_cpus": ({"nano_cpus": 500_000_000}, resources(cpus=0.5)),
    "pids_limit": ({"pids_limit": 16}, resources(processes=16)),
    "ulimits": ({"ulimits": [{"Name": "nofile", "Soft": 64, "Hard": 128}]}, resources(open_files=64)),
    "ulimits in words": ({"ulimits": ["nofile=64", "nproc=9", "core=0"]}, resources(open_files=64, processes=9)),
    "ulimits by name": ({"ulimits": {"cpu": 5}}, resources(cpu_time=5.0)),
    "tmpfs": (
        {"tmpfs": {"/tmp": "size=64m,nosuid"}},
        {**resources(disk=64 * MIB), "filesystem": {"workspace": {"size": 256 * MIB}}},
    ),
    "container_name": ({"container_name": "analyst"}, {"name": "analyst", **resources()}),
    "image": ({"image": "python:3-slim"}, {"image": "python:3-slim", "backend": "docker", **resources()}),
    "image on gvisor": ({"image": "a", "backend": "gvisor"}, {"image": "a", "backend": "gvisor", **resources()}),
    "backend": ({"backend": "native"}, {"backend": "native", **resources()}),
    "extra_docker_args": ({"extra_docker_args": {"pids-limit": 16, "network": "none"}}, resources(processes=16)),
    "extra_docker_args in words": (
        {"extra_docker_args": ["--pids-limit=16", "--memory=64m", "--cpus=0.5", "--read-only", "--cap-drop=ALL"]},
        resources(processes=16, memory=64 * MIB, cpus=0.5),
    ),
}


@pytest.mark.parametrize(("options", "expected"), ENFORCED.values(), ids=ENFORCED.keys())
def test_an_option_is_in_the_policy(options: dict[str, Any], expected: dict[str, Any]) -> None:
    assert changed(**options) == expected


ALWAYS_SO: list[dict[str, Any]] = [
    {"network_disabled": True},
    {"network_mode": "none"},
    {"read_only": True},
    {"remove": True, "auto_remove": True, "stop_container": True, "init": True},
    {"user": "sandbox"},
    {"user": "nobody"},
    {"privileged": False},
    {"cap_drop": ["ALL"]},
    {"security_opt": ["no-new-privileges:true"]},
    {"ipc_mode": "private"},
    {"device_requests": [], "extra_hosts": {}, "cap_add": None, "volumes": {}},
    {"work_dir": "/workspace"},
]


@pytest.mark.parametrize("options", ALWAYS_SO, ids=lambda options: ",".join(options))
def test_what_always_holds_may_be_asked_for(options: dict[str, Any]) -> None:
    assert policy_of(**options) == policy_of()


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("network_disabled", {"network_disabled": False}, "unless a policy names the hosts"),
    ("network_disabled", {"network_disabled": "false"}, "must be True or False"),
    ("network", {"network": "bridge"}, "use 'none', or rules in a policy"),
    ("extra_docker_args.network", {"extra_docker_args": {"network": "host"}}, "use 'none', or rules in a policy"),
    ("extra_docker_args.--privileged", {"extra_docker_args": ["--privileged"]}, "privileges"),
    ("extra_docker_args.pid", {"extra_docker_args": {"pid": "host"}}, "not an option that can be enforced"),
    ("extra_docker_args", {"extra_docker_args": ["-it"]}, "must be written as --name=value"),
    ("read_only", {"read_only": False}, "always read-only"),
    ("auto_remove", {"auto_remove": False}, "always removed"),
    ("remove", {"remove": False}, "always removed"),
    ("stop_container", {"stop_container": False}, "never outlives"),
    ("user", {"user": "root"}, "nothing in a sandbox is root"),
    ("user", {"user": "0:0"}, "nothing in a sandbox is root"),
    ("user", {"user": 0}, "nothing in a sandbox is root"),
    ("user", {"user": "1234"}, "use 'sandbox' or 'nobody'"),
    ("image", {"image": "python:3-slim", "backend": "native"}, "needs a backend with containers"),
    ("image", {"image": "--privileged"}, "must be a name such as"),
    ("backend", {"backend": "podman"}, "podman"),
    ("privileged", {"privileged": True}, "nothing in a sandbox has privileges"),
    ("cap_add", {"cap_add": ["SYS_ADMIN"]}, "no capabilities"),
    ("security_opt", {"security_opt": ["seccomp=unconfined"]}, "'seccomp=unconfined' is not supported"),
    ("security_opt", {"security_opt": ["no-new-privileges:false"]}, "is not supported"),
    ("device_requests", {"device_requests": [{"Count": -1}]}, "no devices"),
    ("extra_hosts", {"extra_hosts": {"db": "10.0.0.1"}}, "no network"),
    ("ipc_mode", {"ipc_mode": "host"}, "would share"),
    ("timeout", {"timeout": 0}, "a duration goes from"),
    ("timeout", {"timeout": "soon"}, "a duration goes from"),
    ("mem_limit", {"mem_limit": "lots"}, "a size is"),
    ("mem_limit", {"mem_limit": "1m"}, "must be from 16M"),
    ("memswap_limit", {"mem_limit": "64m", "memswap_limit": "128m"}, "together with swap"),
    ("cpu_period", {"cpu_period": 100_000}, "has no effect without cpu_quota"),
    ("cpu_quota", {"cpu_quota": -1}, "everything has a limit"),
    ("pids_limit", {"pids_limit": -1}, "everything has a limit"),
    ("ulimits.memlock", {"ulimits": ["memlock=64"]}, "cannot be limited"),
    ("ulimits.nofile", {"ulimits": [{"Name": "nofile", "Soft": -1, "Hard": -1}]}, "everything has a limit"),
    ("cpu_quota", {"cpu_quota": 50_000, "extra_docker_args": {"cpus": 2}}, r"contradicts extra_docker_args\.cpus"),
    ("tmpfs", {"tmpfs": {"/var": "size=1m"}}, "'/var' is not supported"),
    ("tmpfs", {"tmpfs": {"/tmp": "noexec"}}, "'noexec' is not supported"),
    ("environment", {"environment": ["HOME"]}, "variable of the host;"),
    ("bind_dir", {"work_dir": "/srv/a", "bind_dir": "/srv/b"}, "is not work_dir"),
    ("work_dir", {"work_dir": "/workspace", "bind_dir": "/srv/b"}, "the sandbox's own"),
    ("work_dir", {"work_dir": "/etc"}, "the host's configuration"),
    ("volumes['data']", {"volumes": {"data": {"bind": "/data"}}}, "a volume that Docker keeps"),
    ("volumes['/srv']", {"volumes": {"/srv": {"bind": "/proc/x"}}}, "is inside /proc"),
    ("volumes['/srv']", {"volumes": {"/srv": {"bind": "/workspace"}}}, "is inside /workspace"),
    ("volumes['/srv']", {"volumes": {"/srv": {"bind": "/data", "mode": "z"}}}, "it is ro or rw"),
    ("volumes['/srv']", {"volumes": {"/srv": {"bind": "/data", "propagation": "shared"}}}, "cannot be enforced"),
    ("extra_volumes['/']", {"extra_volumes": {"/": {"bind": "/host", "mode": "ro"}}}, "the whole host"),
    ("volumes['/']", {"volumes": {"/": {"bind": "//host"}}}, "the whole host"),
    ("volumes['/run/docker.sock:/x']", {"volumes": ["/run/docker.sock:/x"]}, "root on the host"),
    ("functions_module", {"functions_module": "no module"}, "cannot be the name"),
    ("mem_limt", {"mem_limt": "64m"}, "try mem_limit"),
    ("runtime", {"runtime": "runsc"}, "not an option that can be enforced"),
    ("container_name", {"container_name": "a\nb"}, "control"),
]


@pytest.mark.parametrize(("option", "options", "words"), REFUSED, ids=lambda part: str(part)[:40])
def test_what_cannot_be_enforced_is_refused_by_name(option: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        SandboxCodeExecutor(**options)
    assert caught.value.option == option
    assert str(caught.value).startswith(f"{option}: ")
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, UsageError)


def test_volumes_are_mounts_and_read_only_unless_they_say_otherwise(tmp_path: Path) -> None:
    volumes = {tmp_path / "a": {"bind": "/a"}, tmp_path / "b": {"bind": "/b", "mode": "rw"}}
    mounts = policy_of(volumes=volumes, extra_volumes=[f"{tmp_path}/c:/c:ro"]).filesystem.mounts
    assert [(mount.source, mount.target, mount.mode) for mount in mounts] == [
        (f"{tmp_path}/a", "/a", "ro"),
        (f"{tmp_path}/b", "/b", "rw"),
        (f"{tmp_path}/c", "/c", "ro"),
    ]


def test_a_link_to_a_dangerous_place_is_seen_through(tmp_path: Path) -> None:
    (tmp_path / "innocent").symlink_to("/etc")
    with pytest.raises(OptionError, match="the host's configuration"):
        SandboxCodeExecutor(volumes={tmp_path / "innocent": {"bind": "/data"}})


def test_a_work_dir_is_a_mount_that_can_be_written(tmp_path: Path) -> None:
    for options in ({"work_dir": tmp_path}, {"bind_dir": str(tmp_path)}, {"work_dir": tmp_path, "bind_dir": tmp_path}):
        executor = SandboxCodeExecutor(**options)
        assert executor.policy.filesystem.mounts == (Mount(source=str(tmp_path), target="/work", mode="rw"),)
        assert executor.work_dir == tmp_path


def test_making_an_executor_changes_nothing_on_the_host(tmp_path: Path) -> None:
    SandboxCodeExecutor(work_dir=tmp_path / "later")
    assert list(tmp_path.iterdir()) == []


def test_options_tighten_a_policy(tmp_path: Path) -> None:
    mount = {"source": str(tmp_path), "target": "/data", "mode": "rw"}
    policy = Policy(
        resources={"memory": "256M", "timeout": "5s"}, network={"allow": [RULE]}, filesystem={"mounts": [mount]}
    )
    volumes = {tmp_path: {"bind": "/data", "mode": "ro"}}
    tightened = policy_of(policy=policy, mem_limit="64m", timeout=1, network_disabled=True, volumes=volumes)
    assert tightened == policy.override(
        {
            "resources": {"memory": "64M", "timeout": 1},
            "network": {"allow": []},
            "filesystem": {"mounts": [{**mount, "mode": "ro"}]},
        }
    )
    assert policy_of(policy=policy) == policy
    assert policy_of(policy=policy, network_disabled=False) == policy


def test_a_policy_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("resources: {memory: 64M}\n")
    assert policy_of(policy=tmp_path / "policy.yaml").resources.memory == 64 * MIB


def test_a_policy_may_say_where_the_work_dir_is_seen(tmp_path: Path) -> None:
    policy = Policy(filesystem={"mounts": [{"source": str(tmp_path), "target": "/project", "mode": "rw"}]})
    executor = SandboxCodeExecutor(policy=policy, work_dir=tmp_path)
    assert (executor.policy, executor.work_dir) == (policy, tmp_path)


BEYOND: list[tuple[str, dict[str, Any], str]] = [
    ("mem_limit", {"mem_limit": "1g"}, "1G is more than the policy's resources.memory of 256M"),
    ("timeout", {"timeout": 6}, "6s is more than the policy's resources.timeout of 5s"),
    ("pids_limit", {"pids_limit": 65}, "65 is more than the policy's resources.processes of 64"),
    ("network_disabled", {"network_disabled": False}, "unless a policy names the hosts"),
    ("volumes['/srv']", {"volumes": {"/srv": {"bind": "/data"}}}, "is not in filesystem.mounts"),
    ("volumes['/opt']", {"volumes": {"/opt": {"bind": "/opt", "mode": "rw"}}}, "it needs mode: rw there"),
    ("work_dir", {"work_dir": "/srv/work"}, "is not in filesystem.mounts"),
    ("container_name", {"container_name": "other"}, "contradicts the policy, which has 'named'"),
    ("backend", {"backend": "docker"}, "contradicts the policy, which has 'native'"),
    ("image", {"image": "python:3-slim"}, "needs a backend with containers"),
]


@pytest.mark.parametrize(("option", "options", "words"), BEYOND, ids=lambda part: str(part)[:40])
def test_an_option_beyond_the_policy_is_refused_by_name(option: str, options: dict[str, Any], words: str) -> None:
    policy = Policy(
        name="named",
        backend="native",
        resources={"memory": "256M", "timeout": "5s"},
        filesystem={"mounts": [{"source": os.path.realpath("/opt"), "target": "/opt"}]},
    )
    with pytest.raises(OptionError, match=words) as caught:
        SandboxCodeExecutor(policy=policy, **options)
    assert caught.value.option == option


@pytest.mark.parametrize("given", [True, False], ids=["with a policy", "without"])
def test_an_executor_can_be_stored_and_made_again(given: bool, tmp_path: Path) -> None:
    policy = Policy(resources={"memory": "256M"}, filesystem={"outputs": ["out/**"]}) if given else None
    executor = SandboxCodeExecutor(policy=policy, timeout=5, mem_limit="64m", init_command="true", pids_limit=9)
    stored = executor.dump_component().model_dump_json()
    again = SandboxCodeExecutor.load_component(type(executor.dump_component()).model_validate_json(stored))
    assert (again.policy, again.dump_component()) == (executor.policy, executor.dump_component())


def test_a_stored_executor_of_autogens_needs_only_another_provider() -> None:
    stored = {
        "provider": "fumehood.integrations.autogen.DockerCommandLineCodeExecutor",
        "config": {
            "image": "python:3-slim",
            "container_name": "autogen-code-exec-1",
            "timeout": 60,
            "auto_remove": True,
            "stop_container": True,
            "functions_module": "functions",
            "extra_volumes": {},
            "extra_hosts": {},
            "delete_tmp_files": False,
        },
    }
    executor = DockerCommandLineCodeExecutor.load_component(stored)
    assert (executor.policy.image, executor.policy.backend) == ("python:3-slim", "docker")


def test_functions_are_not_lost_silently_when_an_executor_is_stored() -> None:
    with pytest.raises(OptionError, match="functions: cannot be stored"):
        SandboxCodeExecutor(functions=[test_without_options_everything_is_denied_for_a_minute]).dump_component()
