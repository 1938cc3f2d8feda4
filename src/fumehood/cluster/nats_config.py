"""The configuration of the cluster's NATS server: mutual TLS, accounts by signed tokens, JetStream on disk."""

from __future__ import annotations

import json
from pathlib import Path

from fumehood.cluster.authority import SYSTEM, ClusterAuthority
from fumehood.cluster.certificates import key_pem, make_key
from fumehood.cluster.credentials import write_private
from fumehood.cluster.folder import FOLDER

CONFIG = "nats.conf"


def write_config(authority: ClusterAuthority, folder: Path, listen: str, hosts: list[str]) -> Path:
    """All files of the NATS server, in a folder of their own; returns that of its configuration."""
    FOLDER.make(folder)
    FOLDER.make(folder / "accounts")
    key = make_key()
    write_private(folder / "server.key", key_pem(key))
    write_private(folder / "server.pem", authority.certificates.issue(key.public_key(), "nats", hosts=hosts))
    write_private(folder / "ca.pem", authority.certificates.pem)
    write_private(folder / "operator.jwt", authority.operator_token)
    for name in authority.accounts:
        write_private(folder / "accounts" / f"{authority.account(name).public}.jwt", authority.account_token(name))
    write_private(folder / CONFIG, _config(authority, folder, listen))
    return folder / CONFIG


def _config(authority: ClusterAuthority, folder: Path, listen: str) -> str:
    def place(name: str) -> str:
        return json.dumps(str(folder / name))

    system = authority.account(SYSTEM).public
    return f"""\
listen: {json.dumps(listen)}
# Every client shows a certificate of the cluster's authority, before anything else is said.
tls {{
  cert_file: {place("server.pem")}
  key_file: {place("server.key")}
  ca_file: {place("ca.pem")}
  verify: true
  timeout: 5
}}
operator: {place("operator.jwt")}
system_account: {system}
# Accounts are pushed by the cluster's authority while this runs; no other key signs one.
resolver {{ type: full, dir: {place("accounts")}, allow_delete: false, interval: "2m" }}
resolver_preload {{ {system}: {authority.account_token(SYSTEM)} }}
jetstream {{ store_dir: {place("jetstream")} }}
max_payload: 2MB
# The token of a runtime with several types of agents lists some hundred subjects.
max_control_line: 64KB
# A client that does not answer is cut off after some seconds, and can connect anew. What a worker had is not taken
# for lost by that: its lease says so.
ping_interval: "2s"
ping_max: 3
write_deadline: "5s"
"""
