"""Ways around the gateway: what a program may try, under one generous policy (`outside.py`).

What it sees and what its caller is told stands in `docs/bypasses.md`, on every backend, and `test_bypasses.py` keeps
that true. There WEB, SECURE and RAW stand for ports.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DOCUMENT = Path(__file__).parents[2] / "docs" / "bypasses.md"
BACKENDS = ("native", "docker", "gvisor")
_ROW = re.compile(
    r"^\| (?P<attempt>[^|]+) \| (?P<backends>[^|]+) \| (?P<saw>[^|]+) \| (?:`(?P<denial>[^|]+)`)? ?\|$", re.MULTILINE
)

TOOLS = r"""
import errno, json, os, socket, ssl, struct, urllib.error, urllib.request

LONG = b"0123456789abcdef0123456789abcdef"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
LENGTH = b"Content-Length: 30\r\n"
WEBSOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
PROXY = ("127.0.0.1", int(os.environ["HTTP_PROXY"].rstrip("/").rpartition(":")[2]))

def outcome(action):
    try:
        return action()
    except ssl.SSLError as error:
        return f"TLS: {(error.reason or type(error).__name__).lower().replace('_', ' ')}"
    except socket.gaierror as error:
        return "no such name" if error.errno == socket.EAI_NONAME else f"gaierror {error.errno}"
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except urllib.error.URLError as error:
        return outcome(lambda: raising(error.reason))
    except UnicodeError:
        return "not a name"
    except ValueError as error:
        return f"refused by the client itself"
    except (ConnectionResetError, BrokenPipeError):
        return "closed"  # whether it is reset or ends depends on who is quicker
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)

def raising(error):
    raise error

def spoken(line, data):
    line.settimeout(10)
    line.sendall(data)
    answer = b""
    while more := line.recv(65536):
        answer += more
    if answer.startswith(b"\x15"):
        return "a TLS alert"
    words = [part.split()[0].decode() for part in answer.split(b"HTTP/1.1 ")[1:]]
    return "HTTP " + ", ".join(words) if words else f"{len(answer)} bytes" if answer else "closed"

def talk(host, port, data=b"\r\n"):
    with socket.create_connection((host, port), 10) as line:
        return spoken(line, data)

def twice(host, port):
    with socket.create_connection((host, port), 10) as line:
        line.sendall(b"?")
        line.recv(1)
    return talk(host, port)

def request(target, host, method="GET", extra=b""):
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n".encode() + extra + b"\r\n"

def plain(target, method="GET", extra=b""):
    return talk("plain.example", WEB, request(target, f"plain.example:{WEB}", method, extra))

def first():
    return f"GET /open/x HTTP/1.1\r\nHost: plain.example:{WEB}\r\n\r\n".encode()

def second(target, host):
    return talk("plain.example", WEB, first() + request(target, f"{host}:{WEB}"))

def tunnel(place):
    return f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode()

def handshake(host, port, name, data=None):
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    context.check_hostname = False
    with socket.create_connection((host, port), 10) as line, context.wrap_socket(line, server_hostname=name) as tls:
        return spoken(tls, data) if data else "a handshake"

def read(target, host):
    return handshake("reader.example", SECURE, "reader.example", request(target, f"{host}:{SECURE}"))

def hello(name, *extensions):
    server = struct.pack("!HBH", len(name) + 3, 0, len(name)) + name
    parts = [(0, server), (43, b"\x02\x03\x04"), (10, b"\0\x02\0\x1d"), *extensions]
    block = b"".join(struct.pack("!HH", kind, len(body)) + body for kind, body in parts)
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + struct.pack("!H", len(block)) + block
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack("!H", len(message)) + message

def asked_again(name):
    first, second = (hello(each, (13, b"\0\x04\x04\x03\x08\x04"), (51, b"\0\0")) for each in (b"secure.example", name))
    with socket.create_connection(("secure.example", SECURE), 10) as line:
        line.settimeout(10)
        line.sendall(first + second)
        answer = b""
        while more := line.recv(65536):
            answer += more
    return "a TLS alert" if answer[-7:-4] == b"\x15\x03\x03" else f"{len(answer)} bytes"

def hidden(name):
    return talk("secure.example", SECURE, hello(name, (0xFE0D, bytes(16))))

