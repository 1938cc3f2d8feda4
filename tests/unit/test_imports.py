"""What applications import directly can be the first that they import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fumehood

ROOT = Path(fumehood.__file__).parent
INTEGRATIONS = sorted(path.parent.name for path in (ROOT / "integrations").glob("*/__init__.py"))


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_an_integration_can_be_imported_first(name: str) -> None:
    code = f"import fumehood.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
