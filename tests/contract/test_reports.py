"""What a result and a sandbox tell about themselves: times, memory, ids, digests, and how each control is enforced."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fumehood import Policy, Sandbox
from fumehood.policy import Resources, controls

MIB = 1024 * 1024


def test_cpu_time_is_what_the_program_used(box: Sandbox) -> None:
    busy = "import time\nwhile time.process_time() < {seconds}: pass"
    result = box.run(busy.format(seconds=0.3))
    assert 250 <= result.cpu_ms <= result.duration_ms * 4 + 1000
    idle = box.run("import time; time.sleep(0.3)")
    assert idle.cpu_ms < result.cpu_ms


def test_cpu_time_of_children_counts(box: Sandbox) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    assert box.run(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy!r}])").cpu_ms >= 250


WITHOUT_CGROUPS = "RLIMIT_AS, for each process"
UNWAITED = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = os.fork()
if child == 0:
    while time.process_time() < 0.3: pass
    os._exit(0)
try:
    while not os.kill(child, 0): time.sleep(0.01)  # until it is gone: an orphan gets another parent
except ProcessLookupError:
    pass
"""


def test_cpu_time_counts_though_nobody_waits_for_the_process(box: Sandbox) -> None:
    """A tenant's quota is made of it: the kernel adds the time of such a child to no parent."""
    has_cgroups = box.enforcement["resources.memory"] != WITHOUT_CGROUPS
    assert (box.run(UNWAITED).cpu_ms >= 250) is has_cgroups


def test_cpu_time_of_children_counts_in_a_session(box: Sandbox) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy!r}])"
    has_cgroups = box.enforcement["resources.memory"] != WITHOUT_CGROUPS
    with box.session() as session:
        assert (session.run(code).cpu_ms >= 250) is has_cgroups


@pytest.mark.one_container
def test_the_duration_covers_the_program(box: Sandbox) -> None:
    assert box.run("import time; time.sleep(0.2)").duration_ms >= 200


def test_peak_memory_is_what_the_program_had(box: Sandbox) -> None:
    small, large = (box.run(f"x = bytearray(b'x' * ({size} * 1024 ** 2))").peak_memory_bytes for size in (1, 100))
    assert 0 < small < 100 * MIB <= large <= 512 * MIB


def test_peak_memory_of_a_session_is_what_it_has_had(box: Sandbox) -> None:
    with box.session() as session:
        assert session.run("x = bytearray(b'x' * (100 * 1024 ** 2))").peak_memory_bytes > 90 * 1024**2


@pytest.mark.one_container
def test_every_run_has_an_id_of_its_own(box: Sandbox) -> None:
    ids = [box.run("pass").run_id for _ in range(10)]
    assert len(set(ids)) == 10
    assert all(ids)


@pytest.mark.one_container
def test_a_result_names_the_policy_it_ran_under(lend_box: Callable[..., Sandbox]) -> None:
    box, other = lend_box(), lend_box(resources={"memory": "256M"})
    assert box.run("pass").policy_digest == box.policy.digest
    assert other.run("pass").policy_digest == other.policy.digest != box.policy.digest


@pytest.mark.one_container
def test_a_result_can_be_written_as_json(box: Sandbox) -> None:
    told = json.loads(json.dumps(box.run("import os; print('ü'); os.write(2, b'\\xff')").to_dict()))
    assert (told["status"], told["cause"], told["exit_code"]) == ("success", "exit", 0)
    assert (told["stdout"], told["stderr"]) == ("ü\n", "\ufffd")


POLICIES: dict[str, dict[str, object]] = {
    "deny all": {},
    "limits": {"resources": {"cpu_time": "5s", "memory": "300M", "processes": 30, "inodes": 5000}},
    "workspace": {"filesystem": {"workspace": {"size": "10M"}}},
    "preloaded modules": {"environment": {"preload": ["decimal"]}},
}


@pytest.mark.parametrize("sections", POLICIES.values(), ids=POLICIES.keys())
def test_the_enforcement_report_has_every_control(
    open_box: Callable[..., Sandbox], make_policy: Callable[..., Policy], sections: dict[str, object]
) -> None:
    report = open_box(**sections).enforcement
    policy = make_policy(**sections)
    for control in controls(policy):
        assert any(control == known or control.startswith(known + ".") for known in report), control
    limits = {f"resources.{name}" for name in Resources.model_fields if getattr(policy.resources, name) is not None}
    assert limits <= set(report)
    assert {"filesystem", "network", "processes", "privileges", "environment"} <= set(report)
    assert all(report.values())


def test_preloaded_modules_are_there_and_fresh_for_every_run(open_box: Callable[..., Sandbox]) -> None:
    box = open_box(environment={"preload": ["decimal", "xml.etree.ElementTree"]})
    source = (
        "import sys\nprint('decimal' in sys.modules)\nimport decimal\n"
        "print(decimal.getcontext().prec)\ndecimal.getcontext().prec = 5"
    )
    assert box.run(source).stdout == box.run(source).stdout == "True\n28\n"
