"""Advice for a program that failed for want of a package."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from fumehood.results import Cause, RunResult

# At the end, as Python itself writes it. The name is the program's word: letters, digits and what joins them, no more.
_MISSING = re.compile(
    rb"(?:^|\n)ModuleNotFoundError: No module named '([A-Za-z_][A-Za-z0-9_]{0,63})(?:\.[A-Za-z0-9_.]*)?'\s*\Z"
)
_LAST_BYTES = 512
ADVICE = re.compile(r"add packages=\['([\w.-]+)'\](?:, or box\.install\('[\w.-]+'\))?")
"""What a hint says to do, with the package: for callers whose users do it in another way."""
# Packages whose modules have other names, as far as people ask for them often.
_PACKAGES = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "Crypto": "pycryptodome",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "jwt": "pyjwt",
    "OpenSSL": "pyopenssl",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def module_hint(result: RunResult, stderr: bytes, *, can_install: bool = False) -> RunResult:
    """The result with a hint if a module was missing that a package may have, judging by its stderr.

    `can_install` if the sandbox has a network, through which packages may come while it is open.
    """
    if result.cause is not Cause.EXIT or result.ok or result.detail or result.denials:
        return result
    match = _MISSING.search(stderr[-_LAST_BYTES:])
    name = match[1].decode() if match else ""
    if not name or name in sys.stdlib_module_names:
        return result
    package = _PACKAGES.get(name, name)
    here = f", or box.install({package!r}), or `pip install {package}` in it" if can_install else ""
    return replace(result, detail=f"there is no module {name} in the sandbox; add packages=[{package!r}]{here}")
