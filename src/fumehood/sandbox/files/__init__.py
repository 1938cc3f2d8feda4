"""Files in and out of a sandbox, for every backend.

Owns what the caller may ask, the policy's word on what may leave, and all that is written on the host's side. The work
inside is done by `guest.files.service`, which is reached through a `Conversation`; nothing that it says is believed
before it is checked.
"""

from fumehood.sandbox.files.entries import FileEntry, Kind, Skipped, Transfer
from fumehood.sandbox.files.service import Files

__all__ = ["FileEntry", "Files", "Kind", "Skipped", "Transfer"]
