"""The files of a sandbox: what comes in from the host, how much may be written, and what may leave."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, field_validator

from fumehood.policy.paths import HostPath, OutputGlob, PathGlob, TargetPath, is_inside
from fumehood.policy.quantities import KIB, MAX_SIZE, Bounds, Size, format_size
from fumehood.policy.section import Distinct, Ordered, Section


class Mount(Section):
    """A file or folder of the host (`source`) that the sandbox sees at `target`."""

    source: HostPath = Field(
        description="The file or folder on the host. A relative path starts from the folder of the policy file."
    )
    target: TargetPath = Field(description="Where the sandbox sees it: an absolute path, such as /data.")
    mode: Literal["ro", "rw"] = Field(
        default="ro", description="`ro`: can be read. `rw`: programs write to the host's own files."
    )
    sockets: bool = Field(
        default=False,
        description=(
            "Whether unix sockets of the host may lie in it: programs can connect to them, in a read-only mount too."
        ),
    )

    @classmethod
    def written_out(cls, word: str) -> str:
        """The mapping for a mount in the notation of containers: SOURCE:TARGET, with an optional mode."""
        source, _, rest = word.partition(":")
        target, _, mode = rest.partition(":")
        return f"{{source: {source}, target: {target or '/data'}{', mode: rw' if mode == 'rw' else ''}}}"


class Workspace(Section):
    """The folder that runs write to; without a size, `resources.disk` bounds it."""

    size: Annotated[Size, Bounds(4 * KIB, MAX_SIZE, format_size)] | None = Field(
        default=None, description="How much it may hold. Without it, `resources.disk` is the limit."
    )


class Filesystem(Section):
    """No host files and no outputs unless listed; `outputs` are globs below the workspace.

    A pattern that begins with `/tmp/` is for sandboxes that keep their /tmp.
    """

    mounts: Ordered[Mount] = Field(
        default=(), description="Files and folders of the host that the sandbox sees. None by default."
    )
    workspace: Workspace = Field(
        default_factory=Workspace.defaults,
        description="The folder /workspace, which runs of a sandbox share and write to.",
    )
    outputs: Distinct[OutputGlob] = Field(
        default=(),
        description=(
            "Which files may leave: globs below the workspace, such as `out/**`. None by default. "
            "`/tmp/...` is for sandboxes that keep their /tmp."
        ),
    )

    @field_validator("mounts")
    @classmethod
    def _keep_targets_apart(cls, mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
        # Sorted by path components, whatever lies inside a target comes right after it; and since no two overlap,
        # their order says nothing.
        ordered = sorted(mounts, key=lambda mount: mount.target.split("/"))
        for outer, inner in pairwise(ordered):
            if inner.target == outer.target:
                raise ValueError(f"two mounts have the target {inner.target}; give each its own")
            if is_inside(inner.target, outer.target):
                raise ValueError(f"target {inner.target} is inside target {outer.target}; put them side by side")
        return tuple(ordered)


class Outputs:
    """Which files may leave: the patterns of `filesystem.outputs`."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        # Apart, because `**` means everything in the workspace and nothing outside of it.
        self._globs = {
            is_absolute: [PathGlob(pattern) for pattern in self.patterns if pattern.startswith("/") == is_absolute]
            for is_absolute in (False, True)
        }

    def match(self, path: str) -> bool:
        """May the file at this path leave? Relative to the workspace, or absolute."""
        return any(glob.accepts(path) for glob in self._globs[path.startswith("/")])

    def reach(self, folder: str) -> bool:
        """Could anything below this folder match? The empty path is the workspace."""
        return any(glob.goes_on_below(folder) for glob in self._globs[folder.startswith("/")])

    @property
    def ask_for_git(self) -> bool:
        """Version control folders run code when tools look at them, so they have to be named."""
        return any(".git" in pattern.split("/") for pattern in self.patterns)
