"""Openings between versions: a worker does what it knows, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fumehood import Policy
from fumehood.cluster.opening import pack_opening, unpack_opening
from fumehood.cluster.tenant_meter import LIMITS, WorkerMeter
from fumehood.errors import UnenforceableError
from fumehood.guest.contract.frames import FrameError
from fumehood.policy.secret import GivenSecrets
from fumehood.tenant import Tenant


def packed(folder: Path) -> dict[str, Any]:
    tenant = Tenant("acme", folder, GivenSecrets({}))
    limits = {str(name): 1.0 for name in LIMITS}
    opening: Mapping[str, Any] = pack_opening("s1", "key:k", Policy(), tenant, limits, session=True)
    return {**opening, "epoch": 3}


def test_an_opening_is_the_same_after_its_journey(tmp_path: Path) -> None:
    opening = unpack_opening(packed(tmp_path), tmp_path, WorkerMeter(lambda: False))
    assert (opening.sandbox, opening.tenant.name, opening.epoch, opening.session) == ("s1", "acme", 3, True)
    assert opening.policy.digest == Policy().digest


@pytest.mark.parametrize("part", ["tenant", "options", "limits"])
def test_what_only_a_newer_server_knows_is_refused_and_not_left_out(tmp_path: Path, part: str) -> None:
    """It may be a restriction; the server asks the next worker."""
    header = packed(tmp_path)
    header[part] = {**header[part], "no_clipboard": 1}
    with pytest.raises(UnenforceableError, match=r"no_clipboard.*Upgrade Fumehood on this host"):
        unpack_opening(header, tmp_path, WorkerMeter(lambda: False))


@pytest.mark.parametrize("part", ["sandbox", "principal", "policy", "tenant", "options", "limits", "epoch"])
def test_what_an_older_server_leaves_out_is_refused(tmp_path: Path, part: str) -> None:
    header = packed(tmp_path)
    del header[part]
    with pytest.raises(FrameError, match="not complete"):
        unpack_opening(header, tmp_path, WorkerMeter(lambda: False))
