"""The first thing that `hood` imports: hands `hood run` to the keeper, a resident process, if there is one.

Everything else, and whatever the keeper does not do, is the command line as it is, in this process. This module imports
next to nothing, not even `os`: imports are most of the time that such a run takes. It must not import `fumehood` before
it has decided.

One connection (AF_UNIX, SEQPACKET) is one run. The client asks, and the keeper answers `yes` or `no`: one that does not
answer is sent nothing. Then the client sends its request, with a proof of its rights and with descriptors: the request
itself in a memory file, its current folder and its standard streams. The keeper answers `no` or `ready`; the client
says `go`, and from then on the run is the keeper's: before, the client may do it itself, and afterwards it never does.
"""

import posix
import sys

TYPE_CHECKING = False  # as type checkers read it; typing itself takes longer to import than all of this
if TYPE_CHECKING:
    import signal as signals
    from _socket import socket as Socket
    from collections.abc import Mapping
    from types import FrameType
    from typing import NoReturn
else:
    import _signal as signals  # without the enumerations that are built around it

SWITCH = b"FUMEHOOD_KEEPER"
# With these, an interpreter that is not isolated imports other code than the keeper's.
_PATHS = (b"PYTHONPATH", b"PYTHONHOME")
# A keeper that does not answer within this is as good as none.
_ANSWER_SECONDS = 5.0
_NAMESPACES = ("user", "mnt", "pid")
_RIGHTS = (b"Uid:", b"Gid:", b"Groups:", b"CapPrm:", b"CapEff:", b"CapBnd:", b"NoNewPrivs:", b"Seccomp:")
_SO_PEERPIDFD = 77
_CHUNK_BYTES = 65536
# Where a variable names one of our descriptors, as bash's <(command) does.
_OWN_FILES = (b"/dev/fd/", b"/proc/self/")
_OWN_FAILURE = 125
_ENDED = b"hood: the keeper died, and the program with it. `hood audit tail` has what was recorded of the run.\n"


def main() -> "NoReturn":
    _open_missing_streams()
    if sys.argv[1:2] == ["run"] and reason_for_none(posix.environ) is None:
        code = _ask_keeper(sys.argv[2:])
        if code is not None:
            posix._exit(code)  # pyright: ignore[reportPrivateUsage]  # without the interpreter's slow end
    if "site" not in sys.modules:  # python -S
        import site

        site.main()
    from fumehood.cli import main as run_here

    run_here()


def reason_for_none(environment: "Mapping[bytes, bytes]") -> str | None:
    """Why no keeper is used and none is started; None if one is."""
    switch = environment.get(SWITCH)
    if not sys.flags.isolated and any(map(environment.get, _PATHS)):
        return "PYTHONPATH or PYTHONHOME is set"
    if switch == b"on":
        return None
    if switch:
        return "FUMEHOOD_KEEPER is not on"
    if environment.get(b"CI"):
        return "CI is set (FUMEHOOD_KEEPER=on uses one all the same)"
    if posix.getuid() == 0:
        return "you are root (FUMEHOOD_KEEPER=on uses one all the same)"
    return None


def folder_of_sockets(environment: "Mapping[bytes, bytes]") -> bytes:
    runtime = environment.get(b"XDG_RUNTIME_DIR", b"")
    return runtime + b"/fumehood" if runtime.startswith(b"/") else b"/tmp/fumehood-%d" % posix.getuid()


def name_of_keeper() -> str:
    """One for each interpreter and installation, so that no keeper runs other code than its client would."""
    places = [posix.stat(path.rpartition("/")[0]) for path in (sys.executable, __file__)]
    return "-".join(("keeper", sys.implementation.cache_tag, *(f"{each.st_dev:x}.{each.st_ino:x}" for each in places)))


