"""Images for the container backends: made from Debian packages or from another image, hardened, listed.

Owns what is in an image. `recipe` is what somebody asks for, `debian` and `base` are the two ways to a root file system
as one archive, `root` reads such an archive, `hardening` decides what of it stays, `layer` writes that down so that the
same content is the same bytes, `archive` wraps it for an engine, `inventory` says what is inside, `building` is the
walk through all of them, `inspection` looks at what an engine has. Nothing of an image is ever run to make it. Must
not know how a sandbox is made of one.
"""

from fumehood.images.building import build_image
from fumehood.images.inspection import ImageEntry, inspect_image, list_images, remove_image
from fumehood.images.recipe import Recipe

__all__ = ["ImageEntry", "Recipe", "build_image", "inspect_image", "list_images", "remove_image"]
