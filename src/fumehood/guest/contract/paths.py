"""Paths inside a sandbox that the host and the guest agree on."""

from __future__ import annotations

import os

WORKSPACE = "/workspace"
# A second name of the workspace: programs that were written for other sandboxes know their home by it.
USER_HOME = "/home/user"
# In the cell: where the workspaces of its sandboxes are mounted. In a run: that run's own files, such as the script.
RUN_FOLDER = "/run"
# CA certificates for outbound TLS: written anew for every run, because they are the sandbox's own.
TRUST_FILE = f"{RUN_FOLDER}/trust.pem"
# Where a compiler leaves its product for the run that follows.
PRODUCT_FOLDER = f"{RUN_FOLDER}/build"
TMP = "/tmp"
# Of the same kind as TMP: a link to it where the root is ours, a folder in containers.
VAR_TMP = "/var/tmp"
# HOME's own packages: where pip, uv and every Python look for what a program has installed itself.
USER_BASE = f"{WORKSPACE}/.local"
# A folder of a container that only the guest can enter.
GUEST_FOLDER = "/.guest"


def user_site(version: tuple[int, int]) -> str:
    """The folder of these packages for a release of Python."""
    return f"{USER_BASE}/lib/python{version[0]}.{version[1]}/site-packages"


def hidden_name() -> str:
    """A new name for a file that is not complete yet."""
    return f".hood-{os.urandom(8).hex()}"
