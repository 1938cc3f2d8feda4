"""The policy of an integration when its users give none, and the time that a framework may ask for."""

from __future__ import annotations

from fumehood.policy import AnyPolicy, Policy, Seconds, read_policy, read_seconds


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


def shortened_timeout(policy: Policy, timeout: Seconds | None) -> float | None:
    """What a framework asks for, or what the policy has if that is less: frameworks do not know policies."""
    if timeout is None:
        return None
    seconds = read_seconds(timeout) if isinstance(timeout, str) else timeout
    return min(seconds, policy.resources.timeout)
