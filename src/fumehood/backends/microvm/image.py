"""An image for machines: a kernel, its first files, and a root file system, in a folder of the user's."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from fumehood.errors import SandboxError, UsageError
from fumehood.frozen import frozen
from fumehood.host.folders import HOME, find_home

DEFAULT_NAME = "fumehood:latest"
FORMAT = 1
VARIABLE = "FUMEHOOD_MACHINES"
KERNEL, FIRST_FILES, ROOT, FACTS = "kernel", "initrd", "root.erofs", "image.json"
BUILD = "`hood image build --vm` makes one"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,99})?", re.ASCII)


class MachineImageMissingError(SandboxError):
    """There is no image for machines of that name; says what makes one."""


@frozen
class MachineImage:
    name: str
    folder: Path
    digest: str
    """Of the kernel, its first files and the root file system."""
    release: str
    """Of the kernel."""
    user: tuple[int, int]
    """Uid and gid of programs."""
    python: tuple[int, int]
    environment: str | None
    """The digest of the request for packages that it was made with."""
    languages: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum((self.folder / name).stat().st_size for name in (KERNEL, FIRST_FILES, ROOT))

    def open(self, name: str) -> int:
        """A file of this very image, though another may have taken its folder's place since it was read.

        A template goes on with the disk that it was made with, or not at all.
        """
        folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with open(os.open(FACTS, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), encoding="utf-8") as stream:
                found = json.load(stream)
            if found["digest"] == self.digest:
                return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise MachineImageMissingError(
                f"the image {self.name!r} for machines cannot be read ({error}); {BUILD}."
            ) from error
        finally:
            os.close(folder)
        raise MachineImageMissingError(f"the image {self.name!r} for machines was replaced meanwhile; try again.")


def machines_home(variables: Mapping[str, str]) -> Path:
    """$FUMEHOOD_MACHINES, else a folder beside environments: images, templates, disks with packages."""
    chosen = variables.get(VARIABLE)
    if not chosen:
        return find_home(variables) / "machines"
    if not os.path.isabs(chosen):
        raise UsageError(f"{VARIABLE} {chosen!r} must be an absolute path")
    return Path(chosen)


def make_folder(name: str) -> Path:
    """One of these folders, which no other user can write to."""
    home = machines_home(os.environ)
    if not os.environ.get(VARIABLE):
        HOME.make(home.parent)
    for folder in (home, home / name):
        HOME.make(folder)
    return home / name


def image_folder(name: str, variables: Mapping[str, str]) -> Path:
    return machines_home(variables) / "images" / check_name(name).replace(":", "@")


def check_name(name: str) -> str:
    """A name that is a file name, too; the tag `latest` where it has none."""
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"image {name!r} is not the name of an image for machines, such as {DEFAULT_NAME}")
    return name if ":" in name else f"{name}:latest"


def read_image(name: str | None, variables: Mapping[str, str] | None = None) -> MachineImage:
    """`name` may end in `@sha256:...`, and then the image has to be that one."""
    wanted, _, digest = (name or DEFAULT_NAME).partition("@")
    folder = image_folder(wanted, os.environ if variables is None else variables)
    try:
        found = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MachineImageMissingError(f"there is no image {wanted!r} for machines; {BUILD}.") from None
    except (OSError, ValueError) as error:
        raise MachineImageMissingError(
            f"the image {wanted!r} for machines cannot be read ({error}); {BUILD}."
        ) from error
    if found.get("format") != FORMAT:
        raise MachineImageMissingError(f"the image {wanted!r} for machines is of another version; {BUILD}.")
    if digest and digest != found["digest"]:
        raise MachineImageMissingError(
            f"the policy wants image {name!r}, and the one of that name here has the digest {found['digest']}."
        )
    return MachineImage(
        name=wanted,
        folder=folder,
        digest=found["digest"],
        release=found["release"],
        user=(found["user"][0], found["user"][1]),
        python=(found["python"][0], found["python"][1]),
        environment=found["environment"],
        languages=tuple(found["languages"]),
    )
