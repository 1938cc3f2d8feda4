"""Carries out all trials of a policy, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import anyio

from fumehood.backends.selection import select_backend
from fumehood.policy import Policy
from fumehood.proof.host_facts import describe_host
from fumehood.proof.laboratory import Laboratory, open_laboratory
from fumehood.proof.report import ControlEntry, ProofReport
from fumehood.proof.trial import ALWAYS, BrokenError, DoesNotApplyError, NotTestedError, Observation, Result, Trial
from fumehood.proof.trials import trials_of

# Long enough for a virtual machine on a busy host.
_MOST_SECONDS = 300


async def prove(policy: Policy, *, progress: Callable[[Observation], None] = lambda _: None) -> ProofReport:
    """The report, not signed yet. Raises when the policy cannot be opened here: then there is nothing to prove."""
    async with open_laboratory(policy) as lab:
        report = lab.box.enforcement_report
        entries = [ControlEntry(control=e.control, mechanism=e.mechanism, partial=e.partial) for e in report.entries]
        entries += [ControlEntry(control=control, mechanism=mechanism) for control, mechanism in ALWAYS.items()]
        partial = {entry.control: entry.mechanism for entry in entries if entry.partial}
        observations: list[Observation] = []
        for trial in trials_of(entry.control for entry in entries):
            observations.append(await carry_out(trial, lab, partial))
            progress(observations[-1])
        first = await lab.run("print(1)")
        return ProofReport(
            made_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            host=describe_host(select_backend(policy).name),
            policy_name=policy.name or "",
            policy_digest=policy.digest,
            image_digest=first.image_digest,
            controls=tuple(entries),
            observations=tuple(observations),
        )


async def carry_out(trial: Trial, lab: Laboratory, partial: Mapping[str, str]) -> Observation:
    """`partial` are mechanisms of the controls that are enforced in part.

    What a mechanism admits is no licence for the rest of its control: a strict policy does not open there, but another
    one relies on all that is not admitted.
    """
    started = time.monotonic()
    result, seen = await _observe(trial, lab)
    if result == "broken" and any(words in partial.get(trial.control, "") for words in trial.admitted):
        result = "partial"
    return Observation(
        trial.name, trial.control, trial.kind, trial.what, result, seen, round(time.monotonic() - started, 3)
    )


async def _observe(trial: Trial, lab: Laboratory) -> tuple[Result, str]:
    try:
        with anyio.fail_after(_MOST_SECONDS):
            seen = await trial.carry_out(lab)
        # A trial that goes through a list with nothing in it is stopped nowhere.
        return ("held", seen) if seen else ("not tested", "the trial tried nothing")
    except BrokenError as error:
        return "broken", str(error)
    except NotTestedError as error:
        return "not tested", str(error)
    except DoesNotApplyError as error:
        return "does not apply", str(error)
    except TimeoutError:
        return "broken", f"it did not come to an end within {_MOST_SECONDS} s"
    except Exception as error:  # a trial that could not be carried out has shown nothing, whatever went wrong
        return "not tested", f"{type(error).__name__}: {error}"
