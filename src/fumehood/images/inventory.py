"""What is in an image: labels, and packages with their versions as a bill of materials for other tools (CycloneDX)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from fumehood.images import dpkg
from fumehood.images.root import Root

# Labels of images that were made here: short facts that an engine shows without opening the image.
MADE = "fumehood.image"
"""The label of every such image; its value is the number of this format."""
MADE_AT = "org.opencontainers.image.created"
FROM = "fumehood.image.from"
POLICY = "fumehood.image.policy"
PACKAGES = "fumehood.image.packages"
PYTHON = "fumehood.image.python"
LANGUAGES = "fumehood.image.languages"

PLACE = "usr/share/fumehood/image.cdx.json"
_METADATA = re.compile(r"(?:.*/)?(?:dist|site)-packages/[^/]+\.(?:dist-info/METADATA|egg-info(?:/PKG-INFO)?)")
_PYPI_SEPARATORS = re.compile(r"[-_.]+")


@dataclass(frozen=True, slots=True, order=True)
class Component:
    kind: str
    """deb or pypi."""
    name: str
    version: str
    architecture: str = ""

    @property
    def purl(self) -> str:
        """The name by which databases of weaknesses know it."""
        if self.kind == "pypi":
            return f"pkg:pypi/{_PYPI_SEPARATORS.sub('-', self.name).lower()}@{quote(self.version)}"
        return f"pkg:deb/debian/{quote(self.name)}@{quote(self.version)}?arch={self.architecture}"


def take_stock(root: Root, names: Iterable[str], packages: Iterable[dpkg.DebianPackage]) -> list[Component]:
    """The software inventory: Python distributions among these names of a root, and these Debian packages."""
    debian = (Component("deb", each.name, each.version, each.architecture) for each in packages)
    python = (_distribution(root, name) for name in names if _METADATA.fullmatch(name))
    return sorted({*debian, *filter(None, python)})


def _distribution(root: Root, name: str) -> Component | None:
    text = (root.read(name) or b"").decode("utf-8", "replace")
    fields = HeaderParser().parsestr(text, headersonly=True)
    return Component("pypi", fields["Name"], fields["Version"] or "") if fields["Name"] else None


def bill_of_materials(
    name: str, components: Iterable[Component], *, made_at: str, properties: Mapping[str, str]
) -> dict[str, Any]:
    listed = [_described(component) for component in components]
    identity = uuid5(NAMESPACE_URL, repr((name, made_at, sorted(properties.items()), listed)))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{identity}",
        "version": 1,
        "metadata": {
            "timestamp": made_at,
            "component": {"type": "container", "name": name},
            "properties": [{"name": key, "value": value} for key, value in sorted(properties.items())],
        },
        "components": listed,
    }


def _described(component: Component) -> dict[str, str]:
    return {"type": "library", "name": component.name, "version": component.version, "purl": component.purl}