def connect(environment: "Mapping[bytes, bytes]") -> "Socket":
    """A connection to this user's keeper. OSError if there is none, or what listens there is another user's.

    The folder is opened once and then used by its descriptor, so that it cannot be exchanged after the check.
    """
    import _socket

    folder = posix.open(
        folder_of_sockets(environment), posix.O_PATH | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
    )
    try:
        details = posix.fstat(folder)
        if details.st_uid != posix.getuid() or details.st_mode & 0o077:
            raise PermissionError("the folder of the keeper is not ours alone")
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
        try:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(f"/proc/self/fd/{folder}/{name_of_keeper()}.socket")
            _refuse_strangers(connection)
        except BaseException:
            connection.close()
            raise
        return connection
    finally:
        posix.close(folder)


def peer_of(connection: "Socket") -> tuple[int, int, int]:
    """Process, user, and a descriptor of the process, which says later whether it was there all the time."""
    import _socket

    credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    process, user = (int.from_bytes(credentials[place : place + 4], sys.byteorder) for place in (0, 4))
    try:
        return process, user, connection.getsockopt(_socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:  # Linux before 6.5
        return process, user, posix.pidfd_open(process)


def is_alive(process_descriptor: int) -> bool:
    try:
        signals.pidfd_send_signal(process_descriptor, 0)
    except ProcessLookupError:
        return False
    return True


def _refuse_strangers(connection: "Socket") -> None:
    """What gets our environment is a process with our own rights: not one in a container with our user's number, nor
    one that was locked in and would learn more from us than it may read itself.
    """
    process, user, descriptor = peer_of(connection)
    try:
        if user != posix.getuid() or _rights(process) != _rights("self") or not is_alive(descriptor):
            raise PermissionError("what listens there is not our keeper")
    finally:
        posix.close(descriptor)


def _rights(process: int | str) -> list[object]:
    status = posix.open(f"/proc/{process}/status", posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        lines = posix.read(status, _CHUNK_BYTES).split(b"\n")
    finally:
        posix.close(status)
    root = posix.stat(f"/proc/{process}/root")
    links = (posix.readlink(f"/proc/{process}/ns/{name}") for name in _NAMESPACES)
    return [*(line for line in lines if line.startswith(_RIGHTS)), (root.st_dev, root.st_ino), *links]


def _ask_keeper(arguments: list[str]) -> int | None:
    """The exit code of the run; None if the keeper did not take it."""
    if not _is_ordinary():
        return None
    try:
        connection = connect(posix.environ)
        connection.send(b'{"do": "ask"}')
        answer = connection.recv(_CHUNK_BYTES)
        if not answer.startswith(b'{"yes": '):
            return None
        keyboard = _send_request(connection, _proof(connection, int(answer[8:-1])), arguments)
        if not connection.recv(_CHUNK_BYTES).startswith(b'{"ready":'):
            return None
    except (OSError, ValueError):
        return None
    _forward_signals(connection)
    connection.settimeout(None)
    try:
        connection.send(b'{"do": "go"}')
        return _exit_code(connection.recv(_CHUNK_BYTES) if keyboard is None else _copy_keys(connection, keyboard))
    except OSError:
        return _exit_code(b"")


def _is_ordinary() -> bool:
    """Whether the keeper's interpreter is what this one is, and there is a terminal that is ours to use, or none."""
    if sys.getfilesystemencoding() != "utf-8" or posix.getuid() != posix.geteuid() or posix.getgid() != posix.getegid():
        return False
    if posix.environ.get(b"HOOD_DEBUG") or any(value.startswith(_OWN_FILES) for value in posix.environ.values()):
        return False
    return all(_is_in_foreground(stream) for stream in (0, 1, 2) if posix.isatty(stream))


def _is_in_foreground(terminal: int) -> bool:
    """A process in the background is stopped when it reads from its terminal; the keeper would not be."""
    try:
        return posix.tcgetpgrp(terminal) == posix.getpgrp()
    except OSError:  # not the terminal of this session
        return False


def _proof(connection: "Socket", descriptor: int) -> bytes:
    """What one of the keeper's descriptors is called: the kernel tells only who may look into the keeper.

    A process that restricted itself, by Landlock say, may not. Nothing else of it would show that.
    """
    process, _, opened = peer_of(connection)
    posix.close(opened)
    return posix.readlink(b"/proc/%d/fd/%d" % (process, descriptor))


def _send_request(connection: "Socket", proof: bytes, arguments: list[str]) -> int | None:
    """The end of a pipe to which keys of the terminal are to be copied; None if standard input is no terminal."""
    import _socket

    mask = posix.umask(0o077)
    posix.umask(mask)
    words = [b"%o" % mask, b"%d" % len(arguments), *(word.encode("utf-8", "surrogateescape") for word in arguments)]
    words += (name + b"=" + value for name, value in posix.environ.items())
    request = posix.memfd_create("hood run", posix.MFD_CLOEXEC)
    content = b"\0".join(words)
    if posix.write(request, content) != len(content):  # a limit on the size of files
        raise OSError("the request cannot be written")
    folder = posix.open(".", posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
    stdin, keyboard = posix.pipe() if posix.isatty(0) else (0, None)
    given = b"".join(each.to_bytes(4, sys.byteorder) for each in (request, folder, stdin, 1, 2))
    connection.sendmsg([b'{"do": "run", "proof": "%s"}' % proof], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, given)])
    for descriptor in (request, folder, *((stdin,) if stdin else ())):
        posix.close(descriptor)
    return keyboard


def _forward_signals(connection: "Socket") -> None:
    """Signals to us are signals to the process that does our run; one that was ignored from the start stays ignored."""
    import _socket

    def forward(number: int) -> None:
        try:
            connection.send(b'{"do": "signal", "number": %d}' % number, _socket.MSG_DONTWAIT)
        except OSError:
            pass  # it is ending anyway

    def stop(number: int, _: "FrameType | None") -> None:
        """Ctrl-Z, or use of the terminal in the background: both processes stop, and go on together."""
        forward(signals.SIGSTOP)
        signals.signal(number, signals.SIG_DFL)
        posix.kill(posix.getpid(), number)
        signals.signal(number, stop)
        forward(signals.SIGCONT)

    for number in (signals.SIGINT, signals.SIGTERM, signals.SIGHUP):
        if signals.getsignal(number) != signals.SIG_IGN:
            signals.signal(number, lambda number, _: forward(number))
    for number in (signals.SIGTSTP, signals.SIGTTIN, signals.SIGTTOU):
        if signals.getsignal(number) != signals.SIG_IGN:
            signals.signal(number, stop)


def _copy_keys(connection: "Socket", keyboard: int) -> bytes:
    """What the terminal gives goes into the pipe, until the answer comes.

    Read here and not by the keeper, which the kernel would not stop when this terminal is another program's to read.
    """
    import select

    posix.set_blocking(keyboard, False)
    keys, is_open = b"", True
    while True:
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        if is_open:
            poll.register(*((keyboard, select.POLLOUT) if keys else (0, select.POLLIN)))
        ready = [descriptor for descriptor, _ in poll.poll()]
        if connection.fileno() in ready:
            return connection.recv(_CHUNK_BYTES)
        try:
            if keys:
                keys = keys[posix.write(keyboard, keys) :]
            else:
                keys = posix.read(0, _CHUNK_BYTES)
                is_open = bool(keys)
        except OSError:  # the program is over, or the terminal is gone
            is_open = False
        if not is_open:
            posix.close(keyboard)


def _exit_code(answer: bytes) -> int:
    if answer.startswith(b'{"exit": '):
        return int(answer[9:-1])
    try:
        posix.write(2, _ENDED)
    except OSError:
        pass
    return _OWN_FAILURE


def _open_missing_streams() -> None:
    """A standard stream that is closed would give its number to the next file that is opened."""
    for descriptor in (0, 1, 2):
        try:
            posix.fstat(descriptor)
        except OSError:
            posix.open("/dev/null", posix.O_RDWR)
