"""`hood serve` with two things changed for tests.

Names that end in `.example` lead to the loopback, so that programs in sandboxes can reach servers of the tests, and the
server looks at its database more often.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from ipaddress import ip_address

import fumehood.egress
import fumehood.server.instances
from fumehood.egress import Gateway
from fumehood.egress.dial import HostResolver
from fumehood.policy.egress import Address
from fumehood_client import main

_BEAT_SECONDS = 0.5
_host = HostResolver()


async def _resolve(name: str) -> Sequence[Address]:
    return [ip_address("127.0.0.1")] if name.endswith(".example") else await _host(name)


if __name__ == "__main__":
    os.environ.pop("FUMEHOOD_SERVER", None)
    fumehood.server.instances.BEAT_SECONDS = _BEAT_SECONDS
    gateway = Gateway(resolver=_resolve)
    fumehood.egress.shared_gateway = lambda: gateway
    main()
