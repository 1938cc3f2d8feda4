"""The runtime over processes and hosts: agents of several processes exchange messages through NATS JetStream.

    async with NatsRuntime("tls://nats.example:4222", process="coder-1") as runtime:   # was: LocalRuntime()
        await runtime.register("coder", Coder, grants=grants)                          # unchanged

Owns subjects and permissions, the directory of types, grants and subscriptions, which process is the home of an agent,
and how requests and publications travel. Agents, mailboxes, dispatch, interceptors and records are those of the local
runtime. Must not know how the NATS servers are set up.
"""

from fumehood.runtime.nats.connection import NatsConnection
from fumehood.runtime.nats.runtime import NatsRuntime
from fumehood.runtime.nats.subjects import ProcessPermissions, process_permissions

__all__ = ["NatsConnection", "NatsRuntime", "ProcessPermissions", "process_permissions"]
