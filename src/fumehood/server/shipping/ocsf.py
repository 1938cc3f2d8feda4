"""Records as events of the Open Cybersecurity Schema Framework (OCSF), one a line, to a file or an address.

A record is in `raw_data` as the log has it; what OCSF has a place for is there as well. https://schema.ocsf.io/1.3.0
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fumehood import __version__
from fumehood.audit.records import Record
from fumehood.frozen import frozen
from fumehood.server.shipping.chains import RecordBatch
from fumehood.server.shipping.settings import OcsfSettings
from fumehood.server.shipping.severity import severity_of
from fumehood.server.shipping.sinks import SinkError, read_secret
from fumehood.server.shipping.webhook import HttpPost

_VERSION = "1.3.0"
_OTHER = 99
_SUCCESS, _FAILURE = 1, 2
_LAST_LINE_BYTES = 4 * 1024 * 1024


@frozen
class EventClass:
    """A class of OCSF and an activity of it; the category is the first digit of the class."""

    uid: int
    activity: int


_PROCESS, _NETWORK, _FILE, _ENTITY, _LIFECYCLE, _API, _FINDING = 1007, 4001, 1001, 3004, 6002, 6003, 2004
_CLASSES: Mapping[str, EventClass] = {
    "run.started": EventClass(_PROCESS, 1),
    "run.finished": EventClass(_PROCESS, 2),
    "run.broke": EventClass(_PROCESS, 2),
    "egress.allowed": EventClass(_NETWORK, 1),
    "egress.denied": EventClass(_NETWORK, 5),
    "file.in": EventClass(_FILE, 1),
    "file.out": EventClass(_FILE, 2),
    "file.begun": EventClass(_FILE, 2),
    "file.broken": EventClass(_FILE, 2),
    "file.removed": EventClass(_FILE, 4),
    "sandbox.opened": EventClass(_LIFECYCLE, 3),
    "sandbox.closed": EventClass(_LIFECYCLE, 4),
    "server.started": EventClass(_LIFECYCLE, 3),
    "server.ended": EventClass(_LIFECYCLE, 4),
    "tenant.created": EventClass(_ENTITY, 1),
    "tenant.removed": EventClass(_ENTITY, 4),
    "key.created": EventClass(_ENTITY, 1),
    "key.revoked": EventClass(_ENTITY, 4),
    "quota.set": EventClass(_ENTITY, 3),
    "catalogue.changed": EventClass(_ENTITY, 3),
    "secret.set": EventClass(_ENTITY, 3),
    "secret.removed": EventClass(_ENTITY, 4),
    "records.read": EventClass(_ENTITY, 2),
    "canary.seen": EventClass(_FINDING, 1),
}


def event_of(record: Record, batch: RecordBatch, host: str) -> dict[str, object]:
    fields, data = record.parse(), record.data
    found = _CLASSES.get(record.kind, EventClass(_API, _OTHER))
    who = str(fields.get("who", ""))
    event: dict[str, object] = {
        "class_uid": found.uid,
        "category_uid": found.uid // 1000,
        "activity_id": found.activity,
        "type_uid": found.uid * 100 + found.activity,
        "time": int(datetime.fromisoformat(record.time).timestamp() * 1000),
        "severity_id": int(severity_of(record)),
        "metadata": {
            "version": _VERSION,
            "product": {"name": "Fumehood", "vendor_name": "Fumehood", "version": __version__},
            "uid": f"{batch.log}:{record.seq}",
            "sequence": record.seq,
            "log_name": batch.log,
            "event_code": record.kind,
            "original_time": record.time,
        },
        "actor": {"user": {"name": who, "uid": who}},
        "device": {"hostname": host, "type_id": 1},
        "raw_data": record.body,
        "unmapped": {"hash": record.hash.hex(), "ids": fields.get("ids", {})},
        **_status(record, data),
        **_of_class(found.uid, record, data),
    }
    if batch.tenant is not None:
        event["metadata"] = {**_mapping(event["metadata"]), "tenant_uid": batch.tenant}
    return event


def _mapping(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownArgumentType]  # ours


def _status(record: Record, data: Mapping[str, Any]) -> dict[str, object]:
    is_failure = record.kind.endswith((".denied", ".refused", ".broke")) or data.get("status", "success") != "success"
    detail = data.get("reason") or data.get("detail") or data.get("cause")
    status: dict[str, object] = {"status_id": _FAILURE if is_failure else _SUCCESS}
    return status | ({"status_detail": str(detail)} if detail else {})


def _of_class(uid: int, record: Record, data: Mapping[str, Any]) -> dict[str, object]:
    """What events of this class must have."""
    match uid:
        case 1007:
            exit_code = {"exit_code": data["exit_code"]} if "exit_code" in data else {}
            return {"process": {"uid": record.run_id or "", "name": "sandboxed program"}, **exit_code}
        case 4001:
            is_denied = record.kind == "egress.denied"
            what = str(data.get("what", ""))
            verdict = {"action_id": 2 if is_denied else 1, "disposition_id": 2 if is_denied else 1}
            return {"dst_endpoint": {"hostname": what}, "count": data.get("count", 1), **verdict}
        case 1001:
            path = str(data.get("path", ""))
            return {"file": {"name": path.rpartition("/")[2], "path": path, "type_id": 1, "size": data.get("size", 0)}}
        case 3004:
            return {"entity": {"name": str(data.get("name") or data.get("key") or ""), "type": record.kind}}
        case 6002:
            return {"app": {"name": "Fumehood", "vendor_name": "Fumehood", "uid": record.sandbox_id or ""}}
        case 2004:
            title = f"canary {data.get('canary', '')}"
            return {"finding_info": {"title": title, "uid": f"{record.run_id}:{record.seq}"}}
        case _:
            return {"api": {"operation": record.kind}, "src_endpoint": {"name": "fumehood"}}


def _lines(batch: RecordBatch) -> bytes:
    host = socket.gethostname()
    events = (event_of(record, batch, host) for record in batch.records)
    return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events).encode("ascii")


class OcsfFileSink:
    """Appends, and returns when that is on the disk. Opened anew for each batch, so that it can be rotated."""

    def __init__(self, path: str) -> None:
        self._path = path

    def send(self, batch: RecordBatch) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self._path, flags, 0o600)
            with os.fdopen(descriptor, "ab", buffering=0) as file:
                _drop_unfinished_line(descriptor)
                content = memoryview(_lines(batch))
                while content:
                    content = content[file.write(content) :]
                os.fsync(descriptor)
        except OSError as error:
            raise SinkError(f"{self._path}: {error.strerror or error}") from error

    def abort(self) -> None:
        """It does not wait for others."""


def _drop_unfinished_line(descriptor: int) -> None:
    """What a crash or a full disk has left of a line; its record comes again as a whole."""
    details = os.fstat(descriptor)
    if not stat.S_ISREG(details.st_mode):
        raise OSError(0, "it is not a regular file")
    begin = max(0, details.st_size - _LAST_LINE_BYTES)
    end = os.pread(descriptor, _LAST_LINE_BYTES, begin)
    if end and not end.endswith(b"\n"):
        os.ftruncate(descriptor, begin + end.rfind(b"\n") + 1)


class OcsfHttpSink:
    def __init__(self, settings: OcsfSettings) -> None:
        self._post = HttpPost(settings.url or "", settings.ca)
        self._headers = {"Content-Type": "application/x-ndjson"}
        if settings.token_file is not None:
            self._headers["Authorization"] = f"Bearer {read_secret(settings.token_file)}"

    def send(self, batch: RecordBatch) -> None:
        self._post.send(_lines(batch), self._headers)

    def abort(self) -> None:
        self._post.abort()
