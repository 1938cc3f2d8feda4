"""Checks of what a manifest requests: what a sandbox does not have is refused by name."""

from __future__ import annotations

from agents.sandbox import Manifest
from agents.sandbox.types import User

from fumehood.errors import UsageError
from fumehood.policy.paths import WORKSPACE, is_inside


def check_manifest(manifest: Manifest) -> None:
    if not is_inside(manifest.root, WORKSPACE):
        raise UsageError(f"manifest.root {manifest.root!r} is not in {WORKSPACE}, where a sandbox's files are")
    if manifest.users or manifest.groups:
        raise UsageError("manifest.users and groups are not supported: a sandbox has one user, without privileges")
    if manifest.extra_path_grants:
        path = manifest.extra_path_grants[0].path
        raise UsageError(f"manifest.extra_path_grants: {path!r} has to be in filesystem.mounts of the policy")
    if manifest.mount_targets():
        path = manifest.mount_targets()[0][1]
        raise UsageError(f"manifest.entries: the mount at {path} is not supported; write mounts into the policy")


def refuse_user(user: str | User | None) -> None:
    if user is not None:
        name = user.name if isinstance(user, User) else user
        raise UsageError(f"nothing is done as {name!r}: a sandbox has one user, without privileges; leave `user` out")
