"""The whole examination, in the order in which a sandbox is built."""

from __future__ import annotations

import platform

from fumehood.backends.native.doctor import mechanisms
from fumehood.backends.native.doctor.controllers import judge_controllers, open_trial_groups
from fumehood.backends.native.doctor.diagnosis import Check, Diagnosis
from fumehood.backends.native.doctor.probing import probe
from fumehood.backends.native.doctor.remedies import read_settings
from fumehood.backends.native.host_facts import HostFacts, detect


def examine() -> Diagnosis:
    """Takes a fraction of a second and leaves nothing behind."""
    machine = detect()
    return Diagnosis(
        system=f"Linux {platform.release()}, {platform.machine()}, Python {platform.python_version()}",
        user="root" if machine.is_root else f"an ordinary user (uid {machine.uid})",
        checks=_checks(machine),
    )


def _checks(machine: HostFacts) -> tuple[Check, ...]:
    with open_trial_groups(machine) as groups:
        answers = probe(machine, groups.entrances)
    settings = read_settings(is_root=machine.is_root, interpreter=machine.interpreter.executable)
    return (
        *mechanisms.judge(mechanisms.BEFORE_CGROUPS, answers, settings, is_root=machine.is_root),
        *judge_controllers(machine, answers, groups.failures),
        *mechanisms.judge(mechanisms.AFTER_CGROUPS, answers, settings, is_root=machine.is_root),
    )
