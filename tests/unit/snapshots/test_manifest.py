"""A manifest is the same text for the same content, and holds nothing that could lead elsewhere."""

from __future__ import annotations

import pytest

from fumehood.errors import DamagedSnapshotError
from fumehood.snapshots.manifest import EntryError, SnapshotEntry, SnapshotManifest

DIGEST = "ab" * 32


def file(path: str, **fields: object) -> SnapshotEntry:
    return SnapshotEntry(**{"path": path, "kind": "file", "mode": 0o644, "size": 1, "sha256": DIGEST, **fields})  # pyright: ignore[reportArgumentType]


def test_the_order_of_entries_does_not_matter_and_a_manifest_is_read_as_it_was_written() -> None:
    entries = [
        file("b/c"),
        SnapshotEntry("b", "folder", 0o755),
        file("a\udcff"),
        SnapshotEntry("l", "link", target="/x"),
    ]
    made = SnapshotManifest.of(entries)
    assert made == SnapshotManifest.of(reversed(entries))
    assert SnapshotManifest.parse(made.data, made.id) == made
    assert [entry.path for entry in made.entries] == ["a\udcff", "b", "b/c", "l"]


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../x", "a//x", "a/./x", "", ".", "a\0b", "x" * 256, "\ud800"])
def test_a_path_that_could_lead_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(EntryError):
        SnapshotManifest.of([SnapshotEntry("a", "folder", 0o755), file(path)])


def test_what_is_in_a_link_or_twice_is_refused() -> None:
    with pytest.raises(EntryError, match="not a folder"):
        SnapshotManifest.of([SnapshotEntry("a", "link", target="/etc"), file("a/passwd")])
    with pytest.raises(EntryError, match="twice"):
        SnapshotManifest.of([file("a"), file("a", mode=0o600)])
    with pytest.raises(EntryError, match="set-uid"):
        SnapshotManifest.of([file("a", mode=0o4755)])


def test_other_data_under_the_same_id_is_damage() -> None:
    made = SnapshotManifest.of([file("a")])
    with pytest.raises(DamagedSnapshotError, match=made.id[:12]):
        SnapshotManifest.parse(made.data.replace(b'"a"', b'"b"'), made.id)
