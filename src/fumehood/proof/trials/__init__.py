"""The trials of every control, and which of them a policy needs."""

from __future__ import annotations

from collections.abc import Iterable

from fumehood.proof.trial import Trial
from fumehood.proof.trials import (
    commands,
    egress,
    files,
    isolation,
    layers,
    lifetime,
    limits,
    network,
    outputs,
    ports,
    records,
)

TRIALS: tuple[Trial, ...] = (
    *files.TRIALS,
    *outputs.TRIALS,
    *network.TRIALS,
    *ports.TRIALS,
    *egress.TRIALS,
    *isolation.TRIALS,
    *layers.TRIALS,
    *commands.TRIALS,
    *limits.TRIALS,
    *lifetime.TRIALS,
    *records.TRIALS,
)


def trials_of(controls: Iterable[str]) -> list[Trial]:
    wanted = set(controls)
    return [trial for trial in TRIALS if trial.control in wanted]
