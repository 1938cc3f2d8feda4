"""Files in and out of a sandbox, for every backend.

Owns what the caller may ask, the policy's word on what may leave, and all that is written on the host's side. The work
inside is done by `guest.files.service`, which is reached through a `Conversation`; nothing that it says is believed
before it is checked.
"""

from fumehood.sandbox.files.async_files import AsyncFiles
from fumehood.sandbox.files.entries import FileEntry, FileKind, Skipped, Transfer

__all__ = ["AsyncFiles", "FileEntry", "FileKind", "Skipped", "Transfer"]
