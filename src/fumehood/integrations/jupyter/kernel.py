"""A Jupyter kernel whose cells run in a sandbox. The kernel is a process of the host's and runs no code of cells."""

from __future__ import annotations

from typing import Any

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

import fumehood
from fumehood.errors import FumehoodError
from fumehood.integrations.jupyter.session import NotebookSandbox
from fumehood.notebook_output import CellError


class _Published:
    """Output of the cell that is executed, for all front ends."""

    def __init__(self, kernel: FumehoodKernel) -> None:
        self._kernel = kernel

    def text(self, name: str, text: str) -> None:
        self._kernel.publish("stream", {"name": name, "text": text})

    def display(self, data: dict[str, object]) -> None:
        self._kernel.publish("display_data", {"data": data, "metadata": {}, "transient": {}})


class _Silent:
    def text(self, name: str, text: str) -> None:
        pass

    def display(self, data: dict[str, object]) -> None:
        pass


class FumehoodKernel(Kernel):
    """State lives as long as the kernel. `input()` has no input: nothing is asked of the person at the notebook."""

    implementation = "fumehood"
    implementation_version = fumehood.__version__
    banner = "Fumehood: cells run in a sandbox"
    language_info = {  # noqa: RUF012 - as ipykernel declares it
        "name": "python",
        "mimetype": "text/x-python",
        "file_extension": ".py",
        "pygments_lexer": "ipython3",
        "codemirror_mode": {"name": "ipython", "version": 3},
    }
    policy: str | None = None
    """Of every kernel of this process, which has one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._notebook = NotebookSandbox(self.policy)

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, Any] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: Any = None,
        cell_id: Any = None,
    ) -> dict[str, Any]:
        """Blocks this thread, as kernels do; interrupts and the heartbeat have threads of their own."""
        failure = self._run(code, _Silent() if silent else _Published(self))
        if failure is None:
            done = {"status": "ok", "payload": list[Any](), "user_expressions": dict[str, Any]()}
            return {**done, "execution_count": self.execution_count}
        told = {"ename": failure.name, "evalue": failure.value}
        if not silent:
            # The traceback is on standard error already.
            self.publish("error", {**told, "traceback": [failure.line]})
        return {"status": "error", **told, "traceback": failure.traceback, "execution_count": self.execution_count}

    def _run(self, code: str, output: _Published | _Silent) -> CellError | None:
        if not code.strip():
            return None
        try:
            return self._notebook.run(code, output)
        except FumehoodError as error:
            return CellError(type(error).__name__, str(error), [str(error)])
        except KeyboardInterrupt:
            return CellError("KeyboardInterrupt", "", [])

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        self.send_response(self.iopub_socket, kind, content)  # pyright: ignore[reportUnknownMemberType]

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Comes on the control channel, whose thread is not the one that executes."""
        self._notebook.interrupt()
        messages: Any = self.session
        messages.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)

    async def do_shutdown(self, restart: bool) -> dict[str, Any]:
        self._notebook.close()
        return {"status": "ok", "restart": restart}


def serve(connection_file: str, policy: str | None) -> None:
    """Serves the front ends of one notebook until they shut the kernel down."""
    FumehoodKernel.policy = policy
    IPKernelApp.launch_instance(argv=["-f", connection_file], kernel_class=FumehoodKernel)
