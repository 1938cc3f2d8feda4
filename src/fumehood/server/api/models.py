"""Bodies of requests and answers, which are the OpenAPI document."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fumehood.policy.quantities import parse_duration, parse_size
from fumehood.policy.section import refuse_control_characters
from fumehood.server.identity.principals import Scope
from fumehood.server.tenants.policy_work import MOST_POLICY_CHARACTERS
from fumehood.server.tenants.quotas import Quota

_MOST_ARGUMENTS = 256 * 1024
Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,128}$")]


def _check_duration(value: float | str) -> float:
    return parse_duration(value)


def _check_size(value: int | float | str) -> float:
    return parse_size(value) if isinstance(value, str) else float(value)


def _check_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be Unicode, without lone surrogates") from None
    if "\0" in text:
        raise ValueError("must not have a NUL character")
    return text


Seconds = Annotated[float | str, AfterValidator(_check_duration)]
"""`30s`, `5m`, or a number of seconds."""
Label = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(refuse_control_characters)]
Plain = Annotated[str, AfterValidator(_check_unicode)]
Amount = Annotated[int | float | str, AfterValidator(_check_size)]


class ApiModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NewSandbox(ApiModel):
    policy: Label | None = Field(default=None, description="A policy of the tenant's catalogue.")
    lifetime: Seconds | None = Field(default=None, description="After which it is closed, whatever happens in it.")
    idle: Seconds | None = Field(default=None, description="After which it is closed if it is not used.")
    metadata: dict[Label, Annotated[Plain, Field(max_length=256)]] = Field(
        default_factory=dict[str, str], max_length=32
    )
    session: bool = Field(default=False, description="Python code runs in one session, which keeps its state.")
    keep_tmp: bool = Field(default=False, description="Runs share /tmp as they share the workspace.")
    resources: dict[str, int | float | str] = Field(
        default_factory=dict[str, int | float | str], description="Lower limits than the policy's."
    )
    offline: bool = Field(default=False, description="Without the network that the policy allows.")


class SandboxAnswer(ApiModel):
    id: str
    policy: str
    policy_digest: str
    metadata: dict[str, str]
    opened_at: float
    expires_at: float
    opened_by: str
    enforcement: dict[str, str] | None = None
    token: str | None = Field(default=None, description="To come back to it over the channel; shown once.")


class NewRun(ApiModel):
    code: Plain | None = None
    argv: list[Plain] | None = Field(default=None, min_length=1, description="A command instead of code.")
    args: list[Plain] = Field(default_factory=list[str])
    language: Label = "python"
    name: Label | None = Field(default=None, description="The file name in tracebacks.")
    env: dict[Plain, Plain] = Field(default_factory=dict[str, str])
    cwd: Plain = ""
    timeout: Seconds | None = None
    stdin: Plain | None = None
    background: bool = Field(default=False, description="Answer at once, with an id to ask for later.")
    terminal: tuple[int, int] | None = Field(default=None, description="Columns and rows; only in the background.")


class RunState(ApiModel):
    id: str
    sandbox: str
    is_over: bool
    result: dict[str, Any] | None = None


class RunNews(ApiModel):
    """What a run has written since it was last asked."""

    stdout: str
    stderr: str
    is_over: bool


class RunInput(ApiModel):
    data: Plain = ""
    close: bool = Field(default=False, description="No more input follows.")


class RunSignal(ApiModel):
    signal: int = Field(ge=1, le=64)


class NewFolder(ApiModel):
    path: Plain
    parents: bool = True


class FileList(ApiModel):
    entries: list[dict[str, Any]]


class PolicyText(ApiModel):
    text: Annotated[Plain, Field(max_length=MOST_POLICY_CHARACTERS)]


class PolicyAnswer(ApiModel):
    name: str
    version: int
    digest: str
    author: str
    created_at: float
    text: str | None = None


class PolicyQuestion(ApiModel):
    attempt: Annotated[Plain, Field(max_length=4096)]


class PolicyDecision(ApiModel):
    attempt: str
    allowed: bool
    reason: str
    rule: str | None
    fix: str


class PolicyTestReport(ApiModel):
    passed: bool
    tests: list[dict[str, Any]]


class PolicyChanges(ApiModel):
    changes: list[str]


class NewKey(ApiModel):
    name: Label
    scopes: list[Scope] = Field(min_length=1)
    days: Annotated[float, Field(gt=0, le=36500)] | None = Field(default=None, description="For which it is valid.")
    networks: list[Label] = Field(default_factory=list[str], max_length=32)


class KeyAnswer(ApiModel):
    id: str
    name: str
    scopes: list[Scope]
    networks: list[str]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    key: str | None = Field(default=None, description="The key itself; shown once.")


class SentMountAnswer(ApiModel):
    id: str
    entries: int


class CallerAnswer(ApiModel):
    principal: str
    tenant: str
    scopes: list[Scope]
    expires_at: float | None = Field(description="The end of a token.")


class QuotaAnswer(ApiModel):
    quota: Quota
    limit: float
    used: float | None
    set_by: str
    resets_at: float | None


class NewQuota(ApiModel):
    value: Amount


class UsageAnswer(ApiModel):
    since: float
    until: float
    total: dict[str, float]
    hours: list[dict[str, Any]]


class NewTenant(ApiModel):
    name: Label


class TenantAnswer(ApiModel):
    name: str
    created_at: float


class NewSecret(ApiModel):
    value: Plain


class SecretAnswer(ApiModel):
    name: str
    set_by: str
    set_at: float


def _check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(arguments)) > _MOST_ARGUMENTS:
        raise ValueError(f"must have at most {_MOST_ARGUMENTS} characters as JSON: more is not read before an answer")
    return arguments


class NewApproval(ApiModel):
    tool: Label
    arguments: Annotated[dict[str, Any], AfterValidator(_check_arguments)]
    policy: Label
    code: Label | None = Field(default=None, description="Which of the arguments is code.")
    language: str = ""
    wait: Seconds = Field(default=600.0, description="How long the question stands.")


class ApprovalAnswerBody(ApiModel):
    approved: bool
    digest: Plain = Field(description="The digest that was shown with the question.")
    reason: Annotated[Plain, Field(max_length=2000)] = ""


class ApprovalUse(ApiModel):
    digest: Plain


class ApprovalDetails(ApiModel):
    id: str
    state: str
    tool: str
    arguments: dict[str, Any]
    digest: str
    risk: str
    policy: str | None
    asked_by: str
    asked_at: float
    expires_at: float
    answered_by: str | None
    reason: str | None
    approved: dict[str, Any] | None = Field(
        description="`arguments` and `digest` of the call that was approved in its place, by somebody who changed it."
    )


class WorkerAnswer(ApiModel):
    name: str
    epoch: int
    state: str = Field(description="ready, draining, or resting after openings that failed.")
    version: str
    backends: list[str]
    slots: int
    free: int
    labels: dict[str, str]
    tenants: list[str] = Field(description="Those that it serves; all if there is none.")
    failure: str = Field(description="How the last opening that failed there did.")


class NewNamed(ApiModel):
    name: Label
    policy: Label | None = Field(default=None, description="A policy of the tenant's catalogue, which it keeps.")
    document: dict[str, Any] | None = Field(
        default=None, description="A policy as a client packs it; takes the scope `policies`."
    )
    snapshot: Label | None = Field(default=None, description="What it begins with, by name or id; else it is empty.")


class NamedAnswer(ApiModel):
    name: str
    snapshot: str = Field(description="The id of its state.")
    policy: str = Field(description="What its policy means, in the form that the digest covers.")
    policy_digest: str
    policy_name: str | None
    created: float
    used: float
    files: int
    size_bytes: int


class NewForks(ApiModel):
    names: list[Label] = Field(min_length=1, max_length=100)


class NewSnapshot(ApiModel):
    name: Label | None = None


class MadeSnapshot(ApiModel):
    id: str
    name: str | None
    files: int
    size_bytes: int
    new_bytes: int
    skipped: list[str]


class KeptSnapshot(ApiModel):
    snapshot: str = Field(description="Its id.")
    name: str | None
    sandbox: str | None = Field(description="The named sandbox that it was made of.")
    created: float
    files: int
    size_bytes: int
