"""Names are looked up as they are, on a host with domains of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from requirements import require

# A host in a namespace of its own, whose name server knows every name below corp.test, and nothing else.
HOST = """
import asyncio, json, socket, struct, sys, threading
from fumehood.egress.log import UnreachableError
from fumehood.egress.dial import HostResolver

asked = []


def serve(server):
    while True:
        query, sender = server.recvfrom(512)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += 1 + query[at]
        asked.append(".".join(labels))
        known = asked[-1].endswith(".corp.test")
        (kind,) = struct.unpack_from(">H", query, at + 1)
        found = known and kind == 1
        reply = query[:2] + struct.pack(">5H", 0x8180 | (0 if known else 3), 1, found, 0, 0) + query[12 : at + 5]
        address = struct.pack(">HHHLH", 0xC00C, 1, 1, 1, 4) + socket.inet_aton("8.8.4.4")
        server.sendto(reply + (address if found else b""), sender)


async def look_up(name):
    try:
        return list(map(str, await HostResolver()(name)))
    except UnreachableError:
        return []


server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
threading.Thread(target=serve, args=(server,), daemon=True).start()
found = {name: asyncio.run(look_up(name)) for name in sys.argv[1:]}
print(json.dumps([found, sorted(set(asked))]))
"""
FILES = {
    "resolv.conf": "nameserver 127.0.0.1\nsearch corp.test\n",
    "nsswitch.conf": "hosts: files dns\n",
    "hosts": "127.0.0.1 localhost\n10.1.2.3 Listed.example listed # gone.example\n",
}
SETUP = """
ip link set lo up
for name in resolv.conf nsswitch.conf hosts; do mount --bind "$0/$name" /etc/$name || exit 9; done
exec "$@"
"""


def test_a_name_that_does_not_exist_is_not_looked_for_below_the_hosts_domains(tmp_path: Path) -> None:
    require(shutil.which("ip") and shutil.which("unshare"), "needs iproute2 and util-linux")
    require(all(os.path.exists(f"/etc/{name}") for name in FILES), "needs a host that looks names up as usual")
    own = ["unshare", "--map-root-user", "--mount", "--net"]
    require(subprocess.run([*own, "true"], check=False).returncode == 0, "this user may not make namespaces")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    names = ["gone.example", "db.corp.test", "listed.example", "listed"]
    done = subprocess.run(
        [*own, "sh", "-c", SETUP, str(tmp_path), sys.executable, "-c", HOST, *names],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, asked = json.loads(done.stdout)
    assert found == {
        "gone.example": [],
        "db.corp.test": ["8.8.4.4"],
        "listed.example": ["10.1.2.3"],
        "listed": ["10.1.2.3"],
    }
    assert asked == ["db.corp.test", "gone.example"]
