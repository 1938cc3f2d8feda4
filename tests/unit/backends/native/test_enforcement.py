"""Whether a policy can be enforced is decided from facts about the machine, before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fumehood.backends.interface import PackageFolder
from fumehood.backends.native.cgroups import Hierarchy
from fumehood.backends.native.enforcement import decide
from fumehood.backends.native.host_facts import HostFacts, Interpreter
from fumehood.errors import UnenforceableError
from fumehood.policy import Policy, Resources

V1 = (
    Hierarchy(1, ("memory",), Path("/sys/fs/cgroup/memory")),
    Hierarchy(1, ("pids",), Path("/sys/fs/cgroup/pids")),
    Hierarchy(1, ("cpu",), Path("/sys/fs/cgroup/cpu")),
)
V2 = (Hierarchy(2, ("memory", "pids", "cpu"), Path("/sys/fs/cgroup/user.slice")),)
PIDS_ONLY = (Hierarchy(2, ("pids",), Path("/sys/fs/cgroup/user.slice")),)


def machine(
    hierarchies: tuple[Hierarchy, ...] = V2,
    *,
    is_root: bool = False,
    cpus: int = 4,
    swap_is_counted: bool = True,
    landlock_abi: int = 6,
) -> HostFacts:
    return HostFacts(
        is_root=is_root,
        uid=0 if is_root else 1234,
        gid=0 if is_root else 1234,
        cpus=tuple(range(cpus)),
        hierarchies=hierarchies,
        swap_is_counted=swap_is_counted,
        landlock_abi=landlock_abi,
        interpreter=Interpreter("/usr/bin/python3", "/usr", (3, 11)),
    )


@pytest.mark.parametrize("hierarchies", [V1, V2, (), PIDS_ONLY], ids=["v1", "v2", "none", "pids only"])
def test_the_deny_all_policy_is_always_enforceable_and_every_limit_is_reported(
    hierarchies: tuple[Hierarchy, ...],
) -> None:
    report = decide(Policy(), machine(hierarchies)).mechanisms()
    limits = {f"resources.{name}" for name in Resources.model_fields} - {"resources.cpu_time"}
    assert limits <= set(report)
    assert {"filesystem", "network", "processes", "privileges", "system calls", "environment"} <= set(report)


@pytest.mark.parametrize(
    ("hierarchies", "control", "words"),
    [
        (V1, "resources.memory", "memory cgroup (version 1), swap included"),
        (V2, "resources.memory", "memory cgroup (version 2), swap included"),
        ((), "resources.memory", "RLIMIT_AS, for each process"),
        (PIDS_ONLY, "resources.memory", "RLIMIT_AS, for each process"),
        (V1, "resources.cpus", "cpu cgroup quota (version 1)"),
        (V2, "resources.cpus", "cpu cgroup quota (version 2)"),
        ((), "resources.cpus", "CPU affinity to 1"),
        (V1, "resources.processes", "pids cgroup (version 1), RLIMIT_NPROC"),
        (PIDS_ONLY, "resources.processes", "pids cgroup (version 2), RLIMIT_NPROC"),
        ((), "resources.processes", "RLIMIT_NPROC in the run's own user namespace"),
    ],
)
def test_the_report_names_the_mechanism(hierarchies: tuple[Hierarchy, ...], control: str, words: str) -> None:
    assert decide(Policy(), machine(hierarchies)).mechanisms()[control] == words


def test_the_report_names_the_version_of_landlock() -> None:
    assert "Landlock (version 6)" in decide(Policy(), machine()).mechanisms()["filesystem"]


def test_the_report_says_whose_uid_a_sandbox_has() -> None:
    assert "unprivileged uid range" in decide(Policy(), machine(is_root=True)).mechanisms()["privileges"]
    assert "your own uid 1234" in decide(Policy(), machine()).mechanisms()["privileges"]


@pytest.mark.parametrize(
    ("cpus", "words"), [(2, "CPU affinity to 2"), (4, "this machine has 4"), (64.0, "this machine has 4")]
)
def test_whole_processors_need_no_cgroup(cpus: float, words: str) -> None:
    policy = Policy(resources={"cpus": cpus})
    assert decide(policy, machine(())).mechanisms()["resources.cpus"] == words


@pytest.mark.parametrize("cpus", [0.5, 1.5, 3.99])
def test_a_fraction_of_a_processor_needs_a_cgroup(cpus: float) -> None:
    policy = Policy(resources={"cpus": cpus})
    assert "cpu cgroup quota" in decide(policy, machine(V2)).mechanisms()["resources.cpus"]
    with pytest.raises(UnenforceableError) as caught:
        decide(policy, machine(()))
    text = str(caught.value)
    assert text.startswith(f"resources.cpus: not enforced by backend native: {cpus} of a CPU needs the cpu cgroup")
    assert "Use a whole number." in text
    assert "systemd-run --user --scope -p Delegate=yes" in text


def test_a_port_that_no_program_could_have_is_refused_before_a_run() -> None:
    decide(Policy(network={"publish": [1024]}), machine())
    with pytest.raises(UnenforceableError, match=r"network\.publish.*port 80 is below 1024.*such as 8080"):
        decide(Policy(network={"publish": [8000, 80]}), machine(is_root=True))


def test_a_fraction_above_what_the_machine_has_needs_nothing() -> None:
    assert decide(Policy(resources={"cpus": 8.5}), machine(())).mechanisms()["resources.cpus"] == "this machine has 4"


STRICT_REFUSALS = {
    "no cgroups": (machine(()), {}, "resources.memory", "RLIMIT_AS, for each process"),
    "no memory cgroup": (machine(PIDS_ONLY), {}, "resources.memory", "RLIMIT_AS"),
    "swap is not counted": (machine(V1, swap_is_counted=False), {}, "resources.memory", "without swap"),
    "no Landlock": (machine(V2, landlock_abi=0), {}, "filesystem", "no Landlock behind it"),
    "CPU time for each process": (
        machine(V2),
        {"cpu_time": "5s"},
        "resources.cpu_time",
        "RLIMIT_CPU, for each process",
    ),
}


@pytest.mark.parametrize(
    ("facts", "resources", "control", "words"), STRICT_REFUSALS.values(), ids=STRICT_REFUSALS.keys()
)
def test_a_strict_policy_refuses_what_is_only_partly_enforced(
    facts: HostFacts, resources: dict[str, object], control: str, words: str
) -> None:
    assert words in decide(Policy(resources=resources), facts).mechanisms()[control]
    with pytest.raises(UnenforceableError) as caught:
        decide(Policy(strict=True, resources=resources), facts)
    assert caught.value.control == control
    assert "strict is on and here it is only" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("facts", [machine(V1), machine(V2), machine(V2, is_root=True)])
def test_a_strict_policy_is_content_with_whole_cgroups(facts: HostFacts) -> None:
    assert decide(Policy(strict=True), facts).entries


UNKNOWN: dict[str, dict[str, object]] = {
    "image": {"image": "debian:13"},
}


@pytest.mark.parametrize(("control", "sections"), UNKNOWN.items(), ids=UNKNOWN.keys())
def test_a_control_without_a_mechanism_is_refused(control: str, sections: dict[str, object]) -> None:
    with pytest.raises(UnenforceableError) as caught:
        decide(Policy(**sections), machine(is_root=True))
    assert str(caught.value) == (
        f"{control}: not enforced by backend native: this backend has no mechanism for it. Remove it from the policy."
    )


def test_naming_programs_to_the_kernel_needs_landlock() -> None:
    commands = {"allow": ["ls"], "enforce": "kernel"}
    report = decide(Policy(commands=commands), machine(is_root=True)).mechanisms()
    assert "Landlock lets 1 named programs be executed" in report["commands"]
    with pytest.raises(UnenforceableError, match=r"commands.enforce: .* no Landlock"):
        decide(Policy(commands=commands), replace(machine(is_root=True), landlock_abi=0))


def test_known_controls_are_not_refused() -> None:
    policy = Policy(
        name="named",
        filesystem={"mounts": [{"source": "/srv", "target": "/data"}], "workspace": {"size": "1M"}, "outputs": ["**"]},
        environment={"packages": ["six"], "preload": ["json"]},
        resources={"memory": "64M", "inodes": 100, "output": "1K"},
    )
    assert decide(policy, machine()).entries


def test_the_way_out_is_reported_when_there_is_one() -> None:
    policy = Policy(
        network={"allow": [{"host": "a.example", "ports": [443]}]},
        secrets=[{"name": "T", "from_env": "T", "inject": {"host": "a.example"}}],
    )
    report = decide(policy, machine()).mechanisms()
    assert report["network"] == "network namespace with a loopback device only"
    assert "gateway" in report["network.allow"]
    assert "never enter the sandbox" in report["secrets"]
    assert not {"network.allow", "secrets"} & set(decide(Policy(), machine()).mechanisms())


def test_a_policy_with_more_ports_than_a_sandbox_can_have_doors_is_refused() -> None:
    rules = [
        {"host": "a.example", "ports": list(range(1000, 1200))},
        {"host": "b.example", "ports": list(range(2000, 2057))},
    ]
    with pytest.raises(UnenforceableError, match="the rules name 257 ports, and a sandbox can listen on 256"):
        decide(Policy(network={"allow": rules}), machine())


def test_packages_are_reported_with_their_digest() -> None:
    packages = PackageFolder("/cache/packages", "sha256:abc")
    report = decide(Policy(environment={"packages": ["six"]}), machine(), packages).mechanisms()
    assert report["environment.packages"] == "read-only mount of a folder with the digest sha256:abc"
    assert "environment.packages" not in decide(Policy(), machine()).mechanisms()
