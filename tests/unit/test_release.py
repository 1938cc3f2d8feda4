"""`make release`: the same archives from the same commit, with a bill of materials and provenance."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from requirements import require

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A commit of what is here, whether or not it is committed already."""
    require(shutil.which("git"), "needs git")
    folder = tmp_path_factory.mktemp("release") / "clone"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *command], cwd=folder, check=True)
    return folder


def release(clone: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/release.py", "--out", str(out)]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True)


def test_a_release_is_whole_and_its_digests_are_right(clone: Path, tmp_path: Path) -> None:
    done = release(clone, tmp_path / "dist")
    assert done.returncode == 0, done.stderr
    sums = dict(reversed(line.split("  ")) for line in (tmp_path / "dist" / "SHA256SUMS").read_text().splitlines())
    files = {path.name: path for path in (tmp_path / "dist").iterdir() if path.name != "SHA256SUMS"}
    assert sums == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    (wheel,) = (name for name in files if name.endswith(".whl"))
    provenance = json.loads(next(path for name, path in files.items() if name.endswith("provenance.json")).read_text())
    assert {one["name"]: one["digest"]["sha256"] for one in provenance["subject"]}[wheel] == sums[wheel]
    bill = json.loads(next(path for name, path in files.items() if name.endswith("cdx.json")).read_text())
    pinned = set(re.findall(r"^([\w.-]+)==", (clone / "requirements.lock").read_text(), re.MULTILINE))
    assert {component["name"] for component in bill["components"]} == pinned


def test_what_is_not_committed_is_not_released(clone: Path, tmp_path: Path) -> None:
    stray = clone / "stray.txt"
    stray.write_text("not committed")
    try:
        done = release(clone, tmp_path / "dist")
    finally:
        stray.unlink()
    assert done.returncode == 1
    assert "not committed" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_an_earlier_release_is_not_mixed_with_a_new_one(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "old.whl").touch()
    done = release(clone, tmp_path)
    assert done.returncode == 1
    assert "is not empty" in done.stderr
