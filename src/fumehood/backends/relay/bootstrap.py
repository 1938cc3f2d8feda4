"""How the guest gets inside: as text on its standard input, to a few lines on its command line.

Nothing is mounted and nothing is written, so that it works with an engine on another machine, any image,
and a root file system that is read-only. A Python of the host's release gets what the host has compiled: compiling is
half of what a guest's start takes. Any other gets the sources.
"""

from __future__ import annotations

import json
import marshal
import zlib
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType

import fumehood.guest

_PACKAGE = "guest"
# Reads three parts, each after its length, makes the modules importable, imports all that a run can need, and hands
# over. It leaves no importer behind: what programs import is theirs.
_BOOTSTRAP = """
import os, sys, json, zlib, marshal
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER
def take(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more: os._exit(0)
        data += more
    return data
def part(): return take(int.from_bytes(take(8), "big"))
told, sources, codes = json.loads(part()), part(), part()
if told["magic"] == MAGIC_NUMBER.hex():
    modules = marshal.loads(zlib.decompress(codes))
else:
    modules = json.loads(zlib.decompress(sources))
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in modules: return None
        is_package, path, _ = modules[name]
        spec = ModuleSpec(name, self, origin=path, is_package=is_package)
        spec.has_location = True
        return spec
    def create_module(self, spec): return None
    def exec_module(self, module):
        _, path, code = modules[module.__name__]
        if isinstance(code, str): code = compile(code, path, "exec", dont_inherit=True)
        exec(code, vars(module))
finder = Finder()
sys.meta_path.insert(0, finder)
entry = import_module(told["entry"])
sys.meta_path.remove(finder)
entry.main(told["spec"], b"")
"""
# Without the host's ideas of where modules are; nothing that the image or its user has put in the way is imported.
_OPTIONS = ("-I", "-S", "-u", "-c", _BOOTSTRAP)
IN_IMAGE = ("python3",)


def command(interpreter: tuple[str, ...] = IN_IMAGE) -> list[str]:
    """`interpreter` are all words that it takes to start one."""
    return [*interpreter, *_OPTIONS]


def program() -> str:
    """The few lines themselves, for a place that has no command line."""
    return _BOOTSTRAP


def packed(spec: object, entry: str = "guest.relay.service") -> bytes:
    """What the bootstrap reads first; `entry` is the module whose `main` gets the specification."""
    told = json.dumps({"magic": MAGIC_NUMBER.hex(), "entry": entry, "spec": spec}).encode()
    return b"".join(len(part).to_bytes(8, "big") + part for part in (told, _sources(), _codes()))


@cache
def _sources() -> bytes:
    return zlib.compress(json.dumps(_modules()).encode())


@cache
def _codes() -> bytes:
    """The same, compiled: for a Python whose number for the format of bytecode is that of ours."""
    compiled: dict[str, tuple[bool, str, CodeType]] = {
        name: (is_package, path, compile(source, path, "exec", dont_inherit=True, optimize=0))
        for name, (is_package, path, source) in _modules().items()
    }
    return zlib.compress(marshal.dumps(compiled), level=1)


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
