"""Installs the kernel: a small folder that tells Jupyter how to start it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import cast

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from fumehood.errors import UsageError
from fumehood.policy import read_policy
from fumehood.policy.named import NAMES

_OURS = "fumehood"


def install(name: str, policy: str | None, *, prefix: str | None = None) -> str:
    """For this user, or below `prefix`, such as sys.prefix. Returns the folder. A kernel of others is not replaced."""
    # A policy with a mistake is found now, and not by a kernel that dies.
    read_policy(policy)
    manager = KernelSpecManager()
    _refuse_foreign(manager, name)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.json").write_text(json.dumps(_content(name, policy), indent=1))
        return manager.install_kernel_spec(folder, name, user=prefix is None, prefix=prefix)


def remove(name: str) -> str:
    """Returns the folder that was removed."""
    manager = KernelSpecManager()
    _refuse_foreign(manager, name, must_exist=True)
    return manager.remove_kernel_spec(name)


def _content(name: str, policy: str | None) -> dict[str, object]:
    # -P: a file of the notebook's folder must not be imported in place of a module.
    argv = [sys.executable, "-P", "-m", "fumehood.integrations.jupyter", "{connection_file}"]
    return {
        "argv": [*argv, *([_absolute(policy)] if policy else [])],
        "display_name": "Python in a sandbox" if name == _OURS else f"Python in a sandbox ({name})",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {_OURS: True},
    }


def _absolute(policy: str) -> str:
    """A kernel starts in the folder of its notebook."""
    return policy if policy in NAMES else os.path.abspath(policy)


def _refuse_foreign(manager: KernelSpecManager, name: str, *, must_exist: bool = False) -> None:
    try:
        found = manager.get_kernel_spec(name)
    except NoSuchKernel:
        if must_exist:
            raise UsageError(
                f"there is no kernel {name!r}; `jupyter kernelspec list` shows those that there are"
            ) from None
        return
    except ValueError as error:
        raise UsageError(f"{name!r} is not a name for a kernel: letters, digits, '.', '-' and '_' are") from error
    if not cast("dict[str, object]", found.metadata).get(_OURS):
        raise UsageError(f"the kernel {name!r} is not one of Fumehood's; choose another name with --name")
