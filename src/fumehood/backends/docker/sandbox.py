"""A sandbox in a container."""

from __future__ import annotations

from functools import partial
from typing import Any

from fumehood.backends.docker import enforcement
from fumehood.backends.docker.configuration import Design
from fumehood.backends.docker.container import Container
from fumehood.backends.interface import EnforcementReport
from fumehood.backends.languages import LANGUAGES
from fumehood.backends.relay.link import RelayLink
from fumehood.backends.runs.sandbox import GuestSandbox


def container_sandbox(portal: Any, container: Container, design: Design, report: EnforcementReport) -> GuestSandbox:
    """Without Python in an image whose interpreter was lent by another: that one is for the guest alone."""
    image = design.image
    why = "Python code cannot run in it; commands and shells can"
    return GuestSandbox(
        RelayLink(portal, container),
        design.policy,
        report,
        languages={name: each for name, each in LANGUAGES.items() if name != "python"} if design.lent else LANGUAGES,
        without_python=partial(enforcement.without_python, image, why) if design.lent else None,
        image_digest=image.digest,
        shares_listeners=True,
        closes_at_once=False,
        is_direct=False,
    )
