"""The kernel, driven by a real Jupyter client, and the magic in a real IPython."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError as MagicUsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from jupyter_client.manager import KernelManager
from live.cli_host import hood
from live.package_index import make_wheel, open_index

from fumehood import UsageError
from fumehood.integrations.jupyter import kernelspec
from fumehood.integrations.jupyter.magic import SandboxCellError

TIMEOUT = 60
RICH = """
class Rich:
    def _repr_html_(self): return "<b>42</b><script>alert(1)</script><img src='https://203.0.113.10/'>"
    def _repr_png_(self): return b"\\x89PNG"
Rich()
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("policy") / "notebook.yaml"
    file.write_text("resources: {timeout: 60s, memory: 300M}\n")
    return file


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory, policy: Path) -> Iterator[KernelManager]:
    prefix = tmp_path_factory.mktemp("prefix")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(prefix / "share" / "jupyter"))
        kernelspec.install("fumehood", str(policy), prefix=str(prefix))
        # A file beside the notebook must not be imported in place of a module.
        (prefix / "fumehood.py").write_text("raise SystemExit('hijacked')")
        manager = KernelManager(kernel_name="fumehood")
        manager.start_kernel(cwd=str(prefix))
        yield manager
        manager.shutdown_kernel()


class Notebook:
    """A front end: executes cells and collects what they show."""

    def __init__(self, manager: KernelManager) -> None:
        self.client = manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=TIMEOUT)

    def run(self, code: str, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The reply, and the output: texts by stream, displays, errors."""
        shown: dict[str, Any] = {"stdout": "", "stderr": "", "display_data": [], "error": []}

        def show(message: dict[str, Any]) -> None:
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                shown[content["name"]] += content["text"]
            elif kind in ("display_data", "error"):
                shown[kind].append(content)

        reply = self.client.execute_interactive(code, output_hook=show, timeout=TIMEOUT, **options)
        return reply["content"], shown


@pytest.fixture
def notebook(kernel: KernelManager) -> Iterator[Notebook]:
    opened = Notebook(kernel)
    yield opened
    opened.client.stop_channels()


def test_cells_of_the_kernel_run_in_one_sandbox_and_keep_state(notebook: Notebook) -> None:
    assert notebook.run("import os, sys; kept = 42; open('file', 'w').write('é')")[0]["status"] == "ok"
    reply, shown = notebook.run("print(kept, open('file').read()); print('no', file=sys.stderr)")
    assert (reply["status"], shown["stdout"], shown["stderr"]) == ("ok", "42 é\n", "no\n")
    reply, shown = notebook.run("open('/etc/shadow')")
    assert (reply["status"], reply["ename"]) == ("error", "FileNotFoundError")
    assert "Traceback" in shown["stderr"]
    assert [error["ename"] for error in shown["error"]] == ["FileNotFoundError"]
    reply, shown = notebook.run("input('name? ')", allow_stdin=True, stdin_hook=pytest.fail)
    assert reply["ename"] == "EOFError"
    assert notebook.run("kept = 7", silent=True)[0]["status"] == "ok"
    assert notebook.run("print(kept)")[1]["stdout"] == "7\n"


def test_the_kernel_publishes_nothing_that_a_front_end_executes_or_fetches(notebook: Notebook) -> None:
    """What a cell shows is trusted by JupyterLab: a script in it would have the rights of the person who looks."""
    (shown,) = notebook.run(RICH)[1]["display_data"]
    assert shown["data"]["text/html"] == "<b>42</b><img>"
    assert base64.b64decode(shown["data"]["image/png"]) == b"\x89PNG"
    assert shown["data"].keys() <= {"text/html", "image/png", "text/plain"}


def test_the_kernel_is_interrupted_with_its_state_and_restarted_without(
    kernel: KernelManager, notebook: Notebook
) -> None:
    notebook.run("kept = 42")
    message = notebook.client.execute("print('begun', flush=True)\nwhile True: pass")
    while notebook.client.get_iopub_msg(timeout=TIMEOUT)["content"].get("text") != "begun\n":
        pass
    kernel.interrupt_kernel()
    reply = notebook.client.get_shell_msg(timeout=TIMEOUT)
    assert reply["parent_header"]["msg_id"] == message
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    assert notebook.run("print(kept)")[1]["stdout"] == "42\n"
    kernel.restart_kernel()
    notebook.client.wait_for_ready(timeout=TIMEOUT)
    assert notebook.run("kept")[0]["ename"] == "NameError"


def test_a_session_that_was_lost_is_said_to_be(notebook: Notebook) -> None:
    reply, _ = notebook.run("import os; os.abort()")
    assert reply["status"] == "error"
    assert "it began without state" in notebook.run("print(1)")[1]["stderr"]


def test_a_kernel_of_others_is_neither_replaced_nor_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    other = tmp_path / "share" / "jupyter" / "kernels" / "other"
    other.mkdir(parents=True)
    (other / "kernel.json").write_text('{"argv": ["x"], "display_name": "x", "language": "x"}')
    with pytest.raises(UsageError, match="not one of Fumehood's"):
        kernelspec.install("other", None, prefix=str(tmp_path))
    with pytest.raises(UsageError, match="there is no kernel 'none'"):
        kernelspec.remove("none")
    with pytest.raises(UsageError, match="no policy with this name"):
        kernelspec.install("ours", "web-raeder", prefix=str(tmp_path))
    place = kernelspec.install("ours", "web-reader", prefix=str(tmp_path))
    assert kernelspec.remove("ours") == place
    assert not os.path.exists(place)


def test_the_command_installs_the_kernel_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("JUPYTER_PATH", raising=False)
    done = hood("jupyter", "install")
    assert done.stdout.decode() == f"installed {tmp_path}/kernels/fumehood\n", done.stderr
    assert hood("jupyter", "remove").stdout.decode() == f"removed {tmp_path}/kernels/fumehood\n"
    assert hood("jupyter", "remove").returncode == 2


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    made = InteractiveShell.instance()
    made.run_line_magic("load_ext", "fumehood")
    yield made
    made.run_line_magic("unload_ext", "fumehood")
    InteractiveShell.clear_instance()


def test_the_magic_runs_cells_in_one_sandbox_and_keeps_state(shell: InteractiveShell, policy: Path) -> None:
    with capture_output() as shown:
        shell.run_cell_magic("hood", f"--policy {policy}", "kept = 42; n = open('file', 'w').write('text')")
        shell.run_cell_magic("hood", "", "print(kept, 'x\\x1b[31m')")
        shell.run_cell_magic("hood", "--language bash", "cat file; cat /etc/shadow >&2 || true")
    with capture_output() as rich:
        shell.run_cell_magic("hood", "", RICH)
    # A terminal would obey what follows an escape character.
    assert shown.stdout == "42 x⟨U+001B⟩[31m\ntext"
    assert "/etc/shadow: No such file" in shown.stderr
    assert rich.outputs[-1].data["text/html"] == "<b>42</b><img>"
    assert "kept" not in shell.user_ns


def test_a_cell_of_the_magic_that_fails_stops_the_notebook(shell: InteractiveShell) -> None:
    with capture_output() as shown, pytest.raises(SandboxCellError, match="ZeroDivisionError: division by zero"):
        shell.run_cell_magic("hood", "", "1 / 0")
    assert "Traceback" in shown.stderr
    with capture_output() as shown, pytest.raises(SandboxCellError, match="wall_time: it ran longer than 1s"):
        shell.run_cell_magic("hood", "-t 1s", "while True: pass")
    assert "timeout: it ran longer than 1s" in shown.stderr
    shell.run_cell_magic("hood", "", "kept = 42")
    shell.run_line_magic("hood", "restart")
    with capture_output(), pytest.raises(SandboxCellError, match="NameError"):
        shell.run_cell_magic("hood", "", "kept")


def test_packages_of_the_magic_are_those_of_its_first_cell(
    shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUMEHOOD_HOME", str(tmp_path / "hood"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with capture_output() as shown, pytest.raises(SandboxCellError, match="No module named 'greeter'"):
        shell.run_cell_magic("hood", "", "import greeter")
    assert shown.stderr.endswith("there is no module greeter in the sandbox; begin with %%hood --with greeter\n")
    with pytest.raises(MagicUsageError, match="was opened without greeter; `%hood close` ends it first"):
        shell.run_cell_magic("hood", "--with greeter", "import greeter")
    shell.run_line_magic("hood", "close")
    with open_index(make_wheel("greeter", {"greeter.py": "WORD = 'hello'\n"})) as index, capture_output() as shown:
        (tmp_path / "index.yaml").write_text(f"environment: {{index: '{index.url}'}}\n")
        shell.run_cell_magic("hood", f"--policy {tmp_path}/index.yaml --with greeter", "import greeter")
        shell.run_cell_magic("hood", "--with greeter", "print(greeter.WORD)")
    assert shown.stdout == "hello\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--with ./x", "--with: must be a package"),
        ("--polcy x", "unrecognized arguments: --polcy x"),
        ("--policy web-raeder", "did you mean 'web-reader'"),
        ("--language cobol", "unknown language 'cobol'"),
        ("--timeout soon", "timeout"),
        ("'", "No closing quotation"),
    ],
)
def test_a_mistake_in_the_line_is_a_short_error(shell: InteractiveShell, line: str, reason: str) -> None:
    with pytest.raises(MagicUsageError, match=reason):
        shell.run_cell_magic("hood", line, "print(1)")


def test_a_sandbox_stays_under_its_policy(shell: InteractiveShell, policy: Path) -> None:
    shell.run_cell_magic("hood", "", "pass")
    with pytest.raises(MagicUsageError, match="open under another policy"):
        shell.run_cell_magic("hood", f"-p {policy}", "pass")
    shell.run_line_magic("hood", "close")
    shell.run_cell_magic("hood", f"-p {policy}", "pass")
    with pytest.raises(MagicUsageError, match="takes restart or close"):
        shell.run_line_magic("hood", "stop")
