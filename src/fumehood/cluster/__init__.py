"""A cluster: hosts whose sandboxes servers share, and what they meet by, a NATS server with mutual TLS.

Owns the cluster's certificate authority and credentials, what each member may say and hear, connections, and workers:
processes that offer the sandboxes of their host. Knows nothing of HTTP, keys of tenants, quotas or databases: servers
decide who gets a sandbox, and workers trust them in that.

    folder                          what is where on a host of the cluster
    authority, claims, nkeys, certificates, permissions  who makes members, and what each of them may say and hear
    join, credentials               how a machine becomes a member, and the file that it gets
    nats_config, accounts, stream_accounts  what NATS is configured with, and given while it runs
    connection, subjects, carrier   to NATS | who speaks to whom | the messages of one sandbox
    worker, lease                   a worker's life | its epoch, renewed every second
    worker_service, opening, hosted_sandbox, workspace_calls, tenant_meter  what it does for servers

An opening goes from `server/fleet/placed_connection.py` by a `SubjectCarrier` to `WorkerService.take`, which opens a
`HostedSandbox`; from then on both ends speak as a client and a server do (`fumehood.remote`).
"""
