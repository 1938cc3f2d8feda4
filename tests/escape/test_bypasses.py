"""No way around the gateway: every attempt of the table, on every backend, from a program under one generous policy.

Without its judgement of requests (`requests-judged` in protections.py) those get through. What has no name is stopped
by the network namespace, whose own attacks are in test_network.py.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import engine
import pytest
from outside import SECRET_VARIABLE, Outside, open_outside
from requirements import require

from escape.bypasses import BACKENDS, BYPASSES, Outcome, anonymous, outcomes, program
from fumehood import AsyncSandbox, Policy

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    os.environ[SECRET_VARIABLE] = "a token for nobody"
    with open_outside() as opened:
        yield opened
    del os.environ[SECRET_VARIABLE]


@pytest.fixture(scope="module", params=BACKENDS if os.geteuid() == 0 else BACKENDS[:1])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param in engine.BACKENDS:
        require(engine.missing() is None, engine.missing() or "")
    return request.param


@pytest.fixture(scope="module")
async def box(backend: str, outside: Outside) -> AsyncIterator[AsyncSandbox]:
    policy = Policy(backend=backend, network={"allow": outside.rules()}, secrets=outside.secrets())
    async with AsyncSandbox(policy) as opened:
        yield opened


@pytest.mark.parametrize("attempt", BYPASSES)
async def test_there_is_no_way_around_the_gateway_by(
    box: AsyncSandbox, backend: str, outside: Outside, attempt: str
) -> None:
    ports = {"WEB": outside.web.port, "SECURE": outside.secure.port, "RAW": outside.raw.port}
    result = await box.run(program(BYPASSES[attempt], ports))
    assert result.stderr == ""
    told = [anonymous(f"{denial.what}: {denial.why}", ports) for denial in result.denials]
    assert Outcome(result.stdout.strip(), "; ".join(told)) == outcomes()[attempt, backend]


def test_the_page_has_every_attempt_on_every_backend() -> None:
    assert set(outcomes()) == {(attempt, backend) for attempt in BYPASSES for backend in BACKENDS}
