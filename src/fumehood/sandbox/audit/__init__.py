"""The audit of a sandbox: which log it writes to, and which events become records, in which order.

A run is recorded before it starts, and its end before its result is returned. When a record cannot be written the run
does not start, or its result is withheld.
"""

from fumehood.sandbox.audit.choice import AuditChoice, find_trail
from fumehood.sandbox.audit.files import FileAudit
from fumehood.sandbox.audit.run import RunAudit
from fumehood.sandbox.audit.sandbox import SandboxAudit, SessionAudit

__all__ = ["AuditChoice", "FileAudit", "RunAudit", "SandboxAudit", "SessionAudit", "find_trail"]
