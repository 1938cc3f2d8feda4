"""Sections of a policy that are a few keys each: resources, environment, docker."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from fumehood.policy.paths import HostPath
from fumehood.policy.quantities import KIB, MAX_SIZE, MIB, Bounds, Duration, Size, format_size
from fumehood.policy.section import Distinct, Ordered, Section, Text


class Resources(Section):
    """Seconds, bytes and counts; `cpu_time` is bounded by `timeout` and `cpus` when it is not given."""

    timeout: Duration = Field(default=30.0, description="How long a run may take by the clock.")
    cpu_time: Duration | None = Field(
        default=None,
        description="How much CPU time each process may use. Without it `timeout` and `cpus` are the bounds.",
    )
    memory: Annotated[Size, Bounds(16 * MIB, MAX_SIZE, format_size)] = Field(
        default=512 * MIB, description="How much memory a run may use, files in /tmp and in the workspace included."
    )
    cpus: Annotated[float, Bounds(0.01, 1024.0)] = Field(
        default=1.0, description="How many processors a run may keep busy; 0.5 is half of one."
    )
    processes: Annotated[int, Bounds(1, 4_194_304)] = Field(
        default=64, description="How many processes and threads a run may have at a time."
    )
    disk: Annotated[Size, Bounds(4 * KIB, MAX_SIZE, format_size)] = Field(
        default=256 * MIB,
        description="How much a run may write to /tmp, /dev/shm and /run together, and to the workspace.",
    )
    inodes: Annotated[int, Bounds(16, 1_000_000_000)] = Field(
        default=65536, description="How many files and folders these may hold."
    )
    output: Size = Field(default=MIB, description="How much a run may write to its standard output and error together.")
    open_files: Annotated[int, Bounds(16, 1_048_576)] = Field(
        default=256, description="How many files each process may have open."
    )
    artifacts: Annotated[int, Bounds(1, 100_000)] = Field(
        default=1000, description="How many files a run may hand over."
    )
    artifacts_size: Size = Field(default=256 * MIB, description="How large these may be together.")


# A name, extras, versions and a marker. Options (`-r x`), URLs and paths do not fit, so none can reach an installer.
# Patterns here are compiled at their first use, which most runs do not have.
_REQUIREMENT = (
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
    r"(?: ?\[[A-Za-z0-9._, -]+\])?"
    r"(?: ?(?:===|[=!~]=|[<>]=?) ?[A-Za-z0-9.*+!_-]+(?: ?, ?(?:===|[=!~]=|[<>]=?) ?[A-Za-z0-9.*+!_-]+)*)?"
    r"(?: ?;(?:(?!--)[^;#\\])+)?"
)
_INDEX = r"https?://[^\s/?#]+(?:[/?#]\S*)?"


def check_requirement(text: str) -> str:
    if re.fullmatch(_REQUIREMENT, text, re.ASCII) is None:
        raise ValueError("must be a package with optional versions, such as pandas==2.3.*")
    return text


def project_name(requirement: str) -> str:
    """The name of the package, in the spelling that all its spellings have in common."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]).lower()


def _check_module(text: str) -> str:
    if not all(part.isidentifier() for part in text.split(".")):
        raise ValueError("must be a module name, such as pandas or os.path")
    return text


def _check_index(text: str) -> str:
    if re.fullmatch(_INDEX, text) is None:
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


_ENGINE = r"unix:///\S+|(?:tcp|ssh)://[^\s/]+\S*"
_WORD = r"[A-Za-z0-9][A-Za-z0-9_.:/@-]*"


def _check_engine(text: str) -> str:
    if re.fullmatch(_ENGINE, text) is None:
        raise ValueError("must be the address of an engine: unix:///path, tcp://host:port or ssh://user@host")
    return text


def _check_word(text: str) -> str:
    # A leading dash would be read as an option by whatever it is handed to.
    if re.fullmatch(_WORD, text, re.ASCII) is None:
        raise ValueError("must be a name such as python:3.12-slim or runsc")
    return text


Reference = Annotated[Text, AfterValidator(_check_word)]


class Docker(Section):
    """The local engine with its default runtime unless said otherwise."""

    host: Annotated[Text, AfterValidator(_check_engine)] | None = Field(
        default=None,
        description=(
            "The engine's address: unix:///path, tcp://host:port or ssh://user@host. Without it, the local engine."
        ),
    )
    image: Reference | None = Field(default=None, description="The image, where `image` at the top does not name one.")
    runtime: Reference | None = Field(default=None, description="The engine's runtime, such as runc or runsc.")
    interpreter: Reference | None = Field(
        default=None, description="The image that lends its Python to images that have none."
    )
    tls_ca: HostPath | None = Field(
        default=None, description="The file with the authority that signed the engine's certificate."
    )
    tls_cert: HostPath | None = Field(default=None, description="The file with our certificate.")
    tls_key: HostPath | None = Field(default=None, description="The file with its key.")

    @model_validator(mode="after")
    def _require_certificate_and_key(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key need each other")
        return self
