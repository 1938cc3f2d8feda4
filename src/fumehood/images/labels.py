"""What is written on images that were made here: short facts that an engine shows without opening the image."""

from fumehood.backends.docker.reference import ENVIRONMENT

MADE = "fumehood.image"
"""On each of them, with the number of this format."""
MADE_AT = "org.opencontainers.image.created"
FROM = "fumehood.image.from"
POLICY = "fumehood.image.policy"
PACKAGES = "fumehood.image.packages"
PYTHON = "fumehood.image.python"
LANGUAGES = "fumehood.image.languages"

__all__ = ["ENVIRONMENT", "FROM", "LANGUAGES", "MADE", "MADE_AT", "PACKAGES", "POLICY", "PYTHON"]
