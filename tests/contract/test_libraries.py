"""What ordinary programs import works inside: processes, threads, event loops, databases, randomness."""

from __future__ import annotations

import pytest

from fumehood import Sandbox

POOL = """
import multiprocessing
def square(n):
    return n * n
if __name__ == "__main__":
    multiprocessing.set_start_method("{method}")
    with multiprocessing.Pool(2) as pool:
        print(pool.map(square, range(4)))
    queue = multiprocessing.Queue()
    child = multiprocessing.Process(target=queue.put, args=("from a child",))
    child.start()
    print(queue.get())
    child.join()
    print(child.exitcode)
"""
WORKING = {
    "threads": (
        (
            "import threading\nseen = []\nts = [threading.Thread(target=seen.append, args=(n,)) for n in range(8)]\n"
            "[t.start() for t in ts]; [t.join() for t in ts]\nprint(sorted(seen))"
        ),
        "[0, 1, 2, 3, 4, 5, 6, 7]\n",
    ),
    "subprocess": (
        "import subprocess\nprint(subprocess.run(['cat'], input='in', capture_output=True, text=True).stdout)",
        "in\n",
    ),
    "subprocess through a shell": (
        "import subprocess\nprint(subprocess.check_output('echo a | tr a b', shell=True))",
        "b'b\\n'\n",
    ),
    "python in python": (
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import json; print(json.dumps([1]))'])",
        "[1]\n",
    ),
    "asyncio with a subprocess": (
        (
            "import asyncio\nasync def main():\n"
            "    p = await asyncio.create_subprocess_exec('echo', 'hi', stdout=asyncio.subprocess.PIPE)\n"
            "    print((await p.communicate())[0], p.returncode)\nasyncio.run(main())"
        ),
        "b'hi\\n' 0\n",
    ),
    "asyncio over loopback": (
        (
            "import asyncio\nasync def echo(r, w):\n    w.write(await r.readline()); w.close()\n"
            "async def main():\n    server = await asyncio.start_server(echo, '127.0.0.1', 0)\n"
            "    r, w = await asyncio.open_connection(*server.sockets[0].getsockname())\n"
            "    w.write(b'ping\\n'); print(await r.read()); w.close()\nasyncio.run(main())"
        ),
        "b'ping\\n'\n",
    ),
    "tempfile": (
        (
            "import tempfile\nwith tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile(dir=d) as f:\n"
            "    f.write(b'x'); f.flush(); print(open(f.name).read(), d.startswith('/tmp/'))"
        ),
        "x True\n",
    ),
    "sqlite3 in memory and on disk": (
        (
            "import sqlite3\nfor place in (':memory:', 'x.db', '/tmp/y.db'):\n    with sqlite3.connect(place) as c:\n"
            "        c.execute('create table t (n)'); c.execute('insert into t values (3)')\n"
            "        c.execute('pragma journal_mode=wal'); print(c.execute('select n from t').fetchall())\n"
            "    c.close()"
        ),
        "[(3,)]\n[(3,)]\n[(3,)]\n",
    ),
    "hashlib": ("import hashlib\nprint(hashlib.sha256(b'').hexdigest()[:8])", "e3b0c442\n"),
    "ssl": ("import ssl\nprint(type(ssl.create_default_context()).__name__)", "SSLContext\n"),
    "ctypes": ("import ctypes\nprint(ctypes.CDLL(None).abs(-3))", "3\n"),
    "ctypes callbacks": (
        "import ctypes\nf = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)\nprint(f(1))",
        "2\n",
    ),
    "decimal": ("from decimal import Decimal\nprint(Decimal('0.1') + Decimal('0.2'))", "0.3\n"),
    "locale": ("import locale\nprint(locale.setlocale(locale.LC_ALL, ''))", "C.UTF-8\n"),
    "mmap": ("import mmap\nm = mmap.mmap(-1, 4096); m.write(b'abc'); print(m[:3])", "b'abc'\n"),
    "shared memory": (
        (
            "from multiprocessing import shared_memory\ns = shared_memory.SharedMemory(create=True, size=16)\n"
            "s.buf[0] = 7\nt = shared_memory.SharedMemory(s.name)\nprint(t.buf[0])\nt.close(); s.close(); s.unlink()"
        ),
        "7\n",
    ),
    "file locks": (
        "import fcntl\nf = open('l', 'w'); fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX); print('held')",
        "held\n",
    ),
    "select, poll and epoll": (
        (
            "import os, select\nr, w = os.pipe(); os.write(w, b'x')\ne = select.epoll(); e.register(r)\n"
            "print(select.select([r], [], [], 5)[0] == [r], len(e.poll(5)))"
        ),
        "True 1\n",
    ),
    "unix sockets": (
        (
            "import socket\na, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))\n"
            "s = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); s.listen(); print('bound')"
        ),
        "b'x'\nbound\n",
    ),
    "IPv6 loopback or its absence": (
        (
            "import socket\ntry:\n    s = socket.socket(socket.AF_INET6); s.bind(('::1', 0))\n"
            "except OSError:\n    pass\nprint('on')"
        ),
        "on\n",
    ),
    "zoneinfo or its absence": (
        (
            "import zoneinfo\ntry:\n    print(zoneinfo.ZoneInfo('UTC'))\n"
            "except zoneinfo.ZoneInfoNotFoundError:\n    print('UTC')"
        ),
        "UTC\n",
    ),
    "zip and gzip": ("import gzip, zlib, bz2, lzma\nprint(gzip.decompress(gzip.compress(b'x')))", "b'x'\n"),
    "memory files": ("import os\nf = os.memfd_create('x'); os.write(f, b'y'); print(os.pread(f, 1, 0))", "b'y'\n"),
    "timers": (
        (
            "import signal, time\nsignal.signal(signal.SIGALRM, lambda *_: print('rang'))\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()"
        ),
        "rang\n",
    ),
    "own modules in the workspace": (
        "open('mine.py', 'w').write('value = 5')\nimport mine\nprint(mine.value, mine.__file__)",
        "5 /workspace/mine.py\n",
    ),
    "resource usage": ("import resource\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0)", "True\n"),
}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works(box: Sandbox, method: str) -> None:
    result = box.run(POOL.format(method=method))
    assert (result.stdout, result.stderr) == ("[0, 1, 4, 9]\nfrom a child\n0\n", "")


