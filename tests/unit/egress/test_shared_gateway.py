"""A process has one gateway for the roots that it trusts now."""

from __future__ import annotations

import os
from pathlib import Path

import certifi
import pytest

import fumehood.egress
from fumehood.egress import shared_gateway


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle in the current folder, which a variable names without the folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", "roots.pem")
    bundle = tmp_path / "roots.pem"
    bundle.write_bytes(Path(certifi.where()).read_bytes())
    return bundle


def test_it_is_the_same_while_the_roots_are(roots: Path) -> None:
    assert shared_gateway() is shared_gateway()


def test_it_is_another_when_the_file_was_replaced(roots: Path) -> None:
    before = shared_gateway()
    newer = roots.with_name("newer.pem")
    newer.write_bytes(roots.read_bytes() + b"\n")
    newer.replace(roots)
    assert shared_gateway() is not before


def test_it_is_another_where_the_same_name_is_another_file(roots: Path) -> None:
    before = shared_gateway()
    elsewhere = roots.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / roots.name).write_bytes(roots.read_bytes())
    os.chdir(elsewhere)
    assert shared_gateway() is not before


def test_gateways_of_roots_that_are_no_longer_used_do_not_pile_up(roots: Path) -> None:
    for number in range(20):
        roots.write_bytes(roots.read_bytes() + b"\n" * (number + 1))
        shared_gateway()
    own = [process for process, _ in fumehood.egress._gateways if process == os.getpid()]
    assert len(own) <= 6
