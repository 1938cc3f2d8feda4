"""The specification of an environment, as checked data, and the key under which it is kept.

A requirements file is read as far as one can be trusted with a build: packages, versions, markers and hashes. Options,
URLs, paths and further files are refused: they would let a file choose where packages come from, which is the policy's
to say, and the digest of an environment would no longer cover what is in it. Pure but for reading the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass
from typing import Self

from fumehood.errors import DeniedError, UsageError
from fumehood.host.interpreter import Interpreter, compatibility_tag, own_interpreter
from fumehood.policy import Environment as EnvironmentSection
from fumehood.policy.sections import check_requirement

_MAX_BYTES = 4 * 1024 * 1024
_HASH = re.compile(r"--hash[= ](?:sha256|sha384|sha512):[0-9a-f]{64,128}")
_COMMENT = re.compile(r"(?:^|\s)#.*")


@dataclass(frozen=True, slots=True)
class Requirements:
    lines: tuple[str, ...]
    """One package each, with its hashes."""
    are_hashed: bool
    """Then everything must be: a single package without a hash would undo the others'."""


def read_requirements(path: str) -> Requirements:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(0, "it is not a regular file")
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ValueError("it is larger than 4 MiB")
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"environment.requirements: {path} cannot be read: {reason}") from error
    return parse_requirements(text, name=path)


def parse_requirements(text: str, *, name: str) -> Requirements:
    lines: list[str] = []
    for number, line in _logical_lines(text):
        try:
            lines.append(_checked(line))
        except ValueError as error:
            raise UsageError(f"{name}: line {number}: {line[:200]!r} {error}") from None
    return Requirements(tuple(lines), any("--hash" in line for line in lines))


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Continued lines joined, comments and empty lines gone, with the number of their first line."""
    found: list[tuple[int, str]] = []
    start, pending = 0, ""
    for number, physical in enumerate([*text.splitlines(), ""], 1):
        start = start if pending else number
        is_comment = physical.lstrip().startswith("#")
        if physical.endswith("\\") and not is_comment:
            pending += physical[:-1] + " "
            continue
        line = " ".join(_COMMENT.sub("", pending + physical).split())
        pending = ""
        if line:
            found.append((start, line))
    return found


def _checked(line: str) -> str:
    if line.startswith("-"):
        raise ValueError("is an option; a policy takes packages, versions and hashes from this file, nothing else")
    package, *hashes = re.split(r" (?=--)", line)
    for option in hashes:
        if _HASH.fullmatch(option) is None:
            raise ValueError("has an option that is not a hash such as --hash=sha256:...")
    check_requirement(package)
    return " ".join([package, *(option.replace("--hash ", "--hash=") for option in hashes)])


def _open_at_once(name: str, flags: int) -> int:
    # A pipe in the place of the file would otherwise block us until a process writes to it.
    return os.open(name, flags | os.O_NONBLOCK)


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