@pytest.mark.some_parameters
@pytest.mark.parametrize(("source", "stdout"), WORKING.values(), ids=WORKING.keys())
def test_the_standard_library_works(box: Sandbox, source: str, stdout: str) -> None:
    result = box.run(source)
    assert (result.stdout, result.stderr, result.exit_code) == (stdout, "", 0)


@pytest.mark.some_parameters
@pytest.mark.parametrize(
    "expression",
    [
        "random.random()",
        "random.getrandbits(64)",
        "uuid.uuid1()",
        "uuid.uuid4()",
        "uuid.getnode()",
        "os.urandom(8)",
        "secrets.token_hex()",
        "tempfile.mktemp()",
        "tempfile.mkdtemp()",
        "random.SystemRandom().random()",
        "ssl.RAND_bytes(8)",
        "id(object()) and random.sample(range(10**9), 3)",
    ],
)
def test_randomness_differs_between_runs(box: Sandbox, expression: str) -> None:
    source = f"import os, random, secrets, ssl, tempfile, uuid\nprint({expression})"
    outputs = [box.run(source).stdout for _ in range(5)]
    assert all(outputs)
    assert len(set(outputs)) == 5


def test_a_seed_still_makes_randomness_repeatable(box: Sandbox) -> None:
    source = "import random\nrandom.seed(1)\nprint(random.random())"
    assert box.run(source).stdout == box.run(source).stdout


def test_third_party_packages_of_the_host_are_not_seen(box: Sandbox) -> None:
    for package in ("fumehood", "pydantic", "pytest", "pip", "guest"):
        assert f"No module named '{package}'" in box.run(f"import {package}").stderr
