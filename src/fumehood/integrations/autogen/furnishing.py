"""What has to be in a sandbox before the first block runs there."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping

from fumehood.errors import DeniedError, SandboxError
from fumehood.integrations.autogen.planning import Plan
from fumehood.integrations.autogen.refusals import OptionError
from fumehood.policy.paths import WORKSPACE
from fumehood.results import Cause, RunResult
from fumehood.sandbox.sandbox import AsyncSandbox


def make_host_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise OptionError("work_dir", f"{path!r} cannot be made: {error.strerror}") from error


async def furnish(box: AsyncSandbox, plan: Plan, modules: Mapping[str, str], init_command: str | None) -> None:
    """Can be done again: a restart does."""
    if plan.host_folder is None:
        await box.mkdir(plan.folder)
    for place, mount in plan.links.items():
        await box.mkdir(posixpath.dirname(place))
        _expect(await box.run(argv=["ln", "-sfn", "--", mount, place]), "volumes")
    if init_command is not None:
        _expect(await box.run(init_command, language="sh", cwd=plan.folder, env=plan.environment), "init_command")
    for name, source in modules.items():
        path = posixpath.join(plan.folder, name)
        await box.write(path, source)
        _expect(await box.run(source, name=path, cwd=plan.folder, env=plan.environment), "functions")
    await share_workspace(box, plan)


# AutoGen's folder is /workspace itself, so prompts and programs name it. Nothing can be mounted there, so what is made
# there is moved to the folder and linked to, and what is in the folder is linked to. Names that are in both stay.
_SHARE = """
for name in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ -L "$name" ] || [ ! -e "$name" ]; then continue; fi
    place=$2/${name##*/}
    if [ -e "$place" ] || [ -L "$place" ]; then echo "${name##*/}"; else mv -- "$name" "$place"; fi
done
find "$2" -mindepth 1 -maxdepth 1 ! -name 'tmp_code_*' -exec sh -c 'ln -s -- "$@" '"$1"' 2>/dev/null' sh {} + || true
"""
_MOST_NAMES = 10


async def share_workspace(box: AsyncSandbox, plan: Plan) -> str:
    """Make /workspace show the folder that blocks work in. Returns what the model has to know, if anything."""
    if plan.host_folder is None:
        return ""
    try:
        done = await box.run(argv=["sh", "-c", _SHARE, "sh", WORKSPACE, plan.folder])
    except (DeniedError, SandboxError):  # the policy's commands do not include these, or nothing is left to share
        return ""
    names = ", ".join(done.stdout.splitlines()[:_MOST_NAMES])
    return f"{WORKSPACE} is not {plan.folder}, and both have: {names}\n" if names else ""


async def is_alive(box: AsyncSandbox) -> bool:
    """Whether it can still run something."""
    try:
        return (await box.run(argv=["true"])).cause is not Cause.LOST
    except SandboxError:
        return False


def _expect(result: RunResult, option: str) -> None:
    if not result.ok:
        words = result.detail or f"exit code {result.exit_code}"
        raise OptionError(option, f"failed in the sandbox ({words}): {result.stderr or result.stdout}")
