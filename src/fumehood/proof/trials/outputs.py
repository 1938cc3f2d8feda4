"""Trials of what may leave a sandbox: files by name, their number and their size."""

from __future__ import annotations

from fumehood.errors import DeniedError, UsageError
from fumehood.proof.laboratory import Laboratory, attempts
from fumehood.proof.program import require_success
from fumehood.proof.trial import BrokenError, Trial, attack, use
from fumehood.sandbox.async_sandbox import AsyncSandbox

_FOLDER = "hood-prove"
_ONE_FOLDER = {"filesystem": {"outputs": [f"{_FOLDER}/**"]}}


@attack("filesystem.outputs", "Ask for a file that no output names, for one outside, and for a link to one outside.")
async def take_files_out(lab: Laboratory) -> str:
    code = """
    os.makedirs(folder, exist_ok=True)
    attempt("made", lambda: (write("not-named"), os.symlink("/etc/passwd", folder + "/link")))
    """
    asked = ("not-named", f"{_FOLDER}/link", f"{_FOLDER}/../not-named", "../etc/passwd")
    async with lab.sandbox(_ONE_FOLDER) as box:
        require_success(await attempts(box, code, folder=_FOLDER), ["made"])
        return "; ".join([f"{path}: {await _refusal(box, path)}" for path in asked])


async def _refusal(box: AsyncSandbox, path: str) -> str:
    try:
        taken = await box.files.read(path)
    except (DeniedError, UsageError) as error:  # whatever else is raised has shown nothing
        return type(error).__name__
    raise BrokenError(f"{path} left the sandbox, {len(taken)} bytes")


@attack(
    "filesystem.outputs", "Ask for links in a /tmp that the sandbox keeps, which lead to files that no output names."
)
async def take_files_out_by_tmp(lab: Laboratory) -> str:
    plant = "import os\nfor name, target in {links!r}.items(): os.symlink(target, '/tmp/' + name)\n"
    links = {"system": "/etc/passwd", "workspace": "/workspace/not-named"}
    async with lab.sandbox({"filesystem": {"outputs": ["/tmp/**"]}}, keep_tmp=True) as box:
        made = await box.run(
            f"{plant.format(links=links)}open('not-named', 'w').close(); open('/tmp/own', 'w').close()"
        )
        if made.exit_code != 0 or await box.files.read("/tmp/own") != b"":
            raise BrokenError(f"the links were not made: {made.detail or made.stderr[-200:]}")
        return "; ".join([f"{links[name]}: {await _refusal(box, f'/tmp/{name}')}" for name in links])


@use("filesystem.outputs", "Take out a file that an output names.")
async def take_an_output(lab: Laboratory) -> str:
    async with lab.sandbox(_ONE_FOLDER) as box:
        result = await box.run(f"import os\nos.mkdir({_FOLDER!r})\nopen({_FOLDER + '/result'!r}, 'w').write('6 * 7')")
        taken = await box.files.read(f"{_FOLDER}/result")
    if taken != b"6 * 7" or [artifact.path for artifact in result.artifacts] != [f"{_FOLDER}/result"]:
        raise BrokenError(f"{taken!r}, artifacts {[artifact.path for artifact in result.artifacts]}")
    return "the file and the artifact arrived, with the policy's outputs replaced by one folder"


@attack("resources.artifacts", "Hand over more files than the limit.")
async def hand_over_too_many(lab: Laboratory) -> str:
    return await _hand_over(lab, {"artifacts": 3}, count=6, size=1)


@attack("resources.artifacts_size", "Hand over more bytes than the limit.")
async def hand_over_too_much(lab: Laboratory) -> str:
    return await _hand_over(lab, {"artifacts_size": "64K"}, count=2, size=128 * 1024)


@use("resources.artifacts", "Hand over as many files as the limit says.")
async def hand_over_enough(lab: Laboratory) -> str:
    return await _take_all(lab, {"artifacts": 3}, count=3, size=1)


@use("resources.artifacts_size", "Hand over less than the limit says.")
async def hand_over_little(lab: Laboratory) -> str:
    return await _take_all(lab, {"artifacts_size": "64K"}, count=1, size=32 * 1024)


_MAKER = """
import os
os.mkdir({folder!r})
for number in range({count}):
    open(f"{folder}/{{number}}", "wb").write(bytes({size}))
"""


async def _hand_over(lab: Laboratory, limits: dict[str, object], *, count: int, size: int) -> str:
    async with lab.sandbox({**_ONE_FOLDER, "resources": limits}) as box:
        result = await box.run(_MAKER.format(folder=_FOLDER, count=count, size=size))
    handed = len(result.artifacts)
    # A program that did not make its files would hand over none, either.
    if handed >= count or not all(f"resources.{limit}" in result.detail for limit in limits):
        raise BrokenError(
            f"with {limits}: {handed} of {count} files; {result.detail or result.stderr or result.status}"
        )
    return f"with {limits}: {handed} of {count} files; {result.detail}"


async def _take_all(lab: Laboratory, limits: dict[str, object], *, count: int, size: int) -> str:
    async with lab.sandbox({**_ONE_FOLDER, "resources": limits}) as box:
        result = await box.run(_MAKER.format(folder=_FOLDER, count=count, size=size))
    if len(result.artifacts) != count:
        raise BrokenError(
            f"{len(result.artifacts)} of {count} files were handed over: {result.detail or result.stderr}"
        )
    return f"with {limits}: {count} of {count} files"


TRIALS: tuple[Trial, ...] = (
    take_files_out,
    take_files_out_by_tmp,
    take_an_output,
    hand_over_too_many,
    hand_over_enough,
    hand_over_too_much,
    hand_over_little,
)
