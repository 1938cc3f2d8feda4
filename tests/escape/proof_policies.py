"""Policies whose proof is tried without protections: one without rules, and one with every kind of rule."""

from __future__ import annotations

from pathlib import Path

SECRET_VARIABLE = "HOOD_PROVE_TEST_SECRET"
_RICH = """
name: everything
filesystem:
  mounts: [{source: mounted, target: /data}]
  outputs: ["out/**"]
network:
  allow: [{host: api.example.com, ports: [443], methods: [GET]}]
  publish: [8000]
secrets: [{name: EXAMPLE, from_env: HOOD_PROVE_TEST_SECRET, inject: {host: api.example.com}}]
commands: {allow: [ls, echo *]}
resources: {cpu_time: 20s}
"""
POLICIES = {"plain": "name: plain\n", "rich": _RICH}
VARIABLES = {SECRET_VARIABLE: "a-value-of-the-test-0123456789"}


def write_policy(name: str, folder: Path) -> Path:
    """With the folder that it mounts."""
    (folder / "mounted").mkdir(exist_ok=True)
    (folder / "mounted" / "file").write_text("of the host\n")
    path = folder / f"{name}.yaml"
    path.write_text(POLICIES[name])
    return path
