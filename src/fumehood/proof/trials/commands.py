"""Trials of which commands may run, and of the image and the engine of a container."""

from __future__ import annotations

from typing import Any

from fumehood.errors import FumehoodError
from fumehood.policy.commands import judge, judge_argv
from fumehood.proof.laboratory import Laboratory
from fumehood.proof.program import require_refusals
from fumehood.proof.trial import BrokenError, DoesNotApplyError, NotTestedError, Trial, attack, use
from fumehood.results import Status

# Harmless wherever they run.
_CANDIDATES = (
    "id",
    "uname",
    "hostname",
    "date",
    "pwd",
    "ls",
    "echo",
    "true",
    "wc -l",
    "git --version",
    "make --version",
)
_ANOTHER_DIGEST = "sha256:" + "0" * 64
# What a policy without a word about images gets, in containers and in machines.
_USUAL_IMAGE = "fumehood:latest"


@attack("commands", "Run a command that the policy does not allow: by itself, in a shell, and put together by a shell.")
async def run_what_is_not_allowed(lab: Laboratory) -> str:
    denied = next((line for line in _CANDIDATES if not judge(lab.policy.commands, line).allowed), None)
    if denied is None:
        raise NotTestedError(f"the policy allows each of: {', '.join(_CANDIDATES)}")
    lines = (denied, f"true; {denied}", f"$({denied})", f"sh -c '{denied}'", f"x={denied.split()[0]}; $x")
    for line in lines:
        result = await lab.run(argv=["sh", "-c", line])
        if result.status != Status.DENIED:
            raise BrokenError(f"{line!r} was not denied: {result.status}, {result.stdout[-100:]!r}")
    by_itself = await lab.run(argv=denied.split())
    if by_itself.status != Status.DENIED:
        raise BrokenError(f"{denied!r} was not denied: {by_itself.status}")
    return f"{denied!r} in {len(lines) + 1} ways: denied"


@use("commands", "Run a command that the policy allows.")
async def run_what_is_allowed(lab: Laboratory) -> str:
    for line in _CANDIDATES:
        if judge_argv(lab.policy.commands, line.split()).allowed:
            result = await lab.run(argv=line.split())
            if result.status == Status.DENIED:
                raise BrokenError(f"{line!r} was denied: {result.detail}")
            # One that is not installed is allowed all the same, and shows nothing.
            if result.status == Status.SUCCESS:
                return f"{line!r} ran"
    raise NotTestedError(f"the policy allows none that is here of: {', '.join(_CANDIDATES)}")


@attack(
    "commands",
    "Execute from a program, where no checker looks: one that no rule names, a file, and memory.",
    admitted=("is not held by the kernel",),
)
async def execute_what_is_not_named(lab: Laboratory) -> str:
    if lab.policy.commands.enforce == "parse":
        raise DoesNotApplyError("the policy has command lines judged, and says itself that programs are not held")
    if not lab.policy.commands.allow or judge_argv(lab.policy.commands, [_UNNAMED]).allowed:
        raise DoesNotApplyError(f"the policy names no programs, or {_UNNAMED} is one of them")
    tried = await lab.attempts(
        """
        import subprocess

        def written():
            with open("written", "w") as file:
                file.write("#!/bin/sh\\necho it ran\\n")
            os.chmod("written", 0o700)
            return subprocess.run(["./written"], capture_output=True).stdout

        def from_memory():
            with open(program, "rb") as file:
                content = file.read()
            descriptor = os.memfd_create("it")
            os.write(descriptor, content)
            return subprocess.run([f"/proc/self/fd/{descriptor}"], pass_fds=[descriptor], capture_output=True).stdout

        attempt("an open file in memory", lambda: os.memfd_create("it"))
        attempt("a program", lambda: subprocess.run([program], capture_output=True).stdout)
        attempt("a file that it wrote", written)
        attempt("a file in memory", from_memory)
        """,
        program=_UNNAMED,
    )
    return require_refusals(tried, ["a program", "a file that it wrote", "a file in memory", "an open file in memory"])


_UNNAMED = "/usr/bin/id"


@attack("image", "Open a sandbox with the image of that name where the policy pins another digest.")
async def use_another_image(lab: Laboratory) -> str:
    try:
        async with lab.sandbox(_pinned(lab, _ANOTHER_DIGEST)):
            raise BrokenError("a sandbox opened with an image of another digest than the policy's")
    except FumehoodError as error:
        return str(error)[:200]


@use("image", "Name the image that programs run in, and open a sandbox with the image of that name and digest.")
async def name_the_image(lab: Laboratory) -> str:
    result = await lab.run("print(1)")
    if not result.image_digest:
        raise BrokenError("the result names no image")
    async with lab.sandbox(_pinned(lab, result.image_digest)) as box:
        again = await box.run("print(1)")
    if again.image_digest != result.image_digest:
        raise BrokenError(f"pinned to {result.image_digest}, programs ran in {again.image_digest}")
    return result.image_digest


def _pinned(lab: Laboratory, digest: str) -> dict[str, Any]:
    """The image of the policy: one that is not there at all would be refused by every backend."""
    if (named := lab.policy.docker.image) and not lab.policy.image:
        return {"docker": {"image": f"{named.partition('@')[0]}@{digest}"}}
    return {"image": f"{(lab.policy.image or _USUAL_IMAGE).partition('@')[0]}@{digest}"}


@attack("docker", "Find the engine's socket in the container.")
async def find_the_engine(lab: Laboratory) -> str:
    code = """
    def engine(path):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(path)

    for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"):
        attempt(path, lambda: engine(path))
    """
    tried = await lab.attempts(code)
    return require_refusals(tried, ["/var/run/docker.sock", "/run/docker.sock"])


@use("docker", "Run a program in the container.")
async def run_in_the_container(lab: Laboratory) -> str:
    result = await lab.run("import os; print(os.uname().release)")
    if result.status != Status.SUCCESS:
        raise BrokenError(result.detail or result.stderr[-200:])
    return f"kernel inside: {result.stdout.strip()}"


TRIALS: tuple[Trial, ...] = (
    run_what_is_not_allowed,
    run_what_is_allowed,
    execute_what_is_not_named,
    use_another_image,
    name_the_image,
    find_the_engine,
    run_in_the_container,
)
