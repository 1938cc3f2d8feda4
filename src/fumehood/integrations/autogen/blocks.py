"""What a code block asks for: a language, and a file of that name. Text in, data out; nothing has run by then."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from hashlib import sha256

from autogen_core.code_executor import CodeBlock

from fumehood.backends.languages import Language, find_language
from fumehood.errors import UsageError
from fumehood.policy.paths import is_inside

# AutoGen's own has only `#`, which is no comment in C or JavaScript.
_FILE_NAME = re.compile(r"(?:#|//) ?filename:(.*)")
_POWERSHELL = ("powershell", "pwsh", "ps1")


@dataclass(frozen=True)
class Script:
    language: Language
    source: bytes
    path: str
    """In the sandbox, absolute."""
    is_named: bool
    """By the block itself; otherwise the file is ours to clean up."""

    @property
    def run_name(self) -> str | None:
        """Compilers get a copy, under a name that they accept."""
        if self.language.toolchain is None:
            return self.path
        return posixpath.basename(self.path) if self.is_named else None


def read_block(block: CodeBlock, folder: str) -> Script:
    language, source = _language(block.language), block.code.encode("utf-8", "surrogatepass")
    name = _file_name(block.code)
    if name is None:
        own = f"tmp_code_{sha256(source).hexdigest()}{language.suffixes[0]}"
        return Script(language, source, posixpath.join(folder, own), is_named=False)
    return Script(language, source, _place(name, folder), is_named=True)


def _language(name: str) -> Language:
    spelling = name.strip().lower()
    if not spelling:
        raise UsageError("the code block names no language; write it behind the opening fence, such as ```python")
    if spelling in _POWERSHELL:
        raise UsageError("PowerShell is not supported; use sh, bash or python")
    return find_language(spelling)


def _file_name(code: str) -> str | None:
    match = _FILE_NAME.match(code.split("\n", 1)[0])
    return match[1].strip() if match else None


def _place(name: str, folder: str) -> str:
    path = posixpath.normpath(posixpath.join(folder, name))
    if not name or not is_inside(path, folder) or path == folder or name.endswith("/"):
        raise UsageError(f"Filename is not in the workspace: {name!r} must name a file below {folder}")
    return path
