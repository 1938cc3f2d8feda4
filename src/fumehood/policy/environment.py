"""What the interpreter in the sandbox has: packages, and modules that are imported beforehand."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from fumehood.policy.paths import HostPath
from fumehood.policy.section import Distinct, Ordered, Section, Text

# A name, extras, versions and a marker. Options (`-r x`), URLs and paths do not fit, so none can reach an installer.
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
    r"(?: ?\[[A-Za-z0-9._, -]+\])?"
    r"(?: ?(?:===|[=!~]=|[<>]=?) ?[A-Za-z0-9.*+!_-]+(?: ?, ?(?:===|[=!~]=|[<>]=?) ?[A-Za-z0-9.*+!_-]+)*)?"
    r"(?: ?;(?:(?!--)[^;#\\])+)?",
    re.ASCII,
)
_INDEX = re.compile(r"https?://[^\s/?#]+(?:[/?#]\S*)?")


def check_requirement(text: str) -> str:
    if _REQUIREMENT.fullmatch(text) is None:
        raise ValueError("must be a package with optional versions, such as pandas==2.3.*")
    return text


def _check_module(text: str) -> str:
    if not all(part.isidentifier() for part in text.split(".")):
        raise ValueError("must be a module name, such as pandas or os.path")
    return text


def _check_index(text: str) -> str:
    if _INDEX.fullmatch(text) is None:
        raise ValueError("must be the https:// address of a package index")
    return text


Requirement = Annotated[Text, AfterValidator(check_requirement)]
Module = Annotated[Text, AfterValidator(_check_module)]
Index = Annotated[Text, AfterValidator(_check_index)]


class Environment(Section):
    """The bare interpreter unless packages are listed; `preload` is imported in the order given."""

    packages: Distinct[Requirement] = Field(
        default=(),
        description=(
            "Packages with optional versions, such as pandas==2.2.*. Installed once, from wheels, and shown read-only."
        ),
    )
    requirements: HostPath | None = Field(
        default=None, description="A requirements file with more of them; may have hashes."
    )
    preload: Ordered[Module] = Field(
        default=(),
        description=(
            "Modules that are imported before a run starts, in this order, so that importing them costs "
            "the run nothing."
        ),
    )
    allow_sdists: bool = Field(default=False, description="Reserved: packages that have to be built are refused.")
    index: Index | None = Field(
        default=None, description="The address of a package index to use instead of the usual one."
    )

    @property
    def has_packages(self) -> bool:
        return bool(self.packages) or self.requirements is not None
