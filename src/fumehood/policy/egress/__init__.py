"""What may leave a sandbox, as pure decisions: the gateway, `hood policy test` and `explain` ask the same questions.

Must not know: sockets, resolvers, certificates, time. Limits of bytes, connections and rates are counted by whoever
sees them happen.

    book = Rulebook(policy)
    book.decide_name("api.github.com"), book.decide_connection("api.github.com", 443)
    opening = book.opening("api.github.com", 443)
    book.decide_address(opening, address), book.decide_hello(opening, "api.github.com")
    book.decide_request(opening, "GET", "/repos/x?y=z", "api.github.com")
"""

from fumehood.policy.egress.addresses import Address, Reach, classify
from fumehood.policy.egress.decision import Attempt, Decision, Passage, shown
from fumehood.policy.egress.headers import METHODS_WITH_BODY, canonical_header, is_plain_header
from fumehood.policy.egress.opening import NumberedRule, Opening
from fumehood.policy.egress.rulebook import Rulebook, normalise
from fumehood.policy.egress.targets import is_plain_path

__all__ = [
    "METHODS_WITH_BODY",
    "Address",
    "Attempt",
    "Decision",
    "NumberedRule",
    "Opening",
    "Passage",
    "Reach",
    "Rulebook",
    "canonical_header",
    "classify",
    "is_plain_header",
    "is_plain_path",
    "normalise",
    "shown",
]
