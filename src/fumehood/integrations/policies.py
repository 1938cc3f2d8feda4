"""The default policy of an integration, and the timeout that a framework asks for."""

from __future__ import annotations

from fumehood.policy import AnyPolicy, Policy, Seconds, read_policy, read_seconds


def default_policy(policy: AnyPolicy | None) -> Policy:
    """The policy for frameworks that work in a sandbox and take files out of it during the work.

    Without a policy: no network, no host files, no secrets; but files of the sandbox may be read, which is how
    these frameworks work, and a command has the time that their users expect.
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
    """The timeout that a framework asks for, at most that of the policy."""
    if timeout is None:
        return None
    seconds = read_seconds(timeout) if isinstance(timeout, str) else timeout
    return min(seconds, policy.resources.timeout)
