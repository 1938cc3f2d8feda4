"""The name server of a sandbox. It asks nobody: an allowed name gets an address that only the gateway understands.

Answers hold IPv4 addresses alone; for everything else a name has nothing, so that no key for encrypted handshakes (ECH)
and no other endpoint is ever learned. A refused name does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fumehood.egress import dns
from fumehood.egress.names import Names
from fumehood.egress.refusal import MUST_NOT_LEAVE
from fumehood.policy.decision import Decision, deny
from fumehood.policy.egress import Attempt, Rulebook

TTL_SECONDS = 30
_REVERSE = ".in-addr.arpa"


class Stub:
    def __init__(self, book: Callable[[], Rulebook], names: Names) -> None:
        self._book, self._names = book, names

    def answer(
        self, message: bytes, tell: Callable[[Decision[Attempt]], None], holds_canary: Callable[[str], bool]
    ) -> bytes | None:
        """The reply to one message, if it deserves one; `tell` hears what was decided on each name."""
        try:
            query = dns.parse_query(message)
        except dns.MalformedQueryError as error:
            return error.reply
        if query.kind == dns.PTR and (name := self._reversed(query.name)) is not None:
            return dns.reply_with_name(query, name, TTL_SECONDS)
        decision = self._book().decide_name(query.name)
        name = decision.attempt.host
        if decision.allowed and holds_canary(name):
            decision = deny(replace(decision.attempt, host="a name"), MUST_NOT_LEAVE, decision.rule)
        if not decision.allowed:
            tell(decision)
            return dns.reply(query, dns.Code.NO_SUCH_NAME)
        address, why = self._names.admit(name, listed=self._book().lists(name))
        if address is None:
            tell(deny(decision.attempt, why, decision.rule))
            return dns.reply(query, dns.Code.REFUSED)
        tell(decision)
        return dns.reply_with_address(query, address, TTL_SECONDS) if query.kind == dns.A else dns.reply(query)

    def _reversed(self, name: str) -> str | None:
        """Programs ask whom they talk to; for the addresses that we gave out, we know."""
        if not name.lower().endswith(_REVERSE):
            return None
        return self._names.name_at(".".join(reversed(name[: -len(_REVERSE)].split("."))))
