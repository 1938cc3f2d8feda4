"""The folder of a cluster on one host, and what is where in it."""

from __future__ import annotations

from fumehood.host.folders import PrivateFolder

FOLDER = PrivateFolder("a cluster", "FUMEHOOD_CLUSTER")
AUTHORITY = "authority"
"""The keys that make members; on one host alone."""
NATS = "nats"
"""The configuration of NATS, and what it stores."""
SERVER_FILE, WORKER_FILE = "server.creds", "worker.creds"
"""Credentials of the server and of the worker of this host."""
WORKER = "worker"
"""What a worker keeps for its tenants: `tenants/NAME`, audit logs included."""