def datagram(address, port, data=b"?", family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as line:
        line.settimeout(10)
        line.connect((address, port))
        line.send(data)
        return f"{len(line.recv(4096))} bytes"

def question(name, kind=1):
    labels = b"".join(bytes([len(label)]) + label for label in name.split(b"."))
    return struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)

def ask(name, kind=1):
    with socket.socket(type=socket.SOCK_DGRAM) as line:
        line.settimeout(10)
        line.connect(("127.0.0.1", 53))
        line.send(question(name, kind))
        answer = line.recv(4096)
    codes = {0: "no error", 1: "FORMERR", 3: "NXDOMAIN", 5: "REFUSED"}
    return f"{codes.get(answer[3] & 15, answer[3] & 15)}, {answer[7]} answers"

def socks(name, port):
    with socket.create_connection(PROXY, 10) as line:
        line.settimeout(10)
        line.sendall(b"\5\1\0")
        line.recv(2)
        line.sendall(b"\5\1\0\3" + bytes([len(name)]) + name + struct.pack("!H", port))
        return f"SOCKS reply {line.recv(10)[1:2].hex() or 'none'}"

def through_proxy(data):
    with socket.create_connection(PROXY, 10) as line:
        return spoken(line, data)

def by_proxy(place, host):
    return through_proxy(request(f"http://{place}:{WEB}/", host))

