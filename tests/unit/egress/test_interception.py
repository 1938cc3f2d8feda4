"""TLS that ends at the gateway: rules about requests, and credentials that never come in."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from unit.egress.places import (
    NAME,
    Box,
    Open,
    Recorder,
    Serve,
    Trusted,
    Upstream,
    read_all,
    read_until,
    response,
    told,
)

from fumehood.egress.certificates import CertificateAuthority
from fumehood.egress.credentials import Credentials
from fumehood.errors import UsageError
from fumehood.policy.secret import PROCESS_SECRETS

GET = b"GET /public/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
VALUE = "ghp_0123456789abcdef"
SECRET = {"name": "TOKEN", "from_env": "TOKEN", "inject": {"host": NAME}}
RULE: dict[str, Any] = {"protocol": "tls", "methods": ["GET", "POST"], "paths": ["/public/**"]}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def server(upstream: Serve, recorder: Recorder, trusted: Trusted) -> Upstream:
    return upstream(recorder, tls=trusted.authority.context(NAME))


@pytest.fixture
def box(server: Upstream, trusted: Trusted, open_box: Open) -> Box:
    return open_box({**RULE, "ports": [server.port]}, trust=trusted.client_context)


@pytest.fixture
def secret_box(server: Upstream, trusted: Trusted, open_box: Open, monkeypatch: pytest.MonkeyPatch) -> Box:
    monkeypatch.setenv("TOKEN", VALUE)
    return open_box({**RULE, "ports": [server.port]}, trust=trusted.client_context, secrets=[SECRET])


def ask(client: ssl.SSLSocket, request: bytes) -> tuple[int, bytes]:
    client.sendall(request)
    status, _, body = response(client)
    return status, body


def test_a_program_that_trusts_its_bundle_notices_nothing(box: Box, server: Upstream, recorder: Recorder) -> None:
    client = box.secure(box.connect(NAME, server.port))
    assert ask(client, GET) == (200, b"hi")
    assert ask(client, GET) == (200, b"hi")
    assert server.accepted == 1
    assert recorder.heads[0].startswith("GET /public/x HTTP/1.1\r\nHost: api.example.com:")
    assert box.run.end() == ()


def test_a_request_that_no_rule_allows_never_reaches_the_server(box: Box, server: Upstream, recorder: Recorder) -> None:
    client = box.secure(box.connect(NAME, server.port))
    client.sendall(GET.replace(b"public", b"private"))
    assert told(client) == (403, "no rule allows this path")
    (denial,) = box.run.end()
    assert denial.what == f"GET https://{NAME}:{server.port}/private/x"
    assert server.accepted == 0


def test_a_host_header_that_differs_from_the_handshake_is_refused(
    box: Box, server: Upstream, recorder: Recorder
) -> None:
    client = box.secure(box.connect(NAME, server.port))
    client.sendall(GET.replace(b"api.example.com", b"evil.com"))
    assert told(client) == (403, f"the Host header names another server than {NAME}")
    assert recorder.heads == []


def test_a_client_that_insists_on_another_protocol_is_refused(box: Box, server: Upstream) -> None:
    with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        box.secure(box.connect(NAME, server.port), protocols=["h2"])
    assert "HTTP/1.1 only" in box.whys()[0]
    client = box.secure(box.connect(NAME, server.port), protocols=["h2", "http/1.1"])
    assert client.selected_alpn_protocol() == "http/1.1"


def test_a_client_that_does_not_trust_the_gateway_is_explained(box: Box, server: Upstream, trusted: Trusted) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        trusted.client_context().wrap_socket(box.connect(NAME, server.port), server_hostname=NAME)
    assert "SSL_CERT_FILE" in box.first_denial().remedy


def test_a_server_that_the_host_does_not_trust_is_not_talked_to(
    upstream: Serve, recorder: Recorder, trusted: Trusted, open_box: Open
) -> None:
    for context in (CertificateAuthority().context(NAME), trusted.authority.context("other.example.com")):
        server = upstream(recorder, tls=context)
        box = open_box({**RULE, "ports": [server.port]}, trust=trusted.client_context)
        client = box.secure(box.connect(NAME, server.port))
        client.sendall(GET)
        status, why = told(client)
        assert status == 502
        assert "has no valid certificate" in why
    assert recorder.heads == []


def test_each_sandbox_has_an_authority_of_its_own(open_box: Open) -> None:
    first, second = (open_box({**RULE, "ports": [443]}) for _ in range(2))
    assert first.sandbox.authority is not None
    assert second.sandbox.authority is not None
    assert first.sandbox.authority.pem != second.sandbox.authority.pem
    assert first.sandbox.authority.pem in first.sandbox.trust
    assert second.sandbox.authority.pem not in first.sandbox.trust


def test_a_credential_is_added_outside(secret_box: Box, server: Upstream, recorder: Recorder) -> None:
    client = secret_box.secure(secret_box.connect(NAME, server.port))
    assert ask(client, GET) == (200, b"hi")
    assert f"\r\nAuthorization: Bearer {VALUE}\r\n" in recorder.heads[0]


@pytest.mark.parametrize(
    "slot", ["Authorization: mine", "AUTHORIZATION: mine", "authorization: mine\r\nAuthorization: mine too"]
)
def test_a_header_in_the_slot_of_a_credential_is_replaced(
    slot: str, secret_box: Box, server: Upstream, recorder: Recorder
) -> None:
    client = secret_box.secure(secret_box.connect(NAME, server.port))
    assert ask(client, GET[:-2] + slot.encode() + b"\r\n\r\n") == (200, b"hi")
    assert recorder.heads[0].lower().count("authorization") == 1
    assert "mine" not in recorder.heads[0]


def test_a_header_that_looks_like_the_slot_is_dropped(
    server: Upstream, recorder: Recorder, trusted: Trusted, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", VALUE)
    secret = {**SECRET, "inject": {"host": NAME, "header": "X-Api-Key", "format": "{}"}}
    box = open_box({**RULE, "ports": [server.port]}, trust=trusted.client_context, secrets=[secret])
    client = box.secure(box.connect(NAME, server.port))
    assert ask(client, GET[:-2] + b"X_Api_Key: mine\r\nx-api_key: mine\r\nConnection: x-api-key\r\n\r\n")[0] == 200
    assert "mine" not in recorder.heads[0]
    assert f"X-Api-Key: {VALUE}" in recorder.heads[0]


def test_a_refused_request_does_not_carry_the_credential_anywhere(
    secret_box: Box, server: Upstream, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = secret_box.secure(secret_box.connect(NAME, server.port))
    client.sendall(GET.replace(b"GET", b"TRACE"))
    assert told(client) == (403, "TRACE would send the credential back")
    denials = secret_box.run.end()
    shown = "".join(
        map(
            repr,
            (denials, secret_box.sandbox, secret_box.sandbox.rules.credentials, secret_box.sandbox.rules.book.policy),
        )
    )
    assert VALUE not in shown + caplog.text
    assert recorder.heads == []


@pytest.mark.parametrize("framing", ["length", "chunks", "until close"])
def test_a_server_that_sends_the_credential_back_is_not_believed(
    framing: str, upstream: Serve, trusted: Trusted, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", VALUE)

    def serve(connection: socket.socket) -> None:
        head = read_until(connection, b"\r\n\r\n")
        assert b"Accept-Encoding: identity" in head
        body = b"you sent " + VALUE.encode() + b", " + VALUE.encode()[:10]
        start = b"HTTP/1.1 200 " + VALUE.encode() + b"\r\nX-Echo: " + VALUE.encode() + b"\r\n"
        if framing == "chunks":
            pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
            connection.sendall(start + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n")
        elif framing == "length":
            connection.sendall(start + b"Content-Length: %d\r\n\r\n" % len(body))
            for byte in body:
                connection.sendall(bytes([byte]))
        else:
            connection.sendall(start + b"\r\n" + body)
            with contextlib.suppress(OSError):
                connection.unwrap()  # type: ignore[attr-defined]

    server = upstream(serve, tls=trusted.authority.context(NAME))
    box = open_box({**RULE, "ports": [server.port]}, trust=trusted.client_context, secrets=[SECRET])
    client = box.secure(box.connect(NAME, server.port))
    client.sendall(GET[:-2] + b"Accept-Encoding: gzip\r\n\r\n")
    status, headers, body = response(client)
    hidden = "*" * len(VALUE)
    assert (status, headers["x-echo"]) == (200, hidden)
    assert body == f"you sent {hidden}, {VALUE[:10]}".encode()


def open_echo(reply: bytes, upstream: Serve, trusted: Trusted, open_box: Open) -> tuple[ssl.SSLSocket, list[bytes]]:
    """A connection to a server that always answers so, and what it was asked."""

    def serve(connection: socket.socket) -> None:
        heads.append(read_until(connection, b"\r\n\r\n"))
        connection.sendall(reply)

    heads: list[bytes] = []
    server = upstream(serve, tls=trusted.authority.context(NAME))
    box = open_box({**RULE, "ports": [server.port]}, trust=trusted.client_context, secrets=[SECRET])
    return box.secure(box.connect(NAME, server.port)), heads


@pytest.mark.parametrize(
    "head",
    [
        f"HTTP/1.1 200 {VALUE}\r\n",
        f"HTTP/1.1 200 OK\r\n{VALUE}: x\r\n",
        f"HTTP/1.1 200 OK\r\nX-{VALUE.upper()}-Y: x\r\n",
        f"HTTP/1.1 200 OK\r\nX: {VALUE.swapcase()}\r\n",
        f"HTTP/1.1 103 {VALUE}\r\nX: {VALUE}\r\n\r\nHTTP/1.1 200 OK\r\n",
        f"HTTP/1.1 199 {VALUE}\r\n\r\nHTTP/1.1 200 OK\r\n",
        f"HTTP/1.0 200 OK\r\nX: {VALUE}\r\n",
    ],
)
def test_a_credential_comes_back_in_no_part_of_a_head(
    head: str, upstream: Serve, trusted: Trusted, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", VALUE)
    reply = f"{head}Connection: close\r\nContent-Length: 2\r\n\r\nhi".encode()
    client, _ = open_echo(reply, upstream, trusted, open_box)
    client.sendall(GET[:-2] + b"Connection: close\r\n\r\n")
    seen = read_all(client)
    assert seen.endswith(b"\r\n\r\nhi")
    assert VALUE.lower().encode() not in seen.lower()


def test_a_credential_in_trailers_and_extensions_of_chunks_stays_outside(
    upstream: Serve, trusted: Trusted, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", VALUE)
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nhi\r\n"
    for end in (f"0\r\nX: {VALUE}\r\n{VALUE}: x\r\n\r\n", f"0;x={VALUE}\r\n\r\n"):
        client, _ = open_echo(start + end.encode(), upstream, trusted, open_box)
        client.sendall(GET[:-2] + b"Connection: close\r\n\r\n")
        assert VALUE.encode() not in read_all(client)


def test_a_part_of_an_answer_cannot_be_asked_for_where_a_credential_is_added(
    upstream: Serve, trusted: Trusted, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", VALUE)
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    client, heads = open_echo(reply, upstream, trusted, open_box)
    asked = (
        b"Range: bytes=9-12\r\nIf-Range: x\r\nA-IM: vcdiff\r\nAccept-Charset: utf-16\r\nAccept_Ranges: kept out\r\n\r\n"
    )
    assert ask(client, GET[:-2] + asked) == (200, b"hi")
    for name in (b"range", b"a-im", b"charset"):
        assert name not in heads[0].lower()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"206 Partial Content\r\nContent-Range: bytes 9-12/40\r\n", "sent a part"),
        (b"226 IM Used\r\n", "sent a part"),
        (b"200 OK\r\nContent-Type: Multipart/Byteranges; boundary=x\r\n", "sent a part"),
        (b"200 OK\r\nContent-Encoding: gzip\r\n", "encoded its answer"),
        (b"200 OK\r\nContent-Encoding: identity\r\nContent-Encoding: br\r\n", "encoded its answer"),
    ],
)
def test_an_answer_in_which_a_credential_could_not_be_recognised_is_refused(
    answer: bytes, why: str, upstream: Serve, trusted: Trusted, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", VALUE)
    reply = b"HTTP/1.1 " + answer + b"Content-Length: 4\r\n\r\n" + VALUE[:4].encode()
    client, _ = open_echo(reply, upstream, trusted, open_box)
    client.sendall(GET[:-2] + b"Range: bytes=9-12\r\n\r\n")
    status, told_why = told(client)
    assert status == 502
    assert why in told_why


def test_parts_and_encodings_are_free_where_no_credential_is_added(
    upstream: Serve, trusted: Trusted, open_box: Open
) -> None:
    def serve(connection: socket.socket) -> None:
        assert b"Range: bytes=1-2\r\n" in read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 206 Partial\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nhi")

    server = upstream(serve, tls=trusted.authority.context(NAME))
    box = open_box({**RULE, "ports": [server.port]}, trust=trusted.client_context)
    client = box.secure(box.connect(NAME, server.port))
    assert ask(client, GET[:-2] + b"Range: bytes=1-2\r\n\r\n") == (206, b"hi")


def test_a_credential_is_not_sent_to_another_host_of_the_same_rule(
    upstream: Serve, recorder: Recorder, trusted: Trusted, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", VALUE)
    other = "other.example.com"
    server = upstream(recorder, tls=trusted.authority.context(other))
    box = open_box(
        {**RULE, "host": "*.example.com", "ports": [server.port]}, trust=trusted.client_context, secrets=[SECRET]
    )
    client = box.secure(box.connect(other, server.port), other)
    assert ask(client, GET.replace(b"api", b"other"))[0] == 200
    assert VALUE not in recorder.heads[0]


def test_a_secret_is_read_from_a_file_without_its_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{VALUE}\n")
    secret = {"name": "TOKEN", "from_file": str(tmp_path / "token"), "inject": {"host": NAME}}
    policy = Box.policy({"ports": [443]}, secrets=[secret])
    assert Credentials(policy, PROCESS_SECRETS).headers(policy.secrets) == [("Authorization", f"Bearer {VALUE}")]


@pytest.mark.parametrize(
    ("value", "why"),
    [(None, "variable TOKEN is not set"), ("", "is empty"), (f"{VALUE}\r\nX: y", "is not valid in a header")],
)
def test_a_secret_without_a_usable_value_stops_the_opening(
    value: str | None, why: str, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("TOKEN", value)
    with pytest.raises(UsageError, match=why) as caught:
        open_box({"ports": [443]}, secrets=[SECRET])
    assert VALUE not in str(caught.value)
    assert str(caught.value).startswith("secret TOKEN: ")
