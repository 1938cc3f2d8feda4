"""Labels: what is written on containers and images, and which image a policy means. Pure.

A container says whose it is, so that one whose owner is gone can be told from one that is in use; an image says for
which policy it was made. An owner of another machine or process namespace is not ours to judge: its containers stay.
"""

from __future__ import annotations

import os
import secrets
from typing import NamedTuple

from fumehood.errors import UsageError
from fumehood.host.processes import identity
from fumehood.policy import Policy

OWNER = "fumehood.owner"
LEASE = "fumehood.lease"
POLICY = "fumehood.policy"
TENANT = "fumehood.tenant"


def container_labels(policy_digest: str, tenant: str = "") -> dict[str, str]:
    whose = {TENANT: tenant} if tenant else {}
    return {OWNER: identity(os.getpid()), LEASE: secrets.token_hex(8), POLICY: policy_digest, **whose}


DEFAULT_IMAGE = "fumehood:latest"
ENVIRONMENT = "fumehood.image.environment"
"""The label that says which packages of a policy an image has."""


class Reference(NamedTuple):
    name: str
    digest: str | None
    """What the image has to be, if the policy pins it."""


def image_of(policy: Policy) -> str:
    """A policy may say it in two places, but not two things."""
    if policy.image and policy.docker.image and policy.image != policy.docker.image:
        raise UsageError(f"image {policy.image!r} and docker.image {policy.docker.image!r} are two; keep one of them")
    return policy.image or policy.docker.image or DEFAULT_IMAGE


def lender_of(policy: Policy) -> str:
    """The image whose Python the guest uses in images that have none."""
    return policy.docker.interpreter or DEFAULT_IMAGE


def split_digest(reference: str) -> Reference:
    name, _, digest = reference.partition("@")
    return Reference(name, digest or None)
