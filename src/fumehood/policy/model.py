"""The policy itself: the whole file format as frozen data, and what can be asked of it.

Owns the top-level keys and turns every refusal of the models into a PolicyError. The verbs live in modules of their own
and are imported when they are used, which keeps `import fumehood` quick.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fumehood.errors import PolicyError, UsageError
from fumehood.policy.approvals import Approval
from fumehood.policy.attempts import Expectation
from fumehood.policy.audit import Audit
from fumehood.policy.command_rules import Commands
from fumehood.policy.filesystem import Filesystem
from fumehood.policy.filters import Filters
from fumehood.policy.network import Network
from fumehood.policy.secret import Secret
from fumehood.policy.section import Ordered, Section, Text
from fumehood.policy.sections import Docker, Environment, Reference, Resources
from fumehood.policy.source import PolicyProblem, PolicySource

if TYPE_CHECKING:
    from fumehood.policy.lint import Finding


def _check_version(version: int) -> int:
    if version != 1:
        raise ValueError("must be 1, the only version of the format so far")
    return version


class Policy(Section):
    """What a sandbox may do. `Policy()` denies everything that can be denied; frozen, and equal by meaning."""

    version: Annotated[int, AfterValidator(_check_version)] = Field(
        default=1, description="The version of the file format; 1 is the only one."
    )
    name: Text | None = Field(
        default=None, description="A name for people and records. It changes nothing that is enforced."
    )
    backend: Literal["auto", "native", "docker", "gvisor", "microvm"] = Field(
        default="auto",
        description=(
            "What makes the sandbox. `auto` is `native`: processes on this kernel. `docker` and `gvisor` "
            "are containers; gVisor has a kernel of its own. `microvm` is a machine with a kernel of its own, in QEMU."
        ),
    )
    strict: bool = Field(
        default=False,
        description=(
            "Refuse to open where a control is enforced only in part, such as memory for each process "
            "instead of for all together."
        ),
    )
    filesystem: Filesystem = Field(
        default_factory=Filesystem.defaults,
        description=(
            "The files of the sandbox: what comes in from the host, how much may be written, and what may leave."
        ),
    )
    network: Network = Field(
        default_factory=Network.defaults, description="The way out. Without rules there is no network at all."
    )
    resources: Resources = Field(
        default_factory=Resources.defaults,
        description="How much a run may use. Every limit has a value; none is unbounded.",
    )
    environment: Environment = Field(
        default_factory=Environment.defaults, description="Python packages, and modules that are imported beforehand."
    )
    secrets: Ordered[Secret] = Field(
        default=(), description="Credentials that the gateway adds to requests. Their values never enter the sandbox."
    )
    commands: Commands = Field(
        default_factory=Commands.defaults,
        description="Which commands may run, in shells too. Without rules every program in the sandbox may.",
    )
    approvals: Ordered[Approval] = Field(default=(), description="Calls of tools that a person has to approve first.")
    filters: Filters = Field(
        default_factory=Filters.defaults, description="What is taken out of texts on their way to and from a model."
    )
    audit: Audit = Field(default_factory=Audit.defaults, description="What the audit log keeps, and how safely.")
    docker: Docker = Field(
        default_factory=Docker.defaults, description="Which container engine, for the backends `docker` and `gvisor`."
    )
    image: Reference | None = Field(
        default=None,
        description="The image of the containers, for example `fumehood:latest` or `name@sha256:...` to pin it.",
    )
    tests: Ordered[Expectation] = Field(
        default=(),
        description=(
            "What the policy is meant to allow and deny; `hood policy test` checks it. It changes nothing "
            "that is enforced."
        ),
    )

    if TYPE_CHECKING:
        # Sections may be given as plain mappings, with sizes as text, which the fields' own types do not say.
        def __init__(self, **fields: object) -> None: ...

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The policy in a file; relative paths in it start from the file's folder.

        The file is read each time, and parsed again when its text has changed.
        """
        from fumehood.policy.source import read_file

        return cls.load_content(read_file(path), path)

    @classmethod
    def load_content(cls, content: bytes, path: str | os.PathLike[str]) -> Self:
        """The policy in a file that was read already."""
        from fumehood.policy.source import depends_on_homes

        name, base = os.fspath(path), os.path.dirname(os.path.abspath(path))
        return (cls.loads if depends_on_homes(content) else cls._parsed)(content, name, base)

    @classmethod
    def named(cls, name: str) -> Self:
        """A policy that comes with the package, such as `data-science`; `hood policy list` has them all."""
        from fumehood.policy.named import file_of, is_name

        if not is_name(name):
            raise UsageError(f"{name!r} is not the name of a policy; Policy.load(path) reads a file")
        return cls.load(file_of(name, "the name"))

    @classmethod
    @lru_cache(maxsize=16)
    def _parsed(cls, text: bytes, name: str, base: str) -> Self:
        return cls.loads(text, name, base)

    @classmethod
    def loads(cls, text: str | bytes, name: str = "<policy>", base: str | os.PathLike[str] | None = None) -> Self:
        """The policy in a text; relative paths in it start from `base`, by default the current folder."""
        from fumehood.policy.source import parse

        data, source = parse(text, name=name, base=None if base is None else os.path.abspath(base))
        return cls.model_validate(data, context=source)

    @cached_property
    def digest(self) -> str:
        """`sha256:...` over what is enforced: the same for every spelling, and whatever `name` and `tests` say."""
        from fumehood.policy.canonical_form import digest_meaning

        return digest_meaning(self.meaning)

    @classmethod
    def of_meaning(cls, meaning: str | bytes, name: str | None = None) -> Policy:
        """The policy that means this; whether it does to this version, too, is seen in its digest."""
        from fumehood.policy.canonical_form import read_meaning

        return cls.model_validate({**read_meaning(meaning), "name": name})

    @cached_property
    def meaning(self) -> bytes:
        """What the digest is a digest of."""
        from fumehood.policy.canonical_form import canonical_meaning

        return canonical_meaning(self)

    @cached_property
    def as_strict(self) -> Policy:
        """The same policy, refused where a limit of it is enforced only in part."""
        return self if self.strict else self.override({"strict": True})

    @property
    def workspace_bytes(self) -> int:
        """How much the workspace may hold."""
        size = self.filesystem.workspace.size
        return self.resources.disk if size is None else size

    def diff(self, other: Policy) -> list[str]:
        """What changes, in words, when `other` takes the place of this policy."""
        from fumehood.policy.difference import compare

        return compare(self, other)

    def lint(self) -> list[Finding]:
        """What is allowed here but dangerous."""
        from fumehood.policy.lint import inspect

        return inspect(self)

    def dangers(self) -> list[Finding]:
        """The findings of `lint` that endanger the host or its credentials. Opening a sandbox warns of them."""
        from fumehood.policy.lint import dangers

        return dangers(self)

    def override(self, changes: Mapping[str, object]) -> Self:
        """A checked copy with these keys changed: sections are merged, lists and values replaced."""
        return type(self).model_validate(_merge(self.model_dump(), changes))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Checked as well: pydantic's own would take any value and keep the old digest."""
        return type(self).model_validate({**self.model_dump(), **(update or {})})

    @field_validator("secrets")
    @classmethod
    def _keep_secrets_apart(cls, secrets: tuple[Secret, ...]) -> tuple[Secret, ...]:
        ordered = sorted(secrets, key=lambda secret: secret.name)
        for first, second in pairwise(ordered):
            if first.name == second.name:
                raise ValueError(f"two secrets have the name {first.name}; give each its own")
        places: dict[tuple[str, str], str] = {}
        for secret in ordered:
            place = secret.inject.host, secret.inject.header.lower()
            if (other := places.setdefault(place, secret.name)) != secret.name:
                raise ValueError(f"{other} and {secret.name} are for the same header of the same host; choose one")
        return tuple(ordered)

    @model_validator(mode="wrap")
    @classmethod
    def _explain_refusal(cls, value: object, check: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        source = info.context if isinstance(info.context, PolicySource) else PolicySource()
        problems: list[PolicyProblem] = []
        try:
            policy = check(value)
        except ValidationError as error:
            from fumehood.policy.explanation import explain

            problems = explain(error, cls)
        else:
            if not source.problems:
                return policy
        raise PolicyError(source.report(problems))


@cache
def deny_all() -> Policy:
    """`Policy()`, the same object each time: what is computed from a policy is computed once."""
    return Policy.defaults()


def _merge(old: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    merged = dict(old)
    for key, value in changes.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = _merge(cast("Mapping[str, object]", before), cast("Mapping[str, object]", value))
        else:
            merged[key] = value
    return merged
