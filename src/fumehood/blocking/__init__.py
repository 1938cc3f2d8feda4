"""The blocking API: the same methods as `AsyncSandbox`, through one generic wrapper.

Works inside a running event loop too, because all blocking sandboxes share one loop in a thread of its own.
"""

from fumehood.blocking.parts import BackgroundRun, ExposedPort, Files, Session, Watch
from fumehood.blocking.sandbox import Sandbox, run

__all__ = ["BackgroundRun", "ExposedPort", "Files", "Sandbox", "Session", "Watch", "run"]
