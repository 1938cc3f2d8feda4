"""What people get who install the package: the code, and the documents and examples that it speaks of."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from fumehood.policy.named import NAMES

ROOT = Path(__file__).parents[2]
PLACE = re.compile(r"fumehood-[^/]+\.data/data/share/doc/fumehood/")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


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
