"""A project's copy, attacked by the program that works on it: what has changed is found, and nothing else is.

| attack | stopped by | succeeds without it |
|---|---|---|
| a link in place of a file or folder | entries are listed without links, and links are never taken | |
| a folder that hides its files, so that they seem deleted | what was below something unreadable is not deleted | |
| very many files, very large files, deep folders | a bounded walk, limits of artifacts | |
| a file that grows between being counted and being read | no more is read than was counted | |
| names with line ends and escape sequences | shown by number | |
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from containers import LendSandbox

from fumehood import AsyncSandbox, UsageError
from fumehood.cli.project.copy import ProjectCopy
from fumehood.host.folder_tree import FolderTree
from fumehood.sandbox.files.entries import FileKind
from fumehood.sandbox.files.tree_copy import TreeChanges, TreeCopy, TreeEntry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src" / "inner").mkdir(parents=True)
    for name in ("a.txt", "src/b.txt", "src/inner/c.txt"):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.fixture
async def box(lend_sandbox: LendSandbox) -> AsyncIterator[AsyncSandbox]:
    async with lend_sandbox(filesystem={"outputs": ["**"]}) as box:
        yield box


async def copied(box: AsyncSandbox, project: Path) -> TreeCopy:
    copy = box.files.copy_of_tree()
    entries = [TreeEntry("src", FileKind.FOLDER), TreeEntry("src/inner", FileKind.FOLDER)]
    entries += [TreeEntry(path, FileKind.FILE) for path in ("a.txt", "src/b.txt", "src/inner/c.txt")]
    entries += [TreeEntry("link", FileKind.LINK, "src/b.txt")]
    with FolderTree(str(project)) as tree:
        await copy.put(tree, entries)
    return copy


async def changes_after(box: AsyncSandbox, project: Path, attack: str) -> TreeChanges:
    copy = await copied(box, project)
    result = await box.run(f"import os, shutil\n{attack}")
    assert result.exit_code == 0, result.stderr
    return await copy.changes()


async def test_changes_are_found(box: AsyncSandbox, project: Path) -> None:
    copy = await copied(box, project)
    assert await copy.changes() == TreeChanges()
    await box.run("import os; open('a.txt', 'w').write('A.TXT'); open('new', 'w'); os.remove('src/b.txt')")
    changes = await copy.changes()
    assert (changes.written, changes.deleted, changes.odd) == ({"a.txt": 5, "new": 0}, ["src/b.txt"], [])


@pytest.mark.parametrize("target", ["/etc", "../../../../../etc", "/proc/1/root", "inner"])
async def test_a_folder_replaced_by_a_link_brings_nothing_and_deletes_nothing(
    target: str, box: AsyncSandbox, project: Path
) -> None:
    changes = await changes_after(box, project, f"os.rename('src', 'moved'); os.symlink({target!r}, 'src')")
    assert changes.deleted == []
    assert set(changes.written) == {"moved/b.txt", "moved/inner/c.txt"}
    assert [skipped.path for skipped in changes.odd] == ["src", "src/b.txt", "src/inner/c.txt"]


async def test_a_file_replaced_by_a_link_is_not_taken(box: AsyncSandbox, project: Path) -> None:
    changes = await changes_after(box, project, "os.remove('a.txt'); os.symlink('/etc/passwd', 'a.txt')")
    assert (changes.written, changes.deleted) == ({}, [])
    assert [skipped.path for skipped in changes.odd] == ["a.txt"]


async def test_a_link_of_the_projects_that_leads_elsewhere_now_is_not_taken(box: AsyncSandbox, project: Path) -> None:
    changes = await changes_after(box, project, "os.remove('link'); os.symlink('/etc/passwd', 'link')")
    assert [skipped.path for skipped in changes.odd] == ["link"]


async def test_files_that_are_hidden_are_not_deleted(box: AsyncSandbox, project: Path) -> None:
    changes = await changes_after(box, project, "os.chmod('src', 0)")
    assert (changes.written, changes.deleted) == ({}, [])


async def test_a_folder_replaced_by_a_file_deletes_nothing(box: AsyncSandbox, project: Path) -> None:
    changes = await changes_after(box, project, "shutil.rmtree('src'); open('src', 'w')")
    assert (changes.written, changes.deleted) == ({"src": 0}, [])


async def test_special_files_are_not_taken_and_hold_up_nothing(box: AsyncSandbox, project: Path) -> None:
    changes = await changes_after(box, project, "os.remove('a.txt'); os.mkfifo('a.txt')")
    assert changes.written == {}
    assert [skipped.path for skipped in changes.odd] == ["a.txt"]


async def test_a_program_that_moves_a_time_back_is_seen(box: AsyncSandbox, project: Path) -> None:
    """The same size and the same time of change: what a program can set does not count."""
    attack = (
        "s = os.stat('a.txt'); open('a.txt', 'r+').write('B'); os.utime('a.txt', ns=(s.st_atime_ns, s.st_mtime_ns))"
    )
    assert (await changes_after(box, project, attack)).written == {"a.txt": 5}


async def test_a_file_that_grows_after_it_was_counted_is_not_taken(
    box: AsyncSandbox, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a thread of a session could let it: what the host reads would be bounded by nothing."""
    copy, count = ProjectCopy(str(project), box.policy, sync_back=True, yes=True, quiet=True), TreeCopy.changes
    await copy.put_into(box)
    result = await box.run("open('new', 'w').write('x')")

    async def changes(counted: TreeCopy) -> TreeChanges:
        found = await count(counted)
        await box.run("import os; os.truncate('new', 1 << 20)")
        return found

    monkeypatch.setattr(TreeCopy, "changes", changes)
    with pytest.raises(UsageError, match="'new' has 1M, too much to read"):
        await copy.take_back(box, result)
    assert not (project / "new").exists()


async def test_names_are_what_they_are(box: AsyncSandbox, project: Path) -> None:
    changes = await changes_after(box, project, "open('x\\nhood: ok\\x1b[2J', 'w'); open(b'\\xff', 'w')")
    assert set(changes.written) == {"x\nhood: ok\x1b[2J", "\udcff"}


async def test_a_flood_of_files_is_a_clear_problem(
    box: AsyncSandbox, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fumehood.sandbox.files.tree_copy._MAX_ENTRIES", 1000)
    copy = await copied(box, project)
    assert (await box.run("for n in range(1001): open(f'f{n}', 'w').close()")).exit_code == 0
    with pytest.raises(UsageError, match="more than 1000 entries, too much to compare; nothing is taken from it"):
        await copy.changes()


async def test_deep_folders_are_not_followed_for_ever(box: AsyncSandbox, project: Path) -> None:
    changes = await changes_after(box, project, "for _ in range(300): os.mkdir('d'); os.chdir('d')\nopen('x', 'w')")
    assert changes.written == {}
    assert len(changes.odd) == 1


async def test_a_file_swapped_on_the_host_while_it_is_copied_is_not_followed(
    box: AsyncSandbox, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("secret") / "key"
    secret.write_text("private")
    os.remove(project / "a.txt")
    os.symlink(secret, project / "a.txt")
    with pytest.raises(UsageError, match=r"'a.txt' in .* cannot be read"):
        await copied(box, project)
