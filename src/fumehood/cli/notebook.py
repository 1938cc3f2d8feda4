"""`hood run x.ipynb`: the code cells of a notebook in one session, and the notebook with their outputs.

The notebook is read strictly, and its outputs are the sandbox's: media types that are known to be shown and not
executed (`fumehood.notebook_output`), bounded, and never marked as trusted.
"""

from __future__ import annotations

import json
import os
import shlex
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from fumehood.cli.artifacts import ArtifactSaver, folder_of, is_notebook_file
from fumehood.errors import UsageError
from fumehood.events import Event, Finished
from fumehood.notebook_output import CellError, CellStreams, cell_error
from fumehood.results import Artifact, Display, RunResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from fumehood.cli.program import ProgramSource
    from fumehood.cli.task import Task
    from fumehood.sandbox.async_sandbox import AsyncSandbox

_MOST_CELLS = 2000
_MOST_OUTPUT_BYTES = 64 * 1024 * 1024
# What an output takes besides its text; a program can make any number of outputs of one character.
_EACH_OUTPUT_BYTES = 512
_CUT = "(more output was left out: it is larger than a notebook may be)\n"

_Object = dict[str, Any]


@dataclass(slots=True)
class Notebook:
    content: _Object
    cells: list[_Object]
    """The code cells, which are parts of `content`."""
    room_bytes: int = _MOST_OUTPUT_BYTES
    """What is left for outputs; less than nothing once one did not fit."""

    def source_of(self, cell: _Object) -> str:
        source = cell.get("source", "")
        return source if isinstance(source, str) else "".join(source)

    @property
    def code(self) -> bytes:
        """All of it, as one text."""
        return "\n\n".join(map(self.source_of, self.cells)).encode("utf-8", "surrogatepass")

    def output_of(self, cell: _Object) -> NotebookCellOutput:
        return NotebookCellOutput(self, cell["outputs"])

    def save(self, out: str | None, name: str, *, quiet: bool, overwrite: bool) -> None:
        """The notebook with its outputs, where --out says: a file of any name, or a folder."""
        if out is not None:
            saver = ArtifactSaver(folder_of(out), quiet=quiet, overwrite=overwrite)
            saver.save(os.path.basename(out) if is_notebook_file(out) else name, self.to_bytes())

    def to_bytes(self) -> bytes:
        text = json.dumps(self.content, indent=1, ensure_ascii=False)
        return f"{text}\n".encode("utf-8", "backslashreplace")


class NotebookCellOutput:
    """The outputs of one cell, kept in the notebook as long as there is room in it."""

    def __init__(self, notebook: Notebook, outputs: list[_Object]) -> None:
        self._notebook, self._outputs = notebook, outputs

    def text(self, name: str, text: str) -> None:
        last = self._outputs[-1] if self._outputs else {}
        is_same = last.get("output_type") == "stream" and last["name"] == name
        if not self._has_room(len(text.encode("utf-8", "replace")) + (0 if is_same else _EACH_OUTPUT_BYTES)):
            return
        if is_same:
            last["text"] += text
        else:
            self._outputs.append({"output_type": "stream", "name": name, "text": text})

    def display(self, data: dict[str, object]) -> None:
        if self._has_room(len(json.dumps(data)) + _EACH_OUTPUT_BYTES):
            self._outputs.append({"output_type": "display_data", "data": data, "metadata": {}})

    def error(self, error: CellError) -> None:
        """The traceback is on standard error already, as the session wrote it."""
        told = {"ename": error.name, "evalue": error.value, "traceback": error.traceback}
        self._outputs.append({"output_type": "error", **told})

    def _has_room(self, size: int) -> bool:
        """The first output for which there is none is replaced by a line that says so."""
        had_room = self._notebook.room_bytes >= 0
        self._notebook.room_bytes -= size
        has_room = self._notebook.room_bytes >= 0
        if had_room and not has_room:
            self._outputs.append({"output_type": "stream", "name": "stderr", "text": _CUT})
        return has_room