def ping(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as line:
        line.settimeout(10)
        line.sendto(b"\x08" + bytes(7), (address, 0))
        return f"{len(line.recv(4096))} bytes"

def get(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        return f"HTTP {answer.status}"
"""


BYPASSES = {
    # Past the names.
    "an address instead of a name, at a port of a rule": "talk('203.0.113.9', WEB)",
    "an address instead of a name, at another port": "talk('203.0.113.9', 444)",
    "where clouds hand out credentials": "talk('169.254.169.254', WEB)",
    "a private address": "talk('10.0.0.1', WEB)",
    "the host's own loopback": "talk('127.0.0.1', WEB)",
    "an address that stands for no name": "talk('127.100.0.1', WEB)",
    "IPv6": "talk('2001:db8::9', WEB)",
    "IPv4 in IPv6 clothes": "talk('::ffff:203.0.113.9', WEB)",
    "another port of an allowed name": "talk('open.example', 444)",
    "another rule's port of an allowed name": "talk('open.example', RAW)",
    # Other protocols.
    "a datagram to an allowed name (QUIC)": "datagram('open.example', WEB)",
    "a datagram to an address": "datagram('203.0.113.9', 443)",
    "a ping": "ping('203.0.113.9')",
    "a raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)",
    "a packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300)",
    # Names.
    "a name without a rule": "get(f'http://other.example:{WEB}/')",
    "a name below an allowed one": "get(f'http://x.open.example:{WEB}/')",
    "a wildcard's own name": "talk('wild.example', RAW)",
    "a name that ends in an allowed one": "get(f'http://notopen.example:{WEB}/')",
    "data in a name below a wildcard": "ask(LONG + b'.' + LONG + b'0.wild.example')",
    "a NUL byte in a name": "ask(b'evil.com\\0.open.example')",
    "a question for text": "ask(b'open.example', 16)",
    "a question for keys of encrypted handshakes (ECH)": "ask(b'open.example', 65)",
    "another name server": "datagram('8.8.8.8', 53, question(b'x.example'))",
    "another name server, by TCP": "talk('8.8.8.8', 53)",
    # What a name leads to.
    "an allowed name that leads to a private address": "get(f'http://inside.example:{WEB}/')",
    "an allowed name that leads to the host itself": "get(f'http://loop.example:{WEB}/')",
    "an allowed name that leads to a cloud's credentials": "get(f'http://metadata.example:{WEB}/')",
    "the same in IPv6 clothes": "get(f'http://mapped.example:{WEB}/')",
    "a name that leads elsewhere the second time": "twice('turning.example', RAW)",
    # Handshakes.
    "a handshake for another server": "handshake('secure.example', SECURE, 'reader.example')",
    "a handshake for no server": "handshake('secure.example', SECURE, None)",
    "a second handshake for another server (HelloRetryRequest)": "asked_again(b'reader.example')",
    "a handshake that hides its server (ECH)": "hidden(b'secure.example')",
    "something else than TLS": "talk('secure.example', SECURE, request('/', 'secure.example'))",
    # Requests.
    "a Host header for another server": "talk('open.example', WEB, request('/', 'inside.example'))",
    "a Host header for another server inside TLS": "read('/open/x', 'secure.example')",
    "two Host headers": "plain('/open/x', extra=b'Host: inside.example\\r\\n')",
    "a whole address for another server": "plain('http://inside.example/open/x')",
    "another method": "plain('/open/x', 'DELETE')",
    "another path": "plain('/closed')",
    "another path inside TLS": "read('/closed', 'reader.example')",
    "a path that climbs": "plain('/open/../closed')",
    "a path that climbs, encoded": "plain('/open/%2e%2e/closed')",
    "a path that climbs, encoded twice": "plain('/open/%252e%252e%252fclosed')",
    "a path with an encoded slash": "plain('/open%2f..%2fclosed')",
    "a second request behind an allowed one": "second('/closed', 'plain.example')",
    "a second request for another server": "second('/', 'open.example')",
    "a request hidden in a body (two lengths)": "plain('/open/x', extra=b'Content-Length: 5\\r\\n' + CHUNKED)",
    "a request in the body of a GET": "plain('/open/x', extra=LENGTH)",
    "a request in the body of a GET, in chunks": "plain('/open/x', extra=CHUNKED)",
    "two lengths that differ": "plain('/open/x', extra=b'Content-Length: 5\\r\\nContent-Length: 6\\r\\n')",
    "a header on two lines": "plain('/open/x', extra=b'X: a\\r\\n b\\r\\n')",
    "a bare line feed": "plain('/open/x', extra=b'X: a\\nY: b\\r\\n')",
    "a head without an end": "talk('open.example', WEB, b'GET / HTTP/1.1\\r\\nX: ' + b'x' * (1 << 20))",
    "a header that asks for another method": "plain('/open/x', extra=b'X-HTTP-Method-Override: DELETE\\r\\n')",
    "the same header, spelt otherwise": "plain('/open/x', extra=b'X_HTTP_METHOD_OVERRIDE: PUT\\r\\n')",
    "a header that asks for another server": "plain('/open/x', extra=b'X-Forwarded-Host: inside.example\\r\\n')",
    "a header that asks for another path": "plain('/open/x', extra=b'X-Script-Name: /open\\r\\n')",
    "a header that names another file to copy": "plain('/open/x', extra=b'X-Amz-Copy-Source: /a/closed\\r\\n')",
    "a query that asks for another method": "plain('/open/x?+_method=DELETE')",
    "a WebSocket that no rule opens": "plain('/open/x', extra=WEBSOCKET)",
    "a redirection to another server": "get(f'http://open.example:{WEB}/elsewhere/other.example')",
    # The proxy.
    "CONNECT to another server": "through_proxy(tunnel('other.example:443'))",
    "CONNECT to another port": "through_proxy(tunnel('secure.example:22'))",
    "CONNECT to an address": "through_proxy(tunnel(f'127.0.0.1:{RAW}'))",
    "CONNECT with a name in front": "through_proxy(tunnel(f'raw.example@10.0.0.1:{RAW}'))",
    "SOCKS to another server": "socks(b'other.example', 443)",
    "SOCKS with a NUL byte in the name": "socks(b'other.example\\0.open.example', WEB)",
    "a proxy's request for another server": "by_proxy('other.example', 'other.example')",
    "a proxy's request with another Host header": "by_proxy('open.example', 'inside.example')",
}
"""What is tried, and an expression: what that returns or raises is what the program saw."""


class Outcome(NamedTuple):
    saw: str
    denial: str
    """Empty where nobody can tell that it was tried."""


def outcomes() -> dict[tuple[str, str], Outcome]:
    """By attempt and backend, as the document has them."""
    found: dict[tuple[str, str], Outcome] = {}
    for row in _ROW.finditer(DOCUMENT.read_text()):
        for backend in BACKENDS if row["backends"] == "all" else row["backends"].split(", "):
            found[row["attempt"], backend] = Outcome(row["saw"], row["denial"] or "")
    found.pop(("attempt", "backend"), None)
    return found


def program(code: str, ports: dict[str, int]) -> str:
    known = "".join(f"{name} = {port}\n" for name, port in ports.items())
    return f"{known}{TOOLS}\nprint(outcome(lambda: {code}))"


def anonymous(text: str, ports: dict[str, int]) -> str:
    """With the names of ports, which are others every time."""
    for name, port in ports.items():
        text = text.replace(f":{port}", f":{name}").replace(f"only {port}", f"only {name}")
    return text
