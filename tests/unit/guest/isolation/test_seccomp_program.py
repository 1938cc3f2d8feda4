"""The filter decides what the rules say: instructions are run by a simulator and compared with a naive evaluation."""

import errno
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import sampling
from hypothesis import given
from hypothesis import strategies as st

from fumehood.guest.contract.syscalls.decisions import (
    ALLOW,
    KILL_PROCESS,
    Decision,
    SyscallAction,
    SyscallCheck,
    fail_with,
)
from fumehood.guest.contract.syscalls.profile import RULES
from fumehood.guest.isolation.seccomp import build_filter, numbers_aarch64, numbers_x86_64, set_up_numbers
from fumehood.guest.isolation.seccomp.bpf import EQUAL, BpfProgram
from fumehood.guest.isolation.seccomp.compiler import compile_filter, secret_places, segments

EPERM, ENOSYS = fail_with(errno.EPERM), fail_with(errno.ENOSYS)
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {"x86_64": numbers_x86_64.NUMBERS, "aarch64": numbers_aarch64.NUMBERS}
FILTERS = {machine: build_filter(machine) for machine in ARCHITECTURES}
DECISIONS = {name: decision for decision, names in RULES for name in names.split()}
WORD = 2**32 - 1
HIGH_HALF_NOISE = 0xDEADBEEF << 32

REPLACED_ON_AARCH64 = """
    access alarm arch_prctl chmod chown create_module creat dup2 epoll_create epoll_wait eventfd fork futimesat getdents
    getpgrp inotify_init ioperm iopl lchown link lstat mkdir mknod modify_ldt open pause pipe poll readlink rename rmdir
    select signalfd stat symlink time unlink utime utimes vfork
"""
DANGEROUS = """
    unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
    ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise keyctl add_key request_key bpf
    perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register kexec_load kexec_file_load init_module
    finit_module delete_module swapon swapoff reboot sethostname setdomainname settimeofday clock_settime clock_adjtime
    adjtimex quotactl quotactl_fd acct syslog lookup_dcookie vhangup nfsservctl name_to_handle_at open_by_handle_at
    fanotify_init mbind set_mempolicy migrate_pages move_pages sched_setaffinity
"""

machines = pytest.mark.parametrize("machine", ARCHITECTURES)
words = st.integers(0, WORD)
arguments = st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6)


class Call(NamedTuple):
    number: int
    architecture: int
    arguments: list[int]

    def to_bytes(self) -> bytes:
        return struct.pack("<IIQ6Q", self.number, self.architecture, 0, *self.arguments)


def simulate(program: bytes, call: Call) -> int:
    """Classic BPF as the kernel's manual defines it, for the instructions that a seccomp filter may use."""
    instructions, data = list(struct.iter_unpack("=HBBI", program)), call.to_bytes()
    accumulator = index = counter = 0
    while True:
        code, if_true, if_false, operand = instructions[counter]
        counter += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0xA4:
                accumulator ^= operand
            case 0x4C:
                accumulator |= index
            case 0x07:
                index = accumulator
            case 0x05:
                counter += operand
            case 0x15:
                counter += if_true if accumulator == operand else if_false
            case 0x35:
                counter += if_true if accumulator >= operand else if_false
            case 0x06:
                return operand
            case _:
                raise AssertionError(f"unexpected instruction {code:#x}")


def evaluate(decision: Decision, values: list[int]) -> int:
    while isinstance(decision, SyscallCheck):
        half = values[decision.argument] >> (32 if decision.is_upper_half else 0) & WORD
        decision = decision.then if half & decision.mask in decision.values else decision.otherwise
    return decision.value


def expected(machine: str, call: Call) -> int:
    if call.architecture != ARCHITECTURES[machine]:
        return KILL_PROCESS.value
    if machine == "x86_64" and 0x4000_0000 <= call.number < 0x8000_0000:
        return KILL_PROCESS.value
    names = [name for name, number in NUMBERS[machine].items() if number == call.number]
    return evaluate(DECISIONS.get(names[0], ENOSYS) if names else ENOSYS, call.arguments)


def decide(name: str, *values: int, machine: str = "x86_64") -> SyscallAction:
    padded = [*values, *[0] * (6 - len(values))]
    return SyscallAction(simulate(FILTERS[machine], Call(NUMBERS[machine][name], ARCHITECTURES[machine], padded)))


