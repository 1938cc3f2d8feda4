"""Variables that E2B's programs expect: the home that they know, and the folder by the name they gave it."""

from __future__ import annotations

from fumehood.guest.contract.paths import USER_HOME
from fumehood.server.e2b.paths import outer_path
from fumehood.server.sandboxes.placement import PlacedSandbox

_OF_IMAGES = frozenset({"docker", "gvisor", "microvm"})


def variables_for(box: PlacedSandbox, cwd: str) -> dict[str, str]:
    """The shell goes by PWD if it names the folder that it is in; images have no second name of the workspace."""
    if box.policy.backend in _OF_IMAGES:
        return {}
    return {"HOME": USER_HOME, "PWD": outer_path(cwd), "USER": "user", "LOGNAME": "user"}
