"""A server of the Model Context Protocol: `hood mcp`. Any client of that protocol gets a sandbox of its own.

    settings     what a server is told once
    clients      who is connected; each has a place, from its first call until it leaves
    place        one client's sandbox, with its toolbox and its sessions
    catalogue    the tools as clients see them; sessions has those for Python that keeps its state
    calling      one call: bounded, watched (live), carried out, told (results)
    consent      approvals: asks through the client, or says who can be asked
    artifacts    files that the policy lets out, as resources
    server       the protocol's methods, put together
    stdio, http  how messages come in; admission is from whom, over HTTP

Owns the shape of messages. What may be done is decided below: every call goes through a `Toolbox`, so that policy,
approvals, command rules, filters and the audit log apply as they do to any other model. Must not know the command line.
"""

from importlib.util import find_spec

if find_spec("mcp") is None:
    raise ImportError("fumehood.integrations.mcp needs the protocol's SDK: pip install 'fumehood[mcp]'")

from fumehood.integrations.mcp.http import Listening, serve_http
from fumehood.integrations.mcp.settings import Settings
from fumehood.integrations.mcp.stdio import serve_stdio

__all__ = ["Listening", "Settings", "serve_http", "serve_stdio"]