def interesting_values(decision: Decision) -> set[int]:
    if isinstance(decision, SyscallAction):
        return set()
    near = {value ^ bit for value in decision.values for bit in (0, 1, decision.mask)}
    return near | interesting_values(decision.then) | interesting_values(decision.otherwise)


def calls(machine: str) -> st.SearchStrategy[Call]:
    """Random calls, mostly of known numbers with arguments that the rules look for."""
    known = st.sampled_from(sorted(NUMBERS[machine].values()))
    number = known | st.integers(0, 600) | words | st.integers(0x4000_0000, 0x4000_0300)
    near = sorted(set[int]().union(*map(interesting_values, DECISIONS.values())))
    value = st.sampled_from(near) | st.sampled_from(near).map(lambda low: low | HIGH_HALF_NOISE)
    values = st.lists(value | st.integers(0, 2**64 - 1), min_size=6, max_size=6)
    architecture = st.just(ARCHITECTURES[machine]) | st.sampled_from([*ARCHITECTURES.values(), 0x40000003]) | words
    return st.builds(Call, number, architecture, values)


@machines
@given(data=st.data())
def test_the_program_decides_what_the_rules_say(machine: str, data: st.DataObject) -> None:
    call = data.draw(calls(machine))
    assert simulate(FILTERS[machine], call) == expected(machine, call)


@machines
def test_every_number_near_the_table_gets_its_rule(machine: str) -> None:
    for number in [*range(1024), 0x3FFF_FFFF, 0x4000_0000, 0x7FFF_FFFF, 0x8000_0000, WORD]:
        for filler in (0, 1, 0xFFFF_FFFF_FFFF_FFFF):
            call = Call(number, ARCHITECTURES[machine], [filler] * 6)
            assert simulate(FILTERS[machine], call) == expected(machine, call)


@machines
def test_every_jump_lands_inside_the_program_and_the_program_is_small(machine: str) -> None:
    instructions = list(struct.iter_unpack("=HBBI", FILTERS[machine]))
    for index, (code, if_true, if_false, operand) in enumerate(instructions):
        reach = {0x05: operand, 0x15: max(if_true, if_false), 0x35: max(if_true, if_false)}.get(code, 0)
        assert index + 1 + reach < len(instructions) or code == 0x06
    assert len(instructions) < 650


@machines
def test_another_architecture_is_killed(machine: str) -> None:
    for architecture in (0x40000003, 0x40000028, 0):
        call = Call(NUMBERS[machine]["read"], architecture, [0] * 6)
        assert simulate(FILTERS[machine], call) == KILL_PROCESS.value


def test_x32_numbers_are_killed() -> None:
    for number in (0, 39, 547):
        call = Call(0x4000_0000 | number, ARCHITECTURES["x86_64"], [0] * 6)
        assert simulate(FILTERS["x86_64"], call) == KILL_PROCESS.value


def test_a_probe_with_number_minus_one_is_an_unknown_call() -> None:
    assert simulate(FILTERS["x86_64"], Call(WORD, ARCHITECTURES["x86_64"], [0] * 6)) == ENOSYS.value


def test_an_unknown_machine_is_refused_and_the_error_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"riscv64.*x86_64, aarch64"):
        build_filter("riscv64")


SECRET = 0x0123_4567_89AB_CDEF


def gated_filter(machine: str) -> bytes:
    program, secret = bytearray(build_filter(machine, is_gated=True)), struct.pack("<Q", SECRET)
    for in_program, in_secret, size in secret_places(bytes(program)):
        program[in_program : in_program + size] = secret[in_secret : in_secret + size]
    return bytes(program)


GATED_FILTERS = {machine: gated_filter(machine) for machine in ARCHITECTURES}


@machines
@given(data=st.data())
def test_without_the_secret_a_gated_filter_decides_as_any_other(machine: str, data: st.DataObject) -> None:
    call = data.draw(calls(machine).filter(lambda call: call.arguments[5] != SECRET))
    assert simulate(GATED_FILTERS[machine], call) == expected(machine, call)


