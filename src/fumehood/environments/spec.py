"""The specification of an environment, as checked data, and the key under which it is kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from fumehood.environments.requirements import read_requirements
from fumehood.errors import DeniedError, UsageError
from fumehood.host.interpreter import Interpreter, compatibility_tag, own_interpreter
from fumehood.policy import Environment as EnvironmentSection

# Changes when the same specification would be installed differently, so that what an older release made is not used.
_LAYOUT = 1


@dataclass(frozen=True, slots=True)
class Target:
    """Another Python than this one, in an image."""

    version: tuple[int, int]
    platform: str
    """The platform in uv's notation: x86_64-manylinux_2_36."""


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    packages: tuple[str, ...]
    """Each as in a requirements file, with its hashes if there are any."""
    are_hashed: bool
    index: str | None
    interpreter: Interpreter
    tag: str
    target: Target | None = None
    """The interpreter that the packages are for, if it is not our own."""

    @classmethod
    def of(cls, section: EnvironmentSection, target: Target | None = None) -> Self:
        """The specification that a section of a policy asks for."""
        _refuse_sdists(section)
        packages, are_hashed = section.packages, False
        if section.requirements is not None:
            listed = read_requirements(section.requirements)
            if listed.are_hashed and packages:
                raise UsageError(
                    f"environment.packages: {packages[0]} has no hash, but {section.requirements} has some, so that "
                    "everything needs one; move the package into that file, with its hash"
                )
            packages, are_hashed = (*packages, *listed.lines), listed.are_hashed
        own, tag = own_interpreter(), compatibility_tag()
        return cls(tuple(sorted(packages)), are_hashed, section.index, own, tag, target)

    @property
    def request(self) -> str:
        """SHA-256 of what the policy says, whatever it is installed for."""
        return _digest(self._requested())

    @property
    def key(self) -> str:
        """SHA-256 of all that decides what gets installed. The order of packages says nothing."""
        target = {"target": [*self.target.version, self.target.platform]} if self.target else {}
        meaning = {
            "layout": _LAYOUT,
            **self._requested(),
            # The interpreter's path is written into the first line of the packages' scripts.
            "interpreter": self.interpreter.executable,
            "tag": self.tag,
            **target,
        }
        return _digest(meaning)

    def _requested(self) -> dict[str, object]:
        return {"packages": sorted(self.packages), "are_hashed": self.are_hashed, "index": self.index}


def _digest(meaning: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode("ascii")).hexdigest()


def _refuse_sdists(section: EnvironmentSection) -> None:
    # Building one runs the package's own code, which could change what the other packages of the environment are.
    if section.allow_sdists:
        raise DeniedError(
            "environment.allow_sdists: building a package from source runs its code while others are installed "
            "beside it, so it is not done. Choose releases that have wheels and remove the key."
        )
