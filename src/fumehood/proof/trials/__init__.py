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
    machines,
    mounts,
    network,
    outputs,
    ports,
    processors,
    records,
    results,
    sessions,
    snapshots,
)

TRIALS: tuple[Trial, ...] = (
    *machines.TRIALS,
    *files.TRIALS,
    *mounts.TRIALS,
    *outputs.TRIALS,
    *network.TRIALS,
    *ports.TRIALS,
    *egress.TRIALS,
    *isolation.TRIALS,
    *layers.TRIALS,
    *commands.TRIALS,
    *limits.TRIALS,
    *processors.TRIALS,
    *lifetime.TRIALS,
    *results.TRIALS,
    *sessions.TRIALS,
    *snapshots.TRIALS,
    *records.TRIALS,
)


def trials_of(controls: Iterable[str]) -> list[Trial]:
    """In the order of the controls."""
    places = {control: place for place, control in enumerate(controls)}
    return sorted((trial for trial in TRIALS if trial.control in places), key=lambda trial: places[trial.control])
