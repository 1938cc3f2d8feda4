"""Hardware or software: what decides it, how it is tried, and what a report and a strict policy make of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from fumehood import Policy, UnenforceableError
from fumehood.backends.microvm import enforcement
from fumehood.backends.microvm.acceleration import (
    Acceleration,
    Trials,
    choose,
    device_problem,
    forget,
    processor_identity,
    trial_key,
)
from fumehood.backends.microvm.image import VARIABLE, MachineImage
from fumehood.backends.microvm.machine import Emulator, describe, qemu_argv
from fumehood.backends.microvm.template import template_key
from fumehood.errors import StepFailedError

pytestmark = pytest.mark.anyio

EMULATOR = Emulator("/usr/bin/qemu-system-x86_64", "a build")
IMAGE = MachineImage("x:latest", Path("/nowhere"), "sha256:1", "6.1", (1000, 1000), (3, 11), None, ())
CPUINFO = "processor\t: 0\nvendor_id\t: A\nmodel name\t: M\ncpu MHz\t\t: 2000\nflags\t\t: fpu vme\n\nprocessor\t: 1\n"
SOFTWARE = Acceleration("tcg", "/dev/kvm: No such file or directory")


@pytest.mark.parametrize(
    ("device", "trial", "accelerator", "reason"),
    [
        (None, None, "kvm", ""),
        ("Permission denied", None, "tcg", "/dev/kvm: Permission denied"),
        (None, "it was not ready", "tcg", "a machine that was tried with KVM did not run: it was not ready"),
        (None, "", "tcg", "a machine that was tried with KVM did not run: "),
    ],
)
def test_hardware_is_chosen_where_the_device_opens_and_a_machine_has_run(
    device: str | None, trial: str | None, accelerator: str, reason: str
) -> None:
    found = choose(device, trial)
    assert (found.accelerator, found.reason) == (accelerator, reason)


def test_a_device_that_is_not_there_or_not_ours_says_so(tmp_path: Path) -> None:
    assert device_problem(str(tmp_path / "kvm")) == "No such file or directory"
    assert device_problem(str(tmp_path)) == "Is a directory"
    (tmp_path / "kvm").touch()
    assert device_problem(str(tmp_path / "kvm")) is None


class Attempts:
    """What a trial finds, and how often it was asked."""

    def __init__(self, problem: str | None) -> None:
        self.problem, self.count = problem, 0

    async def __call__(self, image: MachineImage, emulator: Emulator) -> None:
        self.count += 1
        if self.problem:
            raise StepFailedError("starting QEMU", self.problem)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "machines"))
    (tmp_path / "kvm").touch()
    return str(tmp_path / "kvm")


@pytest.mark.parametrize(("problem", "accelerator"), [(None, "kvm"), ("failed to set MSR", "tcg")])
async def test_a_trial_is_made_once_until_the_host_starts_anew(
    device: str, problem: str | None, accelerator: str
) -> None:
    attempts = Attempts(problem)
    first, next_process = Trials(attempts, device), Trials(attempts, device)
    for trials in (first, first, next_process):
        found = await trials.choose(IMAGE, EMULATOR)
        assert found.accelerator == accelerator
        assert (problem or "") in found.reason
    assert attempts.count == 1


async def test_a_trial_is_made_again_when_it_is_to_be_forgotten_or_qemu_is_another(device: str) -> None:
    attempts = Attempts("failed")
    await Trials(attempts, device).choose(IMAGE, EMULATOR)
    forget()
    await Trials(attempts, device).choose(IMAGE, EMULATOR)
    await Trials(attempts, device).choose(IMAGE, Emulator(EMULATOR.program, "another build"))
    assert attempts.count == 3


async def test_nothing_is_tried_without_the_device(device: str, tmp_path: Path) -> None:
    attempts = Attempts(None)
    found = await Trials(attempts, str(tmp_path / "none")).choose(IMAGE, EMULATOR)
    assert (found.accelerator, attempts.count) == ("tcg", 0)


def test_a_trial_is_of_one_image_build_processor_and_boot() -> None:
    other = Emulator(EMULATOR.program, "another build")
    keys = {
        trial_key(IMAGE, EMULATOR, "p", "b"),
        trial_key(IMAGE, other, "p", "b"),
        trial_key(IMAGE, EMULATOR, "q", "b"),
        trial_key(IMAGE, EMULATOR, "p", "c"),
    }
    assert len(keys) == 4


def test_a_template_by_hardware_is_of_the_hosts_processor() -> None:
    usual = processor_identity(CPUINFO)
    assert processor_identity(CPUINFO.replace("2000", "2100")) == usual
    others = [CPUINFO.replace("model name\t: M", "model name\t: N"), CPUINFO.replace("vme", "vme avx2")]
    machines = [describe(EMULATOR, 1, processor_identity(text)) for text in (CPUINFO, *others)]
    assert len({template_key(IMAGE, machine) for machine in (*machines, describe(EMULATOR, 1))}) == 4


@pytest.mark.parametrize(("boots", "descriptor"), [(True, 11), (False, 9)])
def test_qemu_is_handed_the_device_and_has_no_name_for_it(boots: bool, descriptor: int) -> None:
    words = qemu_argv(describe(EMULATOR, 1, "a processor"), boots=boots)
    assert ("-add-fd", f"fd={descriptor},set=3") in pairwise(words)
    assert ("-accel", "kvm,device=/dev/fdset/3") in pairwise(words)
    assert "/dev/kvm" not in " ".join(words)
    # A processor of hardware speculates.
    assert "mitigations=off" not in " ".join(words)


def test_a_strict_policy_opens_by_hardware_and_is_refused_by_software() -> None:
    policy = Policy(backend="microvm", strict=True)
    report = enforcement.decide(policy, None, Acceleration("kvm"), ("Landlock",), packages_in_image=False)
    assert "KVM" in report.mechanisms()["kernel"]
    with pytest.raises(UnenforceableError, match=r"^kernel.*No such file"):
        enforcement.decide(policy, None, SOFTWARE, ("Landlock",), packages_in_image=False)


def test_the_report_says_that_software_is_a_boundary_in_part_and_why() -> None:
    report = enforcement.decide(Policy(backend="microvm"), None, SOFTWARE, ("Landlock",), packages_in_image=False)
    (kernel,) = (entry for entry in report.entries if entry.control == "kernel")
    assert kernel.partial
    assert SOFTWARE.reason in kernel.mechanism
