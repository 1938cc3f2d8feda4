"""Which image a policy means, and what is written on images that were made for one. Pure."""

from __future__ import annotations

from typing import NamedTuple

from fumehood.errors import UsageError
from fumehood.policy import Policy

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
