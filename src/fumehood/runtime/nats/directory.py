"""The directory: processes, types of agents, subscriptions and grants, shared by all processes of a space.

Entries are the last messages of a stream, written by compare-and-set. Every process has a copy of all of them. What
the stream has stored it sends to all (`news`), and after a lost connection a process reads everything anew.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

import anyio
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fumehood.errors import DeliveryError, UsageError
from fumehood.runtime.grants import PatternText, WrittenGrants
from fumehood.runtime.identity import AgentId, check_key
from fumehood.runtime.nats.assignment import NO_HOMES
from fumehood.runtime.nats.connection import NatsLink, NatsRefusedError, Received, WrongRevisionError
from fumehood.runtime.nats.subjects import PARTITIONS, Address, Subjects, check_name, partition_of, type_token

_MOST_ATTEMPTS = 50
_NOT_FOUND = 404
_NEWS_SECONDS = 1.0
_STORED_BYTES = 1 << 30
_REVISION = "Nats-Expected-Last-Subject-Sequence"


def _checked(check: Callable[[str, str], str], what: str) -> AfterValidator:
    """What is not valid makes the whole entry none: others read it, and would fail at every message of any type."""

    def validate(text: str) -> str:
        try:
            return check(text, what)
        except UsageError as error:
            raise ValueError(str(error)) from None

    return AfterValidator(validate)


Name = Annotated[str, _checked(check_name, "a name")]
AgentKey = Annotated[str, _checked(check_key, "a key")]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ProcessEntry(_Entry):
    """A process that lives: `beat` changes every second or so."""

    incarnation: Name
    beat: int


class TypeEntry(_Entry):
    """A type of agents, the processes that have registered it, and the home of each partition."""

    takes: Mapping[str, str]
    """Names of messages, with the digests of their schemas."""
    subscriptions: tuple[PatternText, ...]
    own_subscriptions: tuple[tuple[AgentKey, PatternText], ...] = ()
    """Those that agents made at run time: key and topic."""
    members: Mapping[Name, Name] = {}
    """Incarnations of processes, by name."""
    homes: Annotated[tuple[Name | None, ...], Field(min_length=PARTITIONS, max_length=PARTITIONS)] = NO_HOMES


class GrantsEntry(_Entry):
    type: WrittenGrants
    agents: Mapping[AgentKey, WrittenGrants] = {}
    """Those of single agents, by key."""


EntryT = TypeVar("EntryT", bound=_Entry)
_MODELS: dict[str, type[_Entry]] = {"process": ProcessEntry, "type": TypeEntry, "grants": GrantsEntry}


@dataclass(frozen=True, slots=True)
class _Stored:
    revision: int
    entry: _Entry | None
    """None is an entry that was removed."""


class Directory:
    """The copy of this process, and its writes."""

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects
        self._stored: dict[str, _Stored] = {}
        self._link: NatsLink | None = None
        self._latest, self._is_newer = 0, anyio.Event()
        """The newest revision that came as news, which are in order."""
        self.changed: list[Callable[[str], None]] = []
        """Called with the key of each entry that has changed."""

    async def open(self, link: NatsLink) -> None:
        self._link = link
        await link.subscribe(f"{self._subjects.root}.news.>", self._hear)
        await link.flush()
        await self.reload()

    # Reading

    def process(self, name: str) -> ProcessEntry | None:
        return self._find(f"process.{name}", ProcessEntry)

    def process_revision(self, name: str) -> int:
        stored = self._stored.get(f"process.{name}")
        return 0 if stored is None else stored.revision

    def type(self, type: str) -> TypeEntry | None:
        return self._find(f"type.{type_token(type)}", TypeEntry)

    def types(self) -> Iterator[tuple[str, TypeEntry]]:
        for key, stored in tuple(self._stored.items()):
            if isinstance(stored.entry, TypeEntry):
                yield key.removeprefix("type.").replace("/", "."), stored.entry

    def grants(self, type: str) -> GrantsEntry | None:
        return self._find(f"grants.{type_token(type)}", GrantsEntry)

    def home(self, agent: AgentId) -> Address | None:
        """The process where that agent is, or is to be created."""
        entry = self.type(agent.type)
        process = None if entry is None else entry.homes[partition_of(agent)]
        incarnation = None if entry is None or process is None else entry.members.get(process)
        return None if process is None or incarnation is None else Address(process, incarnation)

    def is_current(self, address: Address) -> bool:
        """Whether that process has not been started anew, or ended, since."""
        entry = self.process(address.process)
        return entry is not None and entry.incarnation == address.incarnation

    def _find(self, key: str, model: type[EntryT]) -> EntryT | None:
        stored = self._stored.get(key)
        return stored.entry if stored is not None and isinstance(stored.entry, model) else None

    # Keeping up

    async def reload(self) -> None:
        """Reads every entry."""
        link, subjects = self._linked, self._subjects
        question = {"subjects_filter": subjects.entry(">")}
        info = await link.call(subjects.api("STREAM.INFO", subjects.directory_stream), question)
        found = cast("dict[str, int]", info["state"].get("subjects") or {})
        async with anyio.create_task_group() as group:
            for subject in found:
                group.start_soon(self.refresh, subjects.entry_key(subject))
        self._latest = max(self._latest, int(info["state"]["last_seq"]))

    async def catch_up(self) -> None:
        """Returns when this copy has everything that was written before the call."""
        question = self._subjects.api("STREAM.INFO", self._subjects.directory_stream)
        info = await self._linked.call(question, b"", seconds=_NEWS_SECONDS)
        with anyio.move_on_after(_NEWS_SECONDS):
            while self._latest < int(info["state"]["last_seq"]):
                self._is_newer = anyio.Event()
                await self._is_newer.wait()
            return
        await self.reload()

    async def refresh(self, key: str) -> None:
        """Reads one entry from the stream, where this copy may be behind."""
        question = {"last_by_subj": self._subjects.entry(key)}
        try:
            subject = self._subjects.api("STREAM.MSG.GET", self._subjects.directory_stream)
            answer = await self._linked.call(subject, question)
        except NatsRefusedError as error:
            if error.code != _NOT_FOUND:
                raise
            return
        message = cast("dict[str, Any]", answer["message"])
        self._apply(key, int(message["seq"]), base64.b64decode(message.get("data") or ""))

    async def refresh_type(self, type: str) -> None:
        for key in keys_of(type):
            await self.refresh(key)

    async def _hear(self, message: Received) -> None:
        key, headers = self._subjects.news_key(message.subject), message.headers
        # Only what the stream has stored: NATS lets no process publish under this subject, but a process can have
        # messages of its own delivered there, which then have a subject to answer to.
        is_stored = not message.reply and headers.get("Nats-Subject") == self._subjects.entry(key)
        if is_stored and (revision := headers.get("Nats-Sequence", "")).isdecimal():
            self._apply(key, int(revision), message.data)
            self._latest = int(revision)
            self._is_newer.set()

    def _apply(self, key: str, revision: int, data: bytes) -> None:
        known = self._stored.get(key)
        if known is not None and known.revision >= revision:
            return
        self._stored[key] = _Stored(revision, _read(key, data))
        for call in self.changed:
            call(key)

    # Writing

    async def write(self, key: str, entry: _Entry | None, last: int, *, seconds: float = 5.0) -> int:
        """Its new revision; WrongRevisionError if the last one is another."""
        data = b"" if entry is None else entry.model_dump_json().encode()
        answer = await self._linked.call(
            self._subjects.entry(key), data, headers={_REVISION: str(last)}, seconds=seconds
        )
        revision = int(answer["seq"])
        self._apply(key, revision, data)
        return revision

    async def change_type(self, type: str, change: Callable[[TypeEntry | None], TypeEntry | None]) -> None:
        """Writes what `change` makes of the entry, which it may be asked for again; None leaves it as it is."""
        await self._change(f"type.{type_token(type)}", TypeEntry, change)

    async def change_grants(self, type: str, change: Callable[[GrantsEntry | None], GrantsEntry | None]) -> None:
        await self._change(f"grants.{type_token(type)}", GrantsEntry, change)

    async def _change(self, key: str, model: type[EntryT], change: Callable[[EntryT | None], EntryT | None]) -> None:
        for _ in range(_MOST_ATTEMPTS):
            made = change(self._find(key, model))
            if made is None:
                return
            stored = self._stored.get(key)
            try:
                await self.write(key, made, 0 if stored is None else stored.revision)
                return
            except WrongRevisionError:
                await self.refresh(key)
        raise DeliveryError(f"the entry {key} of the directory changed {_MOST_ATTEMPTS} times meanwhile; try again")

    @property
    def _linked(self) -> NatsLink:
        assert self._link is not None
        return self._link


def keys_of(type: str) -> tuple[str, str]:
    """The entries of a type: who has it, and its grants."""
    return f"type.{type_token(type)}", f"grants.{type_token(type)}"


def _read(key: str, data: bytes) -> _Entry | None:
    """None also for what is not valid: another version of this package may have written it, and nothing is granted."""
    model = _MODELS.get(key.partition(".")[0])
    if model is None or not data:
        return None
    try:
        return model.model_validate_json(data)
    except ValidationError:
        return None


async def prepare_space(link: NatsLink, subjects: Subjects, replicas: int = 1) -> None:
    """Creates the two streams of a space, if they do not exist yet."""
    directory = {
        "subjects": [subjects.entry(">")],
        "retention": "limits",
        "max_msgs_per_subject": 1,
        "republish": {"src": subjects.entry(">"), "dest": f"{subjects.root}.news.>"},
    }
    publications = {
        "subjects": [f"{subjects.root}.publication.>"],
        "retention": "workqueue",
        "max_bytes": _STORED_BYTES,
    }
    for name, config in ((subjects.directory_stream, directory), (subjects.publication_stream, publications)):
        await _prepare_stream(
            link, subjects, {"name": name, "storage": "file", "discard": "new", "num_replicas": replicas, **config}
        )


async def _prepare_stream(link: NatsLink, subjects: Subjects, config: Mapping[str, object]) -> None:
    name = str(config["name"])
    question = subjects.api("STREAM.INFO", name)
    try:
        await link.call(question, b"")
    except DeliveryError as error:
        if link.is_refused(question):
            raise UsageError(f"these credentials are not for the space {subjects.space!r}") from error
        if not isinstance(error, NatsRefusedError) or error.code != _NOT_FOUND:
            raise
        try:
            await link.call(subjects.api("STREAM.CREATE", name), json.dumps(config).encode())
        except DeliveryError as refused:
            raise UsageError(
                f"the stream {name} does not exist, and cannot be created with these credentials ({refused}); "
                "prepare the space with credentials that may create streams"
            ) from refused
