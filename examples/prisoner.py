"""Tries what code in a sandbox must not be able to do, and says how it went: `hood run examples/prisoner.py`."""

import os
import socket
import subprocess
from collections.abc import Callable


def read_the_passwords() -> None:
    with open("/etc/shadow"):
        pass


def write_to_the_system() -> None:
    with open("/usr/bin/python3", "w"):
        pass


def phone_home() -> None:
    socket.create_connection(("192.0.2.1", 80), timeout=2)


ATTEMPTS: dict[str, Callable[[], object]] = {
    "read the passwords": read_the_passwords,
    "write to the system": write_to_the_system,
    "phone home": phone_home,
    "end process 1": lambda: os.kill(1, 9),
    "become root": lambda: os.setuid(0),
    "mount something": lambda: subprocess.run(["mount", "-t", "tmpfs", "x", "/tmp"], check=True, capture_output=True),
}

for what, attempt in ATTEMPTS.items():
    try:
        attempt()
    except Exception as error:
        print(f"{what}: {type(error).__name__}")
    else:
        print(f"{what}: it worked")
print("the environment:", *sorted(os.environ))