@machines
@pytest.mark.parametrize("wrong", [0, SECRET ^ 1, SECRET ^ 1 << 63, SECRET & WORD, SECRET >> 32 << 32, 2**64 - 1])
def test_half_of_the_secret_opens_nothing(machine: str, wrong: int) -> None:
    for name in set_up_numbers(machine):
        call = Call(NUMBERS[machine][name], ARCHITECTURES[machine], [2**64 - 1] * 5 + [wrong])
        assert simulate(GATED_FILTERS[machine], call) == expected(machine, call) != ALLOW.value


@machines
def test_the_secret_opens_what_sets_up_a_run_and_nothing_else(machine: str) -> None:
    opened = {
        name
        for name, number in NUMBERS[machine].items()
        for call in [Call(number, ARCHITECTURES[machine], [2**64 - 1] * 5 + [SECRET])]
        if simulate(GATED_FILTERS[machine], call) != expected(machine, call)
    }
    assert opened == set(set_up_numbers(machine)) - {"socket", "setsockopt"}


@machines
def test_the_secret_opens_packet_sockets_and_their_filters_and_no_others(machine: str) -> None:
    def allowed(name: str, first: int, second: int, third: int) -> bool:
        call = Call(NUMBERS[machine][name], ARCHITECTURES[machine], [first, second, third, 0, 0, SECRET])
        return simulate(GATED_FILTERS[machine], call) == ALLOW.value

    assert [family for family in range(64) if allowed("socket", family, 2, 0)] == [1, 2, 10, 16, 17]
    attaching = [option for option in (26, 50, 51, 52) if allowed("setsockopt", 3, 1, option)]
    assert (attaching, allowed("setsockopt", 3, 0, 35), allowed("setsockopt", 3, 1, 2)) == ([26], False, True)


@machines
def test_both_halves_of_the_secret_are_looked_at_before_anything_is_decided(machine: str) -> None:
    instructions = list(struct.iter_unpack("=HBBI", GATED_FILTERS[machine]))
    first_halves = [index for index, (code, *_) in enumerate(instructions) if code == 0xA4][::2]
    assert first_halves
    for index in first_halves:
        assert [code for code, *_ in instructions[index : index + 6]] == [0xA4, 0x07, 0x20, 0xA4, 0x4C, 0x15]


@machines
def test_a_filter_that_is_not_gated_has_no_place_for_a_secret(machine: str) -> None:
    assert list(secret_places(FILTERS[machine])) == []


def nested_decisions() -> st.SearchStrategy[Decision]:
    verdicts = st.builds(SyscallAction, words)
    return st.recursive(
        verdicts,
        lambda inner: st.builds(
            SyscallCheck,
            st.integers(0, 5),
            st.lists(words, max_size=4).map(tuple),
            inner,
            inner,
            mask=words | st.just(WORD),
            is_upper_half=st.booleans(),
        ),
    )


@given(
    table=st.dictionaries(st.integers(0, 50) | st.integers(0, 2**31), nested_decisions()),
    default=nested_decisions(),
    number=st.integers(0, 55) | words,
    values=arguments,
)
def test_any_table_of_decisions_compiles_to_itself(
    table: Mapping[int, Decision], default: Decision, number: int, values: list[int]
) -> None:
    program = compile_filter(7, segments(table, default))
    for probe in (number, *table):
        assert simulate(program, Call(probe, 7, values)) == evaluate(table.get(probe, default), values)


def test_segments_join_neighbours_with_equal_decisions() -> None:
    table = {3: ALLOW, 4: ALLOW, 5: EPERM, 9: ALLOW}
    assert segments(table, ENOSYS) == [(0, ENOSYS), (3, ALLOW), (5, EPERM), (6, ENOSYS), (9, ALLOW), (10, ENOSYS)]


def test_a_program_too_long_for_short_jumps_takes_detours() -> None:
    table = {number: SyscallAction(number) for number in range(900)}
    program = compile_filter(7, segments(table, ENOSYS))
    assert any(code == 0x05 for code, *_ in struct.iter_unpack("=HBBI", program))
    assert all(simulate(program, Call(number, 7, [0] * 6)) == number for number in table)


