"""What may leave a sandbox, as pure decisions: the gateway, `hood policy test` and `explain` ask the same questions.

Must not know: sockets, resolvers, certificates, time. Limits of bytes, connections and rates are counted by the
gateway, which carries the traffic.

    book = Rulebook(policy)
    book.decide_name("api.github.com"), book.decide_connection("api.github.com", 443)
    route = book.find_route("api.github.com", 443)
    book.decide_address(route, address), book.decide_hello(route, "api.github.com")
    book.decide_request(route, "GET", "/repos/x?y=z", "api.github.com")
"""

from fumehood.policy.egress.addresses import Address, Reach, classify
from fumehood.policy.egress.attempt import AllowedAttempt, Attempt, shown, to_allowed, to_denial
from fumehood.policy.egress.headers import METHODS_WITH_BODY, canonical_header, is_plain_header
from fumehood.policy.egress.route import NumberedRule, Route
from fumehood.policy.egress.rulebook import Rulebook, normalise
from fumehood.policy.egress.targets import is_plain_path

__all__ = [
    "METHODS_WITH_BODY",
    "Address",
    "AllowedAttempt",
    "Attempt",
    "NumberedRule",
    "Reach",
    "Route",
    "Rulebook",
    "canonical_header",
    "classify",
    "is_plain_header",
    "is_plain_path",
    "normalise",
    "shown",
    "to_allowed",
    "to_denial",
]
