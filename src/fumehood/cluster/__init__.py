"""A cluster: hosts whose sandboxes servers share, and what they meet by, a NATS server with mutual TLS.

Owns the cluster's certificate authority and credentials, what each member may say and hear, connections, and workers:
processes that offer the sandboxes of their host. Knows nothing of HTTP, keys of tenants, quotas or databases: servers
decide who gets a sandbox, and workers trust them in that.
"""
