"""What people get who install the package: the code, and the documents and examples that it speaks of."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

from fumehood.policy.named import NAMES

ROOT = Path(__file__).parents[2]
PLACE = re.compile(r"fumehood-[^/]+\.data/data/share/doc/fumehood/")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_the_command_works_where_the_wheel_is_installed(wheel: Path, installer: str, tmp_path: Path) -> None:
    """In a new environment, which is what pipx and `uv tool` make. Dependencies are those that are here already."""
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    commands = {
        "pip": [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "--quiet"],
        "uv": [find_uv_bin(), "pip", "install", "--quiet", "--python", place / "bin" / "python"],
    }
    subprocess.run([*commands[installer], "--no-index", "--no-deps", wheel], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    link = tmp_path / "hood"
    link.symlink_to(place / "bin" / "hood")  # as pipx and uv tool have it
    for hood in (place / "bin" / "hood", link):
        done = subprocess.run([hood, "run", "-c", "print(6 * 7)"], capture_output=True, text=True, cwd=tmp_path)
        assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr


def test_the_documents_and_examples_are_in_the_wheel(names: set[str]) -> None:
    shipped = {PLACE.sub("", name) for name in names if PLACE.match(name)}
    assert {"README.md", "docs/reference/policy.md", "examples/policies/web-reader.yaml"} <= shipped


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda page: page.name)
def test_every_link_of_a_document_leads_to_a_file_that_is_shipped(page: Path, names: set[str]) -> None:
    shipped = {PLACE.sub("", name) for name in names if PLACE.match(name)}
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in link:
            target = (page.parent / link).resolve().relative_to(ROOT)
            assert any(name == str(target) or name.startswith(f"{target}/") for name in shipped), link


def extras_of_the_package() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_one_extra_has_all_the_others() -> None:
    extras = extras_of_the_package()
    named = [name for text in extras["all"] for name in text.removeprefix("fumehood[").removesuffix("]").split(",")]
    assert sorted([*named, "all"]) == sorted(extras)


def test_the_policies_that_have_names_are_in_the_wheel(names: set[str]) -> None:
    assert {f"fumehood/policy/named/{name}.yaml" for name in NAMES} <= names


def test_every_extra_is_named_in_the_readme() -> None:
    extras = extras_of_the_package()
    table = (ROOT / "README.md").read_text().split("| extra | for |")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z-]+)`(?:,| \|)", table)) >= set(extras)
