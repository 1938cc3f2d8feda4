"""The control plane: sandboxes are opened, found, listed, given more time, narrowed and closed."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fumehood.policy import Policy
from fumehood.policy.quantities import MIB
from fumehood.server.e2b.access import Control
from fumehood.server.e2b.bodies import read_json
from fumehood.server.e2b.errors import NotHereError
from fumehood.server.e2b.fields import field, section, texts
from fumehood.server.e2b.listing import ListQuery
from fumehood.server.e2b.sandboxes import E2bSandbox
from fumehood.server.e2b.templates import Template, find_template, narrowed
from fumehood.server.e2b.usage import timestamp
from fumehood.server.identity.principals import Principal
from fumehood.server.sandboxes import records
from fumehood.server.sandboxes.records import SandboxRecord

ENVD_VERSION = "0.6.7"
_CONTROL_BYTES = MIB
_SECONDS = 300
_NOT_HERE = {
    "autoPause": "sandboxes are not paused; one that ends is gone",
    "mcp": "its gateway is not there; `hood mcp serve` is an MCP server of its own",
    "iam": "identities of workloads are not there",
    "volumeMounts": "volumes are not there; upload what programs need",
}


async def create(control: Control, request: Request, principal: Principal) -> Response:
    body = await read_json(request, _CONTROL_BYTES)
    for key, why in _NOT_HERE.items():
        if body.get(key):
            raise NotHereError(f"{key} is not there: {why}")

    async def work() -> E2bSandbox:
        template = await find_template(control.database, principal.tenant, field(body, "templateID", str, "base"))
        internet = field(body, "allow_internet_access", bool, True)
        policy = narrowed(template.policy, section(body, "network"), internet=internet)
        return await control.sandboxes.open(
            principal,
            Template(template.name, policy),
            field(body, "timeout", int, _SECONDS),
            texts(body, "metadata"),
            texts(body, "envVars"),
        )

    key = request.headers.get("idempotency-key", "")[:256]
    sandbox = await control.openings.once(principal.tenant, key, body, work)
    return JSONResponse(_created(control, request, principal, sandbox), 201)


async def detail(control: Control, request: Request, principal: Principal) -> Response:
    sandbox = await _mine(control, request, principal)
    return JSONResponse(
        {
            **_created(control, request, principal, sandbox),
            **_times_and_size(sandbox.started, sandbox.opened.expires, sandbox.template.policy),
            "metadata": dict(sandbox.metadata),
            "allowInternetAccess": bool(sandbox.box.policy.network.allow),
        }
    )


async def list_sandboxes(control: Control, request: Request, principal: Principal) -> Response:
    query = ListQuery.of(request.query_params)
    page, token = query.page(await records.list_open(control.database, principal.tenant))
    headers = {"x-next-token": token} if token else {}
    return JSONResponse([_listed(control, record) for record in page], headers=headers)


def _listed(control: Control, record: SandboxRecord) -> dict[str, Any]:
    sandbox = control.sandboxes.find_open(record.id)
    expires = sandbox.opened.expires if sandbox else record.expires
    return {
        "templateID": record.policy,
        "sandboxID": record.id,
        "clientID": "fumehood",
        "envdVersion": ENVD_VERSION,
        "metadata": dict(record.metadata),
        **_times_and_size(record.opened, expires, sandbox.template.policy if sandbox else Policy()),
    }


async def connect(control: Control, request: Request, principal: Principal) -> Response:
    """To one that runs. Its end is moved away, never nearer."""
    body = await read_json(request, _CONTROL_BYTES)
    sandbox = await _mine(control, request, principal)
    seconds = control.sandboxes.checked_lifetime(field(body, "timeout", int, _SECONDS))
    if time.time() + seconds > sandbox.opened.expires:
        sandbox.opened.extend(seconds)
    return JSONResponse(_created(control, request, principal, sandbox))


async def set_timeout(control: Control, request: Request, principal: Principal) -> Response:
    body = await read_json(request, _CONTROL_BYTES)
    sandbox = await _mine(control, request, principal)
    sandbox.opened.extend(control.sandboxes.checked_lifetime(field(body, "timeout", int)))
    return Response(status_code=204)


async def refresh(control: Control, request: Request, principal: Principal) -> Response:
    body = await read_json(request, _CONTROL_BYTES)
    sandbox = await _mine(control, request, principal)
    seconds = control.sandboxes.checked_lifetime(field(body, "duration", int, _SECONDS))
    if time.time() + seconds > sandbox.opened.expires:
        sandbox.opened.extend(seconds)
    return Response(status_code=204)


async def kill(control: Control, request: Request, principal: Principal) -> Response:
    await control.sandboxes.close(principal.tenant, request.path_params["id"])
    return Response(status_code=204)


async def metrics(control: Control, request: Request, principal: Principal) -> Response:
    sandbox = await _mine(control, request, principal)
    return JSONResponse([await sandbox.usage.metric()])


async def change_network(control: Control, request: Request, principal: Principal) -> Response:
    """Within the policy that it was opened with: what that allows, or less."""
    body = await read_json(request, _CONTROL_BYTES)
    sandbox = await _mine(control, request, principal)
    network = narrowed(sandbox.template.policy, body, internet=True).network
    allowed = network.model_copy(update={"publish": sandbox.box.policy.network.publish})
    await sandbox.box.change_policy(sandbox.box.policy.model_copy(update={"network": allowed}))
    return Response(status_code=204)


async def not_here(control: Control, request: Request, principal: Principal) -> Response:
    raise NotHereError(f"{request.method} {request.url.path} of E2B's API is not there; see docs/e2b.md for what is")


async def _mine(control: Control, request: Request, principal: Principal) -> E2bSandbox:
    return await control.sandboxes.find(principal.tenant, request.path_params["id"])


def _created(control: Control, request: Request, principal: Principal, sandbox: E2bSandbox) -> dict[str, Any]:
    """With a token of the caller's own, which is good as long as its key."""
    token = sandbox.opened.tokens.of(principal.name)
    return {
        "templateID": sandbox.template.name,
        "sandboxID": sandbox.id,
        "clientID": "fumehood",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": token,
        "trafficAccessToken": token,
        "domain": control.terms.domain or f"localhost:{request.url.port or 80}",
    }


def _times_and_size(started: float, ends: float, policy: Policy) -> dict[str, Any]:
    return {
        "startedAt": timestamp(started),
        "endAt": timestamp(ends),
        "state": "running",
        "cpuCount": max(1, round(policy.resources.cpus)),
        "memoryMB": policy.resources.memory // MIB,
        "diskSizeMB": policy.workspace_bytes // MIB,
    }
