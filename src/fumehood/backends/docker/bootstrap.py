"""How the guest gets into a container: as text on its standard input, to a few lines on its command line.

Nothing is mounted and nothing is written, so that it works with an engine on another machine, any image,
and a root file system that is read-only.
"""

from __future__ import annotations

import json
import zlib
from functools import cache
from pathlib import Path

import fumehood.guest
from fumehood.guest.contract.relay_spec import RelaySpec

_PACKAGE = "guest"
# Reads a length and then the modules, makes them importable, imports all that a run can need, and hands over. It leaves
# no importer behind: what programs import is theirs.
_BOOTSTRAP = """
import os, sys, json, zlib
from importlib.machinery import ModuleSpec
def take(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more: os._exit(0)
        data += more
    return data
told = json.loads(zlib.decompress(take(int.from_bytes(take(8), "big"))))
modules = told["modules"]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in modules: return None
        is_package, path, _ = modules[name]
        spec = ModuleSpec(name, self, origin=path, is_package=is_package)
        spec.has_location = True
        return spec
    def create_module(self, spec): return None
    def exec_module(self, module):
        _, path, source = modules[module.__name__]
        exec(compile(source, path, "exec", dont_inherit=True), vars(module))
finder = Finder()
sys.meta_path.insert(0, finder)
from guest.relay import service
sys.meta_path.remove(finder)
service.main(told["spec"], b"")
"""
# Without the host's ideas of where modules are; nothing that the image or its user has put in the way is imported.
_OPTIONS = ("-I", "-S", "-u", "-c", _BOOTSTRAP)
IN_IMAGE = ("python3",)


def command(interpreter: tuple[str, ...] = IN_IMAGE) -> list[str]:
    """`interpreter` are all words that it takes to start one."""
    return [*interpreter, *_OPTIONS]


def packed(spec: RelaySpec) -> bytes:
    """What the bootstrap reads first."""
    data = zlib.compress(json.dumps({"modules": _modules(), "spec": spec}).encode())
    return len(data).to_bytes(8, "big") + data


@cache
def _modules() -> dict[str, tuple[bool, str, str]]:
    """Name -> whether it is a package, its path as tracebacks show it, and its source."""
    root = Path(fumehood.guest.__file__).parent
    found: dict[str, tuple[bool, str, str]] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join((_PACKAGE, *(parts[:-1] if is_package else parts)))
        shown = f"/{_PACKAGE}/{path.relative_to(root)}"
        found[name] = (is_package, shown, path.read_text(encoding="utf-8"))
    return found
