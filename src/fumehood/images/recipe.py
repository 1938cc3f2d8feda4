"""What an image is to be made of, as checked data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Self

from fumehood.backends.docker.labels import DEFAULT_IMAGE, image_of, split_digest
from fumehood.backends.languages import LANGUAGES, find_language
from fumehood.errors import UsageError
from fumehood.policy import Policy

DEFAULT_SUITE = "bookworm"
# What wheels and the standard library count on; wheels of C++ code come without its library.
_ALWAYS = ("python3", "python-is-python3", "libstdc++6", "ca-certificates", "tzdata")
_NAME = re.compile(r"[a-z0-9]+(?:[._/:-]+[a-z0-9]+)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?", re.ASCII)
_DEBIAN_WORD = re.compile(r"[a-z0-9][a-z0-9.+-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to build an image: from `base`, which the engine has or can fetch, or from Debian's packages of `suite`."""

    policy: Policy = field(default_factory=Policy)
    """Its packages, its engine, its digest."""
    name: str = DEFAULT_IMAGE
    base: str | None = None
    suite: str = DEFAULT_SUITE
    mirror: str | None = None
    languages: tuple[str, ...] = ()
    """Besides Python and the shells; their compilers are kept."""

    @classmethod
    def of(
        cls,
        policy: Policy,
        *,
        name: str | None = None,
        base: str | None = None,
        suite: str | None = None,
        mirror: str | None = None,
        languages: tuple[str, ...] = (),
    ) -> Self:
        if base is not None and (suite is not None or mirror is not None):
            raise UsageError(
                "an image is made either from --base or from Debian packages (--suite, --mirror): not both"
            )
        for option, word in (("--suite", suite), ("--mirror", mirror)):
            # A leading dash would be an option of mmdebstrap's.
            if word is not None and (word.startswith("-") or not word.strip() or any(map(str.isspace, word))):
                raise UsageError(f"{option} {word!r} must be one word, such as {_EXAMPLES[option]}")
        if suite is not None and _DEBIAN_WORD.fullmatch(suite) is None:
            raise UsageError(f"--suite {suite!r} must be the name of a Debian release, such as {DEFAULT_SUITE}")
        wanted = tuple(sorted({find_language(language).name for language in languages}))
        return cls(policy, _with_tag(name or _name_of(policy)), base, suite or DEFAULT_SUITE, mirror, wanted)

    @property
    def debian_packages(self) -> tuple[str, ...]:
        wanted = {package for name in self.languages for package in LANGUAGES[name].debian}
        return (*_ALWAYS, *sorted(wanted))


_EXAMPLES = {"--suite": DEFAULT_SUITE, "--mirror": "http://mirror.example/debian"}


def _name_of(policy: Policy) -> str:
    """What sandboxes with this policy will look for. A pinned digest cannot be built, only found again."""
    return split_digest(image_of(policy)).name


def _with_tag(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"--name {name!r} cannot be the name of an image; use lower case, such as analyst:1")
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
