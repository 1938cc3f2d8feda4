"""What `make fuzz` feeds with bytes: parsers that read what an attacker wrote.

A target returns, or raises the one error that its parser documents; whatever else it raises is a finding. Where a
parser accepts its input, the target also holds it to a property: what was understood means the same when it is written
down and read again, or read in pieces.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fuzz.documents import (
    audit_export,
    audit_record,
    console_code,
    notebook_file,
    notebook_html,
    policy_file,
    proof_report,
    script_header,
    shell_line,
    snapshot_archive,
)
from fuzz.peers import (
    agent_envelope,
    dns_query,
    e2b_messages,
    guest_frames,
    http_request,
    http_response,
    join_token,
    remote_link,
    tls_hello,
)

from fumehood.guest.contract.frames import encode
from fumehood.runtime.envelopes import Envelope, ReplyEnvelope, ReplyFailure
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.messages import Payload


@dataclass(frozen=True)
class Target:
    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    """Inputs from which the first new ones are made."""


def _packed(text: str) -> bytes:
    """As in a join token."""
    return base64.urlsafe_b64encode(zlib.compress(text.encode())).rstrip(b"=")


def _archives() -> tuple[bytes, ...]:
    found: list[bytes] = []
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode="w", format=form) as archive:
            for name, kind in (("d", tarfile.DIRTYPE), ("d/f", tarfile.REGTYPE), ("d/l", tarfile.SYMTYPE)):
                info = tarfile.TarInfo(name)
                info.type, info.linkname, info.size = kind, "f" if kind == tarfile.SYMTYPE else "", 0
                archive.addfile(info)
        found.append(target.getvalue()[:2048])
    return tuple(found)


TARGETS: Mapping[str, Target] = {
    "http_request": Target(
        http_request,
        (
            b"GET / HTTP/1.1\r\nHost: a",
            b"POST /x?y=1 HTTP/1.1\r\nHost: a:80\r\nContent-Length: 3\r\nExpect: 100-continue",
            b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive, x",
        ),
    ),
    "http_response": Target(
        http_response,
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3", b"HTTP/1.1 101 S\r\nUpgrade: websocket", b"1a", b"HTTP/1.0 304 "),
    ),
    "tls_hello": Target(
        tls_hello,
        (
            bytes.fromhex("1603010030010000") + bytes(44),
            bytes.fromhex("140303000101"),
            b"\x16\x03\x03\x00\x04\x02\0\0\0",
        ),
    ),
    "dns_query": Target(
        dns_query, (bytes.fromhex("123401000001000000000000") + b"\x01a\x07example\x00\x00\x01\x00\x01",)
    ),
    "guest_frames": Target(guest_frames, (encode({"kind": "output"}, b"x"), encode({"display": {}, "metadata": {}}))),
    "shell_line": Target(
        shell_line,
        (
            b'ls -l | grep x && echo "$HOME" > out.txt',
            b"for i in 1 2; do ls; done",
            b"x=$(git status); find . -name '*.py'",
        ),
    ),
    "policy_file": Target(
        policy_file,
        (
            b"network:\n  allow:\n    - {host: a.example, ports: [443], methods: [GET], paths: ['/x/**']}\n",
            b"resources: {memory: 64M, timeout: 5s}\ncommands: {allow: [ls, 'git *']}\n",
            b"filesystem: {mounts: [{source: /x, target: /y}], outputs: ['out/**']}\n",
        ),
    ),
    "audit_record": Target(
        audit_record,
        (b'{"data":{"a":1},"ids":{},"kind":"run.started","seq":3,"time":"2026-01-31T09:30:00.000000Z","who":"x"}',),
    ),
    "audit_export": Target(audit_export, (b'{"hash":"00","record":{}}\n', b'{"attachment":"00","data":""}\n')),
    "remote_link": Target(
        remote_link,
        (
            encode({"n": 1, "call": 1, "options": 2, "code": 3, "stdin": None}, b"{}1+1") + encode({"received": 1}),
            encode({"n": 1}) + encode({"n": 2, "options": 17, "code": None, "stdin": "live"}, b'{"args": ["a\\n"]}'),
        ),
    ),
    "agent_envelope": Target(
        agent_envelope,
        (
            Envelope("1", Payload("m", b"x"), None, AgentId("a", "b"), TopicId("t", "s"), "c", 1, 5.0, ("d",)).to_bytes(
                0, 0
            ),
            ReplyEnvelope("1", AgentId("a", "b"), Payload("m", b"body")).to_bytes(),
            ReplyEnvelope("1", AgentId("a", "b"), failure=ReplyFailure("failed", "text")).to_bytes(),
        ),
    ),
    "join_token": Target(join_token, (b"eJyrrgUAAXUA-Q", _packed("[" * 5000), _packed('{"name": "a", "urls": []}'))),
    "e2b_messages": Target(e2b_messages, (b"\0\0\0\0\2{}", b'\0\0\0\0\x08{"a": 1}\2\0\0\0\2{}', b"\1\0\0\0\0")),
    "notebook_html": Target(
        notebook_html,
        (
            b'<table border="1" class="dataframe"><tr><td style="text-align: right;">1</td></tr></table>',
            b"<img src='data:image/png;base64,AAAA' alt=x onerror=1><script>x</script><p>$x$</p>",
            b"<svg onload=1><a href=x></svg></a><!-- <b> --><![CDATA[<b>]]>&lt;script&gt;",
        ),
    ),
    "console_code": Target(
        console_code,
        (b"def f(x):\n    return 'a' # \xe2\x80\xae\n", b'if [ -f x ]; then echo "$y"; fi', b"\x1b[31m\r<b>&amp;\0"),
    ),
    "script_header": Target(
        script_header,
        (
            b'# /// script\n# dependencies = ["a>=1"]\n# requires-python = ">=3.11"\n# ///\n',
            b"[tool.uv]\nindex-url = 'x'",
        ),
    ),
    "notebook_file": Target(
        notebook_file,
        (
            b'{"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "code", "source": ["1"], "metadata": {}}]}',
            b'{"nbformat": 4, "metadata": {"kernelspec": {"language": "R"}}, "cells": [{"cell_type": "markdown"}]}',
        ),
    ),
    "snapshot_archive": Target(snapshot_archive, _archives()),
    "proof_report": Target(
        proof_report,
        (
            json.dumps(
                {
                    "format": 1,
                    "made_at": "",
                    "policy_name": "",
                    "policy_digest": "",
                    "image_digest": None,
                    "host": dict.fromkeys(("version", "backend", "kernel", "machine", "python", "system", "user"), ""),
                    "controls": [{"control": "audit", "mechanism": "m"}],
                    "observations": [],
                }
            ).encode(),
            b"[" * 4000,
        ),
    ),
}
