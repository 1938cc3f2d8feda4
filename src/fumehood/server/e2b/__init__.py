"""E2B's wire protocol: programs that use E2B's own SDKs work against this server without a change.

Owns the spelling of that protocol (control plane, sandbox plane, code interpreter) and what it needs to remember of a
sandbox: processes with several readers, contexts, watches. What happens in a sandbox is `sandbox`, who may ask for it
`identity`, which are open `sandboxes`. What has no counterpart here answers 501 in a sentence.
"""

from fumehood.server.e2b.app import e2b_app
from fumehood.server.e2b.sandboxes import Terms

__all__ = ["Terms", "e2b_app"]
