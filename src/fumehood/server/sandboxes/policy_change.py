"""Which policy may take the place of that of an open sandbox, for the key that has it."""

from __future__ import annotations

from fumehood.errors import DeniedError
from fumehood.policy import Policy
from fumehood.server.identity.principals import Principal, Scope
from fumehood.server.sandboxes.requested_opening import find_wanted_policy
from fumehood.server.storage.database import Database

_PATTERN = frozenset("*/")


async def changed_policy(database: Database, principal: Principal, current: Policy, wanted: object) -> Policy:
    """A key that may write policies changes the rules as it likes; another one can only take rules away."""
    if principal.may(Scope.POLICIES):
        return (await find_wanted_policy(database, principal, wanted))[1]
    _, policy = await find_wanted_policy(database, principal, wanted, scope=None)
    if reason := widening(current, policy):
        raise DeniedError(f"{reason}; a key with the scope 'policies' can change rules, this one can take some away")
    return policy


def widening(current: Policy, wanted: Policy) -> str:
    """Why `wanted` may let out more than `current`; nothing if it plainly does not.

    The most exact rule for a host decides, so a rule can only be taken away with all others that may concern its host:
    what is left has hosts without a pattern, each with all the rules that it had.
    """
    new, old = wanted.network, current.network
    for rule in new.allow:
        if rule not in old.allow:
            return f"network.allow: the rule for {rule.host} is not one that the sandbox has"
    if len(new.allow) < len(old.allow) and new.allow:
        hosts = {rule.host for rule in new.allow}
        if any(_PATTERN & set(host) for host in hosts):
            return "network.allow: a rule with a pattern stays while others go"
        if any(rule.host in hosts and rule not in new.allow for rule in old.allow):
            return "network.allow: a host keeps some of its rules and not all"
    if not set(new.publish) <= set(old.publish):
        return "network.publish: there are ports that the sandbox does not publish"
    if old.model_copy(update={"allow": new.allow, "publish": new.publish}) != new:
        return "network: more than rules are taken away"
    return ""
