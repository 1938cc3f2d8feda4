"""What a script's own header (PEP 723, `# /// script`) asks for: packages, and a version of Python.

The header is the script's word, not the user's. Installing what it names asks an index for names that the script
chose, so that it would be a way out of a sandbox that has none. It takes --install, unless the user or the policy
names the packages already, or they are installed already and nothing is asked.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from fumehood.characters import one_line
from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.policy.arguments import add_packages
from fumehood.policy.sections import project_name

START = b"# /// script"
_END = "# ///"
_MAX_CHARACTERS = 64 * 1024
_MOST_PACKAGES = 200
# Where packages come from is the user's to say; and a name that means one thing at one place is another's elsewhere.
_SOURCES = ("sources", "index", "index-url", "extra-index-url", "find-links", "default-index")
_VERSION = re.compile(r"\s*(>=|<=|==|!=|~=|>|<)\s*(\d+(?:\.\d+){0,2})(\.\*)?\s*")


@dataclass(frozen=True, slots=True)
class ScriptHeader:
    packages: tuple[str, ...]
    python: str | None


def read_header(source: bytes, name: str) -> ScriptHeader | None:
    """The header of a script; None if it has none. UsageError for one that cannot be read."""
    lines = source.decode("utf-8", "replace").splitlines()
    starts = [number for number, line in enumerate(lines) if line.rstrip() == START.decode()]
    if not starts:
        return None
    if len(starts) > 1:
        raise UsageError(f"{name} has more than one header `# /// script`; keep one of them")
    content: list[str] = []
    for line in lines[starts[0] + 1 :]:
        if line.rstrip() == _END:
            return _parsed("\n".join(content), name)
        if line != "#" and not line.startswith("# "):
            break
        content.append(line[2:])
    raise UsageError(f"the header `# /// script` of {name} has no end; write a line `# ///` below it")


def _parsed(text: str, name: str) -> ScriptHeader:
    import tomllib

    if len(text) > _MAX_CHARACTERS:
        raise UsageError(f"the header of {name} has more than {_MAX_CHARACTERS} characters")
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"the header of {name} is not valid TOML: {one_line(str(error))}") from None
    _refuse_sources(table, name)
    packages, python = table.get("dependencies", []), table.get("requires-python")
    if not isinstance(packages, list) or not all(isinstance(each, str) for each in cast("list[object]", packages)):
        raise UsageError(f"`dependencies` in the header of {name} must be a list of packages")
    if python is not None and not isinstance(python, str):
        raise UsageError(f"`requires-python` in the header of {name} must be text, such as '>=3.11'")
    if len(cast("list[str]", packages)) > _MOST_PACKAGES:
        raise UsageError(f"the header of {name} asks for more than {_MOST_PACKAGES} packages")
    return ScriptHeader(tuple(cast("list[str]", packages)), python)


def _refuse_sources(table: dict[str, Any], name: str) -> None:
    tool = table.get("tool")
    settings = cast("dict[str, Any]", tool).get("uv") if isinstance(tool, dict) else None
    for key in _SOURCES:
        if isinstance(settings, dict) and key in settings:
            raise UsageError(
                f"the header of {name} says where packages come from (tool.uv.{key}); that is for "
                "environment.index of a policy, or your own configuration of uv"
            )


def with_header(policy: Policy, source: bytes, name: str, *, install: bool) -> Policy:
    """The policy with the packages of the header. UsageError if they are neither asked for nor there."""
    header = read_header(source, name)
    if header is None:
        return policy
    check_python(header.python, name)
    known = {*map(project_name, policy.environment.packages)}
    missing = [package for package in header.packages if project_name(package) not in known]
    if not missing:
        return policy
    wanted = add_packages(policy, missing, f"`dependencies` in the header of {name}")
    if install or _is_installed(wanted):
        return wanted
    words = " ".join(f"--with {_quoted(package)}" for package in missing)
    raise UsageError(
        f"{name} asks for packages in its header, which you did not: add --install to install them, or {words}"
    )


def _is_installed(policy: Policy) -> bool:
    from fumehood.environments import EnvironmentSpec, EnvironmentStore

    return EnvironmentStore.open_default().find(EnvironmentSpec.of(policy.environment).key) is not None


def _quoted(package: str) -> str:
    import shlex

    return shlex.quote(one_line(package))


def check_python(wanted: str | None, name: str, version: Iterable[int] = sys.version_info[:3]) -> None:
    """UsageError if a script needs another Python than this one, which is the sandbox's, too."""
    have = (*version,)
    for part in wanted.split(",") if wanted and wanted.strip() else ():
        match = _VERSION.fullmatch(part)
        if match is None:
            raise UsageError(f"`requires-python` in the header of {name} cannot be read: {one_line(part)!r}")
        if not _fits(have, match[1], tuple(map(int, match[2].split("."))), is_prefix=match[3] is not None):
            own = ".".join(map(str, have))
            raise UsageError(f"{name} needs Python {one_line(wanted or '')}, and this is {own}")


def _fits(have: tuple[int, ...], operator: str, wanted: tuple[int, ...], *, is_prefix: bool) -> bool:
    padded = (*wanted, 0, 0)[:3]
    match operator:
        case ">=":
            return have >= padded
        case "<=":
            return have <= padded
        case ">":
            return have > padded
        case "<":
            return have < padded
        case "~=":
            return have >= padded and have[: len(wanted) - 1] == wanted[:-1]
        case _:
            is_equal = have[: len(wanted)] == wanted if is_prefix else have == padded
            return is_equal if operator == "==" else not is_equal
