"""The policy of an integration, in the forms that its users have at hand, and what holds when they give none."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fumehood.policy import Policy

AnyPolicy = Policy | Mapping[str, object] | str | os.PathLike[str]
"""A policy, its sections, or the path of its file."""


def read_policy(policy: AnyPolicy | None) -> Policy | None:
    if policy is None or isinstance(policy, Policy):
        return policy
    return Policy(**policy) if isinstance(policy, Mapping) else Policy.load(policy)


def workshop_policy(policy: AnyPolicy | None) -> Policy:
    """For frameworks that work in a sandbox and take files out of it as they go.

    Without a policy: no network, no host files, no secrets, as ever; but what is made in the sandbox may leave, which
    is what reading a file is to these frameworks, and a command has the time that their users expect.
    """
    given = read_policy(policy)
    if given is not None:
        return given
    return Policy(
        name="workshop",
        filesystem={"outputs": ["**", "/tmp/**"]},
        resources={"timeout": "10m", "output": "10M", "memory": "1G"},
    )


def shortened_timeout(policy: Policy, seconds: float | None) -> float | None:
    """What a framework asks for, or what the policy has if that is less: frameworks do not know policies."""
    return None if seconds is None else min(seconds, policy.resources.timeout)