def open_notebook(task: Task, program: ProgramSource) -> Notebook:
    """The notebook of a command line. UsageError for options that make no sense with one."""
    if any(word.startswith("-") for word in task.words):
        command = shlex.join(["hood", "run", *task.words, task.chosen.file or "-"])
        raise UsageError(f"a notebook has no arguments, and options stand before its name: `{command}`")
    if task.words or task.chosen.env or task.chosen.session or task.chosen.learn:
        raise UsageError("a notebook has neither arguments nor --env, --session and --learn; leave them out")
    if task.policy.approvals:
        raise UsageError("the policy asks for approvals, which are for one program and not for the cells of a notebook")
    out = task.chosen.out
    if out is not None and is_notebook_file(out) and os.path.lexists(out) and not task.chosen.overwrite:
        raise UsageError(f"--out {out!r} exists already; name another file, or let --overwrite replace it")
    return read_notebook(program.code, program.name or "the notebook")


def read_notebook(source: bytes, name: str) -> Notebook:
    """UsageError for what is not a notebook of Python in the format that is current since 2014."""
    try:
        content = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not a notebook: it is not valid JSON ({str(error)[:200]})") from None
    if not isinstance(content, dict) or cast("_Object", content).get("nbformat") != 4:
        raise UsageError(f"{name} is not a notebook of format 4; open and save it with a current Jupyter")
    content = cast("_Object", content)
    metadata = _object_in(content, "metadata", name)
    _check_language(metadata, name)
    metadata.pop("signature", None)
    cells = content.get("cells")
    if not isinstance(cells, list):
        raise UsageError(f"{name} is not a notebook: it has no list of cells")
    code = [cell for cell in cast("list[object]", cells) if _is_code(cell, name)]
    if len(code) > _MOST_CELLS:
        raise UsageError(f"{name} has more than {_MOST_CELLS} code cells; split it")
    return Notebook(content, cast("list[_Object]", code))


def _object_in(parent: _Object, key: str, name: str) -> _Object:
    value = parent.setdefault(key, {})
    if not isinstance(value, dict):
        raise UsageError(f"{name} is not a notebook: {key!r} in it is not an object")
    return cast("_Object", value)


def _check_language(metadata: _Object, name: str) -> None:
    for key, field_name in (("language_info", "name"), ("kernelspec", "language")):
        section = metadata.get(key)
        language = cast("_Object", section).get(field_name) if isinstance(section, dict) else None
        if isinstance(language, str) and language.lower() not in ("python", "ipython"):
            raise UsageError(f"{name} is a notebook of {language[:40]!r}, and only those of Python can be run")


def _is_code(cell: object, name: str) -> bool:
    """Whether a cell has code. Outputs of before, and the mark that they are trusted, are removed."""
    if not isinstance(cell, dict):
        raise UsageError(f"{name} is not a notebook: a cell in it is not an object")
    parts = cast("_Object", cell)
    _object_in(parts, "metadata", name).pop("trusted", None)
    if parts.get("cell_type") != "code":
        return False
    source = parts.get("source", "")
    lines = cast("list[object]", source) if isinstance(source, list) else [source]
    if not all(isinstance(line, str) for line in lines):
        raise UsageError(f"{name} is not a notebook: the source of a cell in it is not text")
    parts["outputs"], parts["execution_count"] = [], None
    return True


async def run_cells(
    notebook: Notebook, box: AsyncSandbox, show: Callable[[Event | Display], Awaitable[None]]
) -> RunResult:
    """Runs one cell after another, up to the first that fails; the result is the last one's, with all artifacts."""
    artifacts: dict[str, Artifact] = {}
    result: RunResult | None = None
    for number, cell in enumerate(notebook.cells, 1):
        if not notebook.source_of(cell).strip():
            continue
        cell["execution_count"] = number
        result = await _run_cell(notebook.output_of(cell), box.stream(notebook.source_of(cell)), show)
        artifacts |= {artifact.path: artifact for artifact in result.artifacts}
        if not result.ok:
            place = f"code cell {number} of {len(notebook.cells)} ended the notebook"
            result = replace(result, detail=f"{place}; {result.detail}" if result.detail else place)
            break
    return replace(result or await box.run("pass"), artifacts=tuple(artifacts.values()))


async def _run_cell(
    output: NotebookCellOutput,
    stream: AsyncGenerator[Event, None],
    show: Callable[[Event | Display], Awaitable[None]],
) -> RunResult:
    streams = CellStreams(output)
    async with aclosing(stream) as events:
        async for event in events:
            if isinstance(event, Finished):
                streams.finish()
                if not event.result.ok:
                    output.error(cell_error(event.result, streams.stderr))
                return event.result
            streams.show(event)
            await show(event)
    raise AssertionError("a stream ends with Finished")
