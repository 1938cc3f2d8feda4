"""Sessions with each shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.guest.program.session.talking import SITE_PACKAGES, Session


@pytest.fixture(params=["plain", "ipython"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    """Once with each shell: what holds for one holds for the other."""
    packages = {"plain": [], "ipython": [SITE_PACKAGES]}[request.param]
    with Session(tmp_path, packages=packages) as started:
        assert started.shell == request.param
        yield started


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Session]:
    with Session(tmp_path) as started:
        yield started


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Session]:
    with Session(tmp_path, packages=[SITE_PACKAGES]) as started:
        yield started
