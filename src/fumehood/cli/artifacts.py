"""Files and pictures that a run produced, saved under the folder of --out."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood.characters import one_line
from fumehood.cli.output import ProgramOutput, say
from fumehood.errors import StepFailedError, UsageError
from fumehood.policy import Policy, format_size

if TYPE_CHECKING:
    from fumehood.results import Artifact, Display
    from fumehood.sandbox.async_sandbox import AsyncSandbox

_PICTURES = {"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg", "application/pdf": ".pdf"}


class ArtifactSaver:
    """`folder` is None when nothing is to be saved; `own` is the name of a file of ours that is saved there later."""

    def __init__(self, folder: str | None, *, quiet: bool, overwrite: bool = False, own: str | None = None) -> None:
        self._folder = Path(folder) if folder is not None else None
        self._quiet, self._overwrite, self._own = quiet, overwrite, own
        self._pictures = 0

    async def show(self, display: Display, stdout: ProgramOutput, stderr: ProgramOutput) -> None:
        """Text is written to stdout; a picture is saved, or only mentioned where there is no folder."""
        text = display.data.get("text/plain")
        if isinstance(text, str):
            await stdout.write(f"{text}\n".encode("utf-8", "backslashreplace"))
        if not _PICTURES.keys().isdisjoint(display.data):
            for stream in (stdout, stderr):
                stream.finish()
            self.picture(display)

    def picture(self, display: Display) -> None:
        for media_type, suffix in _PICTURES.items():
            if media_type in display.data:
                self._take_picture(display.data[media_type], media_type, suffix)
                return

    def _take_picture(self, content: object, media_type: str, suffix: str) -> None:
        data = content if isinstance(content, bytes) else str(content).encode()
        self._pictures += 1
        if self._folder is None:
            self._tell(f"picture {self._pictures}: {media_type}, {format_size(len(data))}; --out DIR saves it")
            return
        self.save(f"picture-{self._pictures}{suffix}", data)

    def save(self, name: str, data: bytes) -> None:
        """A file of ours, in the folder."""
        assert self._folder is not None
        path = self._folder / name
        draft = self._draft_of(path)
        try:
            with draft.open("xb") as file:
                file.write(data)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise _not_saved(path, error) from error
        self._put(draft, path)

    async def gather(self, box: AsyncSandbox, artifacts: tuple[Artifact, ...]) -> None:
        if self._folder is None:
            return
        for artifact in artifacts:
            if "__pycache__" in artifact.path.split("/"):
                continue  # what Python makes of modules, beside the files that a program writes
            if artifact.path == self._own:
                self._tell(f"{one_line(artifact.path)} of the program is not saved: the notebook has that name")
                continue
            path = self._folder / artifact.path
            draft = self._draft_of(path)
            await self._download(box, artifact.path, draft, path)
            self._put(draft, path)
        if not artifacts and not self._pictures and self._own is None:
            named = ", ".join(box.policy.filesystem.outputs)
            self._tell(f"nothing to save: the program made no file that filesystem.outputs names ({named})")

    async def _download(self, box: AsyncSandbox, source: str, draft: Path, path: Path) -> None:
        try:
            await box.files.download(source, draft)
        except UsageError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            raise _not_saved(path, error.__cause__) from error

    def _draft_of(self, path: Path) -> Path:
        """A new file beside the place where it goes; that place is never reached through a link."""
        assert self._folder is not None
        _make_folder(path.parent)
        if not path.parent.resolve().is_relative_to(self._folder.resolve()):
            raise UsageError(f"--out: {str(path)!r} leads out of the folder by a link; nothing was written there")
        return path.with_name(f".{secrets.token_hex(8)}.part")

    def _put(self, draft: Path, path: Path) -> None:
        try:
            if not self._overwrite and os.path.lexists(path):
                raise UsageError(f"{path} exists already; choose another folder for --out, or --overwrite")
            draft.replace(path)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error
        finally:
            draft.unlink(missing_ok=True)
        # A program chooses how its files are called, and a name must not look like a line of ours.
        self._tell(f"saved {one_line(str(path))}")

    def _tell(self, text: str) -> None:
        if not self._quiet:
            say(text)


def _not_saved(path: Path, error: OSError) -> StepFailedError:
    remedy = "Make room, or choose another folder for --out."
    return StepFailedError(f"saving {one_line(str(path))}", error.strerror or "the disk refused it", remedy=remedy)


def is_notebook_file(out: str | None) -> bool:
    """Whether --out names the file of a notebook instead of a folder."""
    return out is not None and out.lower().endswith(".ipynb") and not os.path.isdir(out)


def artifact_folder(out: str | None) -> str | None:
    """Where files that a program made are saved: nowhere if --out is for the notebook alone."""
    return None if is_notebook_file(out) else out


def folder_of(out: str | None) -> str | None:
    """The folder that something of ours is written to, also a notebook alone."""
    return os.path.dirname(out) or "." if out is not None and is_notebook_file(out) else out


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out: {str(folder)!r} cannot be made: {error.strerror}") from error


def let_out(policy: Policy, folder: str | None, *, has_file: bool, option: str = "--out") -> Policy:
    """Who asks for files on the command line and has no policy means all of them."""
    if folder is None or policy.filesystem.outputs:
        return policy
    if has_file:
        raise UsageError(f"{option} has nothing to save: the policy names no filesystem.outputs, such as ['out/**']")
    return policy.override({"filesystem": {"outputs": ["**"]}})


def check_folder(folder: str | None, *, may_hold_files: bool) -> None:
    """Before anything runs: a folder that cannot be written would waste the run."""
    if folder is None:
        return
    nearest = next(path for path in (Path(folder), *Path(folder).absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise UsageError(f"--out {folder!r} cannot be written: {str(nearest)!r} is not a folder of yours")
    if not may_hold_files and nearest == Path(folder) and any(nearest.iterdir()):
        raise UsageError(f"--out {folder!r} is not empty; name a new folder, or let --overwrite replace files in it")
