"""A root file system from Debian's packages, with mmdebstrap: where there is no image to start from.

As root in mount and process namespaces of its own, so that nothing outlives it; as an ordinary user in a user
namespace, for which mmdebstrap needs a range of ids of that user's.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from fumehood.errors import StepFailedError, UsageError
from fumehood.host.child_process import run_child
from fumehood.host.interpreter import own_interpreter
from fumehood.images.build_dir import BuildDir
from fumehood.images.recipe import Recipe

# Packages that a new system needs to become one, and no program afterwards.
SCAFFOLDING = r"usrmerge|perl|perl-modules-.*|libperl5\..*|lib(?:file-find-rule|number-compare|text-glob)-perl"
_STEP = "making a root file system from Debian packages"
_CLEAN_UP_SECONDS = 30.0
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_KEPT = ("PATH", "HOME", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "APT_CONFIG")
_WORTH_TELLING = re.compile(r"I: ((?:running apt-get|downloading|extracting|installing|creating) .*)")
_MAP_IDS = (
    "As an ordinary user it needs a range of ids: `sudo apt-get install uidmap`, then `sudo usermod --add-subuids "
    "100000-165535 --add-subgids 100000-165535 $USER`. Or run it as root, or start from an image with --base."
)


def make_root(
    recipe: Recipe,
    machine: str,
    build_dir: BuildDir,
    *,
    made_at: int,
    progress: Callable[[str], None],
    heartbeat: Callable[[], None],
) -> Path:
    draft = build_dir.folder / "root.tar"
    _check_tools()
    ended = run_child(
        mmdebstrap_argv(recipe, machine, draft, is_root=os.geteuid() == 0),
        python=own_interpreter().executable,
        variables=_variables(os.environ, build_dir.folder, made_at),
        held=build_dir.lock.descriptor,
        on_line=lambda line: progress(found[1]) if (found := _WORTH_TELLING.fullmatch(line)) else None,
        heartbeat=heartbeat,
        # What it has written as other users only it can remove; what it has written as root is in our folder.
        farewell_seconds=0.0 if os.geteuid() == 0 else _CLEAN_UP_SECONDS,
    )
    if ended.code != 0:
        raise _explained(ended.said, ended.code)
    return draft


def mmdebstrap_argv(recipe: Recipe, machine: str, draft: Path, *, is_root: bool) -> list[str]:
    namespace = [_find("unshare"), "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"] if is_root else []
    options = [f"--mode={'root' if is_root else 'unshare'}", "--variant=essential", "--format=tar"]
    options += [f"--include={','.join(recipe.debian_packages)}", '--aptopt=APT::Install-Recommends "false"']
    if machine != os.uname().machine:
        options.append(f"--architectures={_ARCHITECTURES.get(machine, machine)}")
    mirror = [recipe.mirror] if recipe.mirror else []
    return [*namespace, _find("mmdebstrap"), *options, recipe.suite, str(draft), *mirror]


def _variables(caller: Mapping[str, str], folder: Path, made_at: int) -> dict[str, str]:
    kept = {name: caller[name] for name in _KEPT if name in caller}
    # In a user namespace it runs as a user that may not enter our folder.
    place = {"TMPDIR": str(folder)} if os.geteuid() == 0 else {}
    return {**kept, **place, "SOURCE_DATE_EPOCH": str(made_at)}


def _find(command: str) -> str:
    found = shutil.which(command)
    if found is None:
        raise UsageError(
            f"an image is made from Debian packages with {command}, which is not here: `sudo apt-get install "
            "mmdebstrap util-linux`, or start from an image with --base"
        )
    return found


def _check_tools() -> None:
    if os.geteuid() == 0:
        return
    own = {str(os.geteuid())}
    with suppress(KeyError):  # a user without an account, as in many containers
        own.add(pwd.getpwuid(os.geteuid()).pw_name)
    ranges = Path("/etc/subuid")
    lines = ranges.read_text(encoding="utf-8").splitlines() if ranges.is_file() else []
    names = {line.partition(":")[0] for line in lines}
    if shutil.which("newuidmap") is None or not names & own:
        raise UsageError(f"{_STEP}: this user cannot. {_MAP_IDS}")


def _explained(said: str, code: int) -> StepFailedError:
    """Its errors, in one line; what apt said comes before them."""
    errors = [line.strip() for line in said.splitlines() if re.match(r"\s*E: ", line)]
    reason = "; ".join(error.removeprefix("E: ") for error in errors[:3]) or f"it ended with code {code}"
    if "No space left" in said:
        return StepFailedError(
            _STEP, "no space left on this machine", remedy="Free some, or set FUMEHOOD_HOME elsewhere."
        )
    if any(word in said for word in ("newuidmap", "unshare", "user namespace")) and os.geteuid() != 0:
        return StepFailedError(_STEP, reason.rstrip("."), remedy=_MAP_IDS)
    remedy = "Check the suite, and that this machine reaches its mirror (--mirror); or start from an image with --base."
    return StepFailedError(_STEP, reason.rstrip("."), remedy=remedy)
