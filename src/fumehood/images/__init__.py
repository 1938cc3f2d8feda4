"""Images for the container backends: made from Debian packages or from another image, hardened, listed.

Owns what is in an image. `recipe` is what a caller asks for, `debian` and `engine_calls` are the two ways to a root
file system as one archive, `root` reads such an archive, `content_filter` decides what of it stays, `archive` writes
that down so that the same content is the same bytes, `inventory` lists what is inside (by `dpkg`'s record), `build` is
the walk through all of them, in a `build_dir`; `inspection` looks at what an engine has. Nothing of an image is ever
run to make it. Must not know how a sandbox is made of one.
"""

from fumehood.images.build import build_image
from fumehood.images.inspection import ImageEntry, inspect_image, list_images, remove_image
from fumehood.images.recipe import Recipe

__all__ = ["ImageEntry", "Recipe", "build_image", "inspect_image", "list_images", "remove_image"]
