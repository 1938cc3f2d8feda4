"""Snapshots of workspaces and sandboxes with a name, on disk: content-addressed, deduplicated, durable.

A snapshot is a manifest (`manifest.py`) and the files that it names by digest (`blobs.py`). A named sandbox is a policy
and the snapshot that its next run begins with. `store.py` keeps both, `content.py` reads large files. Everything
blocks, and nothing here knows how a workspace is read: `sandbox/files/workspace_copy.py` does.
"""

from __future__ import annotations

from fumehood.snapshots.manifest import SnapshotEntry, SnapshotManifest
from fumehood.snapshots.records import NamedSandbox, Snapshot
from fumehood.snapshots.store import SnapshotStore

__all__ = ["NamedSandbox", "Snapshot", "SnapshotEntry", "SnapshotManifest", "SnapshotStore"]
