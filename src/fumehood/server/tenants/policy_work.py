"""Reading and trying tenants' policies, which takes processor time: beside the event loop, in which all tenants wait.

One at a time for a tenant, so that others get their turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.policy.decisions import TestResult, run_tests
from fumehood.server.tenant_threads import TenantThreads

T = TypeVar("T")
MOST_POLICY_CHARACTERS = 64 * 1024
_TEST_SECONDS = 5.0
_threads = TenantThreads("policies", most=4, most_of_tenant=1)


async def beside_the_loop(tenant: str, work: Callable[[], T]) -> T:
    return await _threads.run(tenant, work)


def check_length(text: str) -> None:
    if len(text) > MOST_POLICY_CHARACTERS:
        raise UsageError(f"a policy has at most {MOST_POLICY_CHARACTERS} characters")


def try_tests(policy: Policy) -> list[TestResult]:
    """The results of a policy's own tests; UsageError if they take too long."""
    end, results = time.monotonic() + _TEST_SECONDS, list[TestResult]()
    for result in run_tests(policy):
        results.append(result)
        if time.monotonic() > end:
            raise UsageError(f"the tests of the policy take more than {_TEST_SECONDS:g} s; have fewer of them")
    return results