@pytest.mark.parametrize("then_is_farther", [True, False])
@given(between=st.integers(0, 10), before=st.integers(250, 260))
def test_both_targets_of_a_branch_stay_reachable_around_the_limit(
    then_is_farther: bool, between: int, before: int
) -> None:
    program = BpfProgram()
    far = program.ret(1)
    for _ in range(between):
        program.ret(99)
    near = program.ret(2)
    for _ in range(before):
        program.ret(99)
    then, otherwise = (far, near) if then_is_farther else (near, far)
    program.load(0, program.branch(EQUAL, 5, then, otherwise))
    results = [simulate(program.to_bytes(), Call(number, 0, [0] * 6)) for number in (5, 6)]
    assert results == ([1, 2] if then_is_farther else [2, 1])


def test_every_name_has_one_rule_and_exists_somewhere() -> None:
    names = [name for _, names in RULES for name in names.split()]
    assert len(names) == len(set(names))
    assert set(names) <= set().union(*NUMBERS.values())


def test_only_calls_that_an_architecture_lacks_are_skipped_there() -> None:
    assert set(DECISIONS) <= set(NUMBERS["x86_64"])
    assert set(DECISIONS) - set(NUMBERS["aarch64"]) == set(REPLACED_ON_AARCH64.split())


def header_numbers(path: str) -> dict[str, int]:
    """The numbers up to 450; newer headers go on, and so does the table."""
    header = Path(path)
    if not header.exists():
        pytest.skip(f"{path} is not installed")
    defined = re.findall(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    return {name: int(number) for name, number in defined if int(number) <= 450}


def test_the_x86_64_numbers_are_those_of_the_kernel_header() -> None:
    header = header_numbers("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    probes_of_newer_kernels = {"uretprobe", "uprobe"}
    real = header.keys() - probes_of_newer_kernels
    assert {name: NUMBERS["x86_64"].get(name) for name in real} == {name: header[name] for name in real}


def test_the_aarch64_numbers_are_those_of_the_generic_kernel_header() -> None:
    header = header_numbers("/usr/include/asm-generic/unistd.h")
    header["newfstatat"] = header.pop("fstatat")
    for_32_bits = {name for name, number in header.items() if 403 <= number <= 423}
    real = header.keys() - for_32_bits - {"arch_specific_syscall", "sync_file_range2"}
    assert {name: NUMBERS["aarch64"].get(name) for name in real} == {name: header[name] for name in real}


@machines
@pytest.mark.parametrize("name", DANGEROUS.split())
def test_dangerous_calls_are_refused(machine: str, name: str) -> None:
    assert decide(name, machine=machine) == EPERM


@machines
@pytest.mark.parametrize("name", ["clone3", "openat2", "fchmodat2", "memfd_secret", "io_setup", "statmount", "seccomp"])
def test_calls_with_an_older_stand_in_are_absent(machine: str, name: str) -> None:
    assert decide(name, machine=machine) == ENOSYS


@machines
@pytest.mark.parametrize("shift", [17, 25, 26, 27, 28, 29, 30])
def test_clone_makes_no_namespace_whatever_else_is_asked(machine: str, shift: int) -> None:
    assert decide("clone", 1 << shift, machine=machine) == EPERM
    assert decide("clone", HIGH_HALF_NOISE | 1 << shift | 0x3D0F00, machine=machine) == EPERM


@machines
def test_clone_makes_threads_and_processes(machine: str) -> None:
    assert decide("clone", 0x3D0F00, machine=machine) == ALLOW
    assert decide("clone", 0x01200011, machine=machine) == ALLOW


@machines
@pytest.mark.parametrize("noise", [0, HIGH_HALF_NOISE])
@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_only_ordinary_socket_families_exist(machine: str, call: str, noise: int) -> None:
    flags = 0o2004000
    allowed = [family for family in range(64) if decide(call, family | noise, 2 | flags, machine=machine) == ALLOW]
    assert allowed == [1, 2, 10]
    assert decide(call, 40 | noise, 1, machine=machine) == fail_with(errno.EAFNOSUPPORT)


@pytest.mark.parametrize("family", [2, 10])
def test_internet_sockets_are_tcp_udp_and_ping(family: int) -> None:
    types = [kind for kind in range(16) if decide("socket", family, kind) == ALLOW]
    protocols = [protocol for protocol in range(300) if decide("socket", family, 1, protocol) == ALLOW]
    assert (types, protocols) == ([1, 2], [0, 1, 6, 17, 58])


@pytest.mark.parametrize("bits", [0o4000, 0o2000, 0o6000, 0o4755, 0o2755])
@pytest.mark.parametrize("name", ["chmod", "fchmod", "fchmodat", "creat", "mkdir", "mkdirat", "mknod", "mknodat"])
def test_no_file_gets_a_set_id_bit(name: str, bits: int) -> None:
    position = 2 if name.endswith("at") and name != "creat" else 1
    before = [0] * position
    assert decide(name, *before, bits | HIGH_HALF_NOISE) == EPERM
    assert decide(name, *before, 0o1777 | HIGH_HALF_NOISE) == ALLOW


@machines
@pytest.mark.parametrize("creating", [0o100, 0o20000000, 0o100 | 0o1001])
def test_openat_heeds_the_mode_only_when_it_creates(machine: str, creating: int) -> None:
    assert decide("openat", 0, 0, creating, 0o4755, machine=machine) == EPERM
    assert decide("openat", 0, 0, creating, 0o644, machine=machine) == ALLOW
    assert decide("openat", 0, 0, 0o2000000 | 0o200000, 0o177777, machine=machine) == ALLOW


def test_open_heeds_the_mode_only_when_it_creates() -> None:
    assert decide("open", 0, 0o101, 0o2755) == EPERM
    assert decide("open", 0, 0, 0o2755) == ALLOW


@machines
def test_mknod_makes_files_pipes_and_sockets_but_no_devices(machine: str) -> None:
    made = [kind for kind in range(16) if decide("mknodat", 0, 0, kind << 12 | 0o644, machine=machine) == ALLOW]
    assert made == [0, 0o1, 0o10, 0o14]


@pytest.mark.parametrize("request_number", [0x5412, 0x541C, 0x541D, 0x5423])
def test_terminals_cannot_be_taken_over(request_number: int) -> None:
    assert decide("ioctl", 0, request_number) == EPERM
    assert decide("ioctl", 0, request_number | HIGH_HALF_NOISE) == EPERM


def test_other_terminal_requests_pass() -> None:
    assert decide("ioctl", 0, 0x5401) == ALLOW


def test_personality_keeps_address_randomisation() -> None:
    assert decide("personality", 0x0040000) == EPERM
    assert {decide("personality", known) for known in (0, 8, 0x20000, 0x20008, WORD)} == {ALLOW}


# The level and name of what common programs set, as strace shows it.
SET_BY_PROGRAMS = {
    "asyncio": [(1, 2), (1, 15), (6, 1), (41, 26), (1, 6)],
    "curl": [(6, 1), (1, 9), (6, 4), (6, 5), (6, 6), (0, 24), (6, 30)],
    "go": [(1, 2), (1, 6), (6, 1), (1, 9), (6, 4), (6, 5), (6, 6), (41, 26)],
    "java": [(1, 2), (1, 13), (1, 7), (1, 8), (6, 1), (0, 1), (41, 67), (41, 26), (41, 66)],
    "node": [(1, 2), (6, 1), (1, 9), (6, 4), (41, 26), (1, 15)],
    "postgres": [(6, 1), (1, 9), (6, 18), (1, 2), (41, 26)],
    "ping": [(0, 11), (0, 12), (0, 6), (1, 29), (1, 20), (1, 21), (1, 7), (1, 8), (41, 25), (41, 51)],
    "getent": [(0, 11), (41, 25)],
    "dbus": [(1, 16), (1, 34), (1, 76)],
}


@machines
@pytest.mark.parametrize("program", SET_BY_PROGRAMS)
def test_socket_options_of_common_programs_can_be_set(machine: str, program: str) -> None:
    refused = [pair for pair in SET_BY_PROGRAMS[program] if decide("setsockopt", 3, *pair, machine=machine) != ALLOW]
    assert refused == []


@machines
@pytest.mark.parametrize("noise", [0, HIGH_HALF_NOISE])
def test_no_socket_option_brings_a_program_into_the_kernel(machine: str, noise: int) -> None:
    missing = fail_with(errno.ENOPROTOOPT)
    attaching = {decide("setsockopt", 3, 1 | noise, option | noise, machine=machine) for option in (26, 50, 51, 52)}
    fanout, firewall, tls, encapsulation = (263, 18), (0, 64), (6, 31), (17, 100)
    others = {decide("setsockopt", 3, *pair, machine=machine) for pair in (fanout, firewall, tls, encapsulation)}
    assert attaching | others == {missing}


@machines
def test_levels_of_socket_options_are_a_short_list(machine: str) -> None:
    known, step = {0, 1, 6, 17, 41}, sampling.amount(4, whole=1)
    tried = ((level, name) for level in range(300) for name in range(0 if level in known else level % step, 128, step))
    assert {level for level, name in tried if decide("setsockopt", 3, level, name, machine=machine) == ALLOW} == known


@machines
@pytest.mark.parametrize("noise", [0, HIGH_HALF_NOISE])
def test_process_options_are_a_list_of_harmless_ones(machine: str, noise: int) -> None:
    own_filter, other_memory, idle_cores, merging, names_of_memory, tracer = 22, 35, 62, 67, 0x53564D41, 0x59616D61
    for option in (own_filter, other_memory, idle_cores, merging, names_of_memory, tracer):
        assert decide("prctl", option | noise, machine=machine) == fail_with(errno.EINVAL)
    end_with_parent, dumpable, name, has_filter, subreaper, no_new_privileges = 1, 4, 15, 21, 36, 38
    for option in (end_with_parent, dumpable, name, has_filter, subreaper, no_new_privileges):
        assert decide("prctl", option | noise, machine=machine) == ALLOW


def test_sync_looks_done() -> None:
    assert decide("sync") == fail_with(0)


@machines
@pytest.mark.parametrize("noise", [0, HIGH_HALF_NOISE])
def test_huge_pages_are_out_of_reach_whatever_else_is_asked(machine: str, noise: int) -> None:
    none_left = fail_with(errno.ENOMEM)
    assert decide("mmap", 0, 0, 3, noise | 0x40022, machine=machine) == none_left
    assert decide("shmget", 0, 0, noise | 0o5600, machine=machine) == none_left
    assert decide("memfd_create", 0, noise | 0x5, machine=machine) == fail_with(errno.EINVAL)


@machines
def test_ordinary_memory_stays_allowed(machine: str) -> None:
    assert decide("mmap", 0, 0, 3, 0x120022, machine=machine) == ALLOW
    assert decide("shmget", 0, 0, 0o1600, machine=machine) == ALLOW
    assert decide("memfd_create", 0, 0x3, machine=machine) == ALLOW


@machines
@pytest.mark.parametrize("command", [1024, 1026, 1029, 1039, 1040, 5000, HIGH_HALF_NOISE | 1024])
def test_fcntl_takes_no_lease_and_watches_nothing(machine: str, command: int) -> None:
    assert decide("fcntl", 0, command, machine=machine) == fail_with(errno.EINVAL)


@machines
def test_a_rename_leaves_no_device_behind(machine: str) -> None:
    answers = [decide("renameat2", 0, 0, 0, 0, flags, machine=machine) for flags in range(8)]
    assert answers == [*[ALLOW] * 4, *[fail_with(errno.EINVAL)] * 4]


@machines
def test_priorities_are_set_for_processes_and_never_for_a_user(machine: str) -> None:
    assert [decide("setpriority", which, machine=machine) for which in range(4)] == [ALLOW, ALLOW, EPERM, EPERM]
    assert [decide("ioprio_set", which, machine=machine) for which in range(4)] == [EPERM, ALLOW, ALLOW, EPERM]


@machines
def test_the_limit_of_core_files_is_read_and_never_set(machine: str) -> None:
    ignored, address = fail_with(0), 0x7F00_0000_1000
    assert [kind for kind in range(16) if decide("setrlimit", kind, machine=machine) == ignored] == [4]
    assert [kind for kind in range(16) if decide("prlimit64", 0, kind, address, machine=machine) == ignored] == [4]
    assert decide("prlimit64", 0, 4, 0, machine=machine) == ALLOW
    # Neither half of a pointer alone makes it a null pointer.
    assert decide("prlimit64", 0, 4, 0x7F00_0000_0000, machine=machine) == ignored
    assert decide("prlimit64", 0, 4, 0x1000, machine=machine) == ignored


@machines
def test_no_file_gets_an_attribute(machine: str) -> None:
    for name in ("setxattr", "lsetxattr", "fsetxattr"):
        assert decide(name, machine=machine) == fail_with(errno.EOPNOTSUPP)
