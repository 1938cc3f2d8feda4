"""Public addresses, in a small internet of the test's own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from requirements import require

TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seen() -> dict[str, list[str]]:
    require(
        shutil.which("ip") and shutil.which("unshare"), "iproute2 and util-linux are needed for a network of its own"
    )
    probe = subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False)
    require(probe.returncode == 0, "this user may not make network namespaces")
    paths = os.pathsep.join([str(TESTS), *sys.path])
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, "-m", "unit.egress.world"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_public_address_needs_no_word_of_its_own(seen: dict[str, list[str]]) -> None:
    assert seen["there"] == ["the world"]


def test_this_machines_own_public_address_is_private(seen: dict[str, list[str]]) -> None:
    assert seen["here"] == ["", "api.example.com leads to 8.8.4.1, which is this machine"]
    assert seen["asked"] == ["this machine"]
