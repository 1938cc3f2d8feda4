"""A host process in an unusual state that must not reach a run: runs the program on its standard input in a sandbox.

It has a controlling terminal (named by its argument), ignored and blocked signals, a umask, an inheritable descriptor,
and whatever environment its caller gives it. It uses as many other policies before as its second argument says: then
the sandbox's interpreter was started before it was known for what.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios

import fumehood


def main(terminal: str, policies_before: int) -> None:
    os.setsid()
    fcntl.ioctl(os.open(terminal, os.O_RDWR), termios.TIOCSCTTY, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM])
    os.umask(0)
    os.set_inheritable(os.open("/", os.O_RDONLY), True)
    for number in range(policies_before):
        fumehood.run("pass", policy={"resources": {"processes": 30 + number}}).check()
    sys.stdout.write(fumehood.run(sys.stdin.read()).stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
