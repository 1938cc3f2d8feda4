"""A server of the Model Context Protocol (MCP): `hood mcp`. Each client gets a sandbox of its own.

    context      the settings of the server; the client's data in a request
    clients      the clients that are connected, each with a sandbox from its first call until it disconnects
    tools        the tools as clients see them; Python sessions, which keep their state
    calls        one call: bounded, watched, performed, answered
    results      results of calls, and files that the policy lets out, as the protocol has them
    approvals    asks through the client, or answers who can be asked
    server       the methods of the protocol, put together
    stdio, http  the transports; http_access checks tokens and origins

Owns the shape of messages. What may be done is decided below: every call goes through a `Toolbox`, so that policy,
approvals, command rules, filters and the audit log apply as they do to any other model. Must not know the command line.
"""

from importlib.util import find_spec

if find_spec("mcp") is None:
    raise ImportError("fumehood.integrations.mcp needs the protocol's SDK: pip install 'fumehood[mcp]'")

from fumehood.integrations.mcp.context import ToolServerSettings
from fumehood.integrations.mcp.http import HttpEndpoint, serve_http
from fumehood.integrations.mcp.stdio import serve_stdio

__all__ = ["HttpEndpoint", "ToolServerSettings", "serve_http", "serve_stdio"]
