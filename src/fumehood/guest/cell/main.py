"""A cell: a warm interpreter inside its namespaces that has runs standing by, and forks the next ones.

One cell serves one policy of one tenant. It is process 1 of its own process namespace: when it ends, for whatever
reason, the kernel ends all its runs. This is how a new process becomes one; `service` is what it does then.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, NoReturn

from ..contract import wire
from ..contract.cell_spec import CellSpec
from ..contract.limits import NO_CORE_DUMP, PRESTART_SECONDS, UID_RANGE
from ..contract.preload import ASK_NOTHING, ASK_THE_MACHINE, USUAL_MODULES
from ..isolation import kernel, rootfs
from ..isolation.steps import StepError, step
from ..isolation.users import map_own_user, user_namespace
from ..program import start
from ..program.fork_hooks import ForkHooks
from .machine_code import WAITER, executable
from .service import Cell, cell_filter

# No cgroup namespace: from inside of one, the cell could not move runs into the groups beside its own.
_NAMESPACES = kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
_HOSTNAME = "sandbox"


def main(control_descriptor: int, host: int, hooks: ForkHooks) -> NoReturn:
    """`host` is a descriptor of the process that started us; `hooks` were put aside from the first import on."""
    control = socket.socket(fileno=control_descriptor)
    # It had to be inheritable to get here; from here on nothing that is executed gets it.
    control.set_inheritable(False)
    try:
        _import_ahead()
        spec = _receive_spec(control, host)
        if spec is None:
            os._exit(0)
        _forget_the_host(spec)
        holder = _isolate(spec)
        with step("making the cell's process namespace"):
            kernel.unshare(kernel.CLONE_NEWPID)
        cell = os.fork()
        if cell:
            _wait_for(cell, control, holder)
        kernel.die_with_parent()
        Cell(control, spec, hooks).serve()
    except StepError as error:
        wire.send(control, error.as_message())
    except BaseException as error:
        # The host keeps what is written here and shows it when the cell is gone.
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(1)


def _import_ahead() -> None:
    """What every cell will need. Objects from before are not looked at again when the cell collects its garbage."""
    for name in USUAL_MODULES:
        if name not in ASK_THE_MACHINE:
            start.import_module(name)
    for name in ASK_NOTHING:
        with suppress(start.PreloadError):
            start.import_module(name)
    cell_filter(executes_files_only=False)
    gc.collect()
    gc.freeze()


def _receive_spec(control: socket.socket, host: int) -> CellSpec | None:
    """None when the host does without us, or is gone. Descriptors come with it; it names them by their places."""
    # Not select(): their numbers are those of the host, which may have more than 1024.
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(host, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(PRESTART_SECONDS * 1000)}
    os.close(host)
    if control.fileno() not in ready:
        return None
    message, descriptors = wire.receive(control)
    if message is None:
        return None
    place: int = message["spec"]
    spec: Any = wire.read_sealed_file(descriptors[place])[0]
    os.close(descriptors[place])
    spec["host_process"] = descriptors[spec["host_process"]]
    spec["entrances"] = [descriptors[place] for place in spec["entrances"]]
    for hierarchy in spec["hierarchies"]:
        hierarchy["descriptor"] = descriptors[hierarchy["descriptor"]]
    return spec


def _forget_the_host(spec: CellSpec) -> None:
    """No terminal, no signal settings, no mask, no place in its cgroups: nothing of the process that started us."""
    os.setsid()
    # The parent's umask may be private; another user has to see the files that the cell makes.
    os.umask(0o022)
    kernel.rename_process([sys.executable])
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        signal.signal(number, signal.SIG_DFL)
    for number in set(range(1, signal.NSIG)) - signal.valid_signals():
        kernel.reset_signal(number)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    resource.setrlimit(resource.RLIMIT_CORE, (NO_CORE_DUMP, NO_CORE_DUMP))
    with step("entering the cell's cgroup"):
        for entrance in spec["entrances"]:
            os.write(entrance, b"0")
    wire.close_all(spec["entrances"])


def _isolate(spec: CellSpec) -> int | None:
    """Returns a child that has been killed and is to be waited for, if there is one."""
    holder = None
    if spec["rootless"]:
        with step("making a user namespace"):
            kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
            map_own_user(0, spec["host_uid"], spec["host_gid"])
        rootfs.enter_root(spec)
        with step("making the cell's namespaces"):
            kernel.unshare(_NAMESPACES)
    else:
        holder = _isolate_as_root(spec)
    with step("naming the sandbox"):
        socket.sethostname(_HOSTNAME)
    return holder


def _isolate_as_root(spec: CellSpec) -> int:
    """Root may show files that the sandbox's user could not reach, so it builds the root first and then steps down."""
    with step("making a user namespace"):
        id_map = f"0 {spec['uid_base']} {UID_RANGE}"
        namespace, holder = user_namespace(id_map, id_map)
        kernel.unshare(kernel.CLONE_NEWNS)
    rootfs.enter_root(spec)
    with step("stepping down from root"):
        os.setgroups([])
        kernel.setns(namespace, kernel.CLONE_NEWUSER)
        os.close(namespace)
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    with step("making the cell's namespaces"):
        kernel.unshare(_NAMESPACES | kernel.CLONE_NEWNS)
    return holder


def _wait_for(cell: int, control: socket.socket, holder: int | None) -> NoReturn:
    """The process that the host started: it stays only to be waited for."""
    control.close()
    if holder is not None:
        os.waitpid(holder, 0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    with suppress(OSError):  # a system that executes nothing from memory: then an interpreter waits
        program = os.memfd_create("waiter", os.MFD_CLOEXEC)
        os.write(program, executable(os.uname().machine, WAITER))
        os.execve(program, ["cell"], {})
    _, status = os.waitpid(cell, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
