"""The rules: which system calls sandboxed code may make, by name, on every architecture.

An allow list of what an ordinary program without privileges needs. Whatever is not named does not exist (ENOSYS), also
calls that future kernels add: libraries probe for new calls and fall back on that error. Calls that are always there
but are not for sandboxed code are refused (EPERM), since programs would take ENOSYS for a broken kernel.

This is one layer of several. Namespaces, capabilities, Landlock and cgroups decide what a call may touch; the filter
keeps code away from kernel interfaces that it has no use for, whatever flaws they have.
"""

import errno
from collections.abc import Mapping

from .arguments import (
    ITSELF_AT_FIRST,
    ITSELF_AT_SECOND,
    KNOWN_PERSONALITIES,
    NO_TERMINAL_TAKEOVER,
    ORDINARY_SOCKETS,
    REFUSE,
    SAME_NAMESPACES,
    creating_without_set_id_bits,
    or_packet_filter,
    or_sockets_of_the_cell,
    plain_files,
    without_set_id_bits,
)
from .decisions import ALLOW, Decision, Gated, SyscallCheck, fail_with
from .options import KNOWN_PROCESS_OPTIONS, KNOWN_SOCKET_OPTIONS
from .outside_effects import (
    KNOWN_FCNTL,
    NO_HUGE_MAPPING,
    NO_HUGE_SEGMENT,
    ORDINARY_MEMORY_FILE,
    ORDINARY_RENAME,
    disk_priority_of_processes,
    limits_but_core,
    priority_of_processes,
    reading_limits_or_setting,
)

ABSENT = fail_with(errno.ENOSYS)
PRETEND = fail_with(0)
_LIMITS = reading_limits_or_setting(pointer=2, resource=1)

RULES: tuple[tuple[Decision, str], ...] = (
    # Descriptors and data.
    (ALLOW, "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range"),
    (ALLOW, "dup dup2 dup3 flock pipe pipe2 sendfile splice tee vmsplice copy_file_range"),
    (ALLOW, "fsync fdatasync sync_file_range fallocate ftruncate truncate readahead fadvise64"),
    (KNOWN_FCNTL, "fcntl"),
    (ORDINARY_MEMORY_FILE, "memfd_create"),
    # Files and folders. What can be reached is for the mount namespace and Landlock to say.
    (ALLOW, "stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 readlink readlinkat"),
    (ALLOW, "getdents getdents64 getcwd chdir fchdir rename renameat rmdir link linkat unlink unlinkat"),
    (ORDINARY_RENAME, "renameat2"),
    (ALLOW, "symlink symlinkat chown fchown lchown fchownat umask utime utimes futimesat utimensat"),
    (ALLOW, "getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr"),
    # Access lists are attributes too: kernel memory of 64 KiB for each file, which counts against no limit.
    (fail_with(errno.EOPNOTSUPP), "setxattr lsetxattr fsetxattr"),
    (ALLOW, "removexattr lremovexattr fremovexattr inotify_init inotify_init1 inotify_add_watch inotify_rm_watch"),
    # Every way to give a file its mode.
    (creating_without_set_id_bits(1), "open"),
    (creating_without_set_id_bits(2), "openat"),
    (without_set_id_bits(1), "creat chmod fchmod mkdir"),
    (without_set_id_bits(2), "fchmodat mkdirat"),
    (plain_files(1), "mknod"),
    (plain_files(2), "mknodat"),
    # Memory of the process itself.
    (NO_HUGE_MAPPING, "mmap"),
    (ALLOW, "brk munmap mremap mprotect madvise msync mincore mlock mlock2 mlockall munlock munlockall"),
    (ALLOW, "pkey_alloc pkey_free pkey_mprotect mseal map_shadow_stack"),
    # Processes and threads; the pid namespace and the pids limit hold them.
    (ALLOW, "fork vfork execve execveat exit exit_group wait4 waitid set_tid_address gettid getpid getppid"),
    (ALLOW, "getpgid getpgrp setpgid getsid setsid pidfd_open futex futex_waitv get_robust_list set_robust_list"),
    (ALLOW, "rseq membarrier arch_prctl"),
    (KNOWN_PROCESS_OPTIONS, "prctl"),
    (SAME_NAMESPACES, "clone"),
    (KNOWN_PERSONALITIES, "personality"),
    # Scheduling, within what an unprivileged process may do to itself.
    (ALLOW, "sched_yield sched_getaffinity sched_getparam sched_setparam sched_getscheduler sched_setscheduler"),
    (ALLOW, "sched_getattr sched_setattr sched_get_priority_max sched_get_priority_min sched_rr_get_interval"),
    (ALLOW, "getpriority ioprio_get getcpu getrusage getrlimit"),
    (priority_of_processes(), "setpriority"),
    (disk_priority_of_processes(), "ioprio_set"),
    (limits_but_core(0), "setrlimit"),
    (_LIMITS, "prlimit64"),
    # Users and capabilities: one user is mapped and there are no capabilities, so these can only give up.
    (ALLOW, "getuid geteuid getgid getegid getgroups getresuid getresgid setuid setgid setreuid setregid"),
    (ALLOW, "setresuid setresgid setfsuid setfsgid setgroups capget capset"),
    # A program may confine its access to files further.
    (ALLOW, "landlock_create_ruleset landlock_add_rule landlock_restrict_self"),
    # Signals.
    (ALLOW, "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait rt_sigqueueinfo"),
    (ALLOW, "rt_tgsigqueueinfo sigaltstack kill tkill tgkill pidfd_send_signal signalfd signalfd4 pause"),
    (ALLOW, "restart_syscall"),
    # Time and waiting.
    (ALLOW, "time times gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm getitimer setitimer"),
    (ALLOW, "timer_create timer_settime timer_gettime timer_getoverrun timer_delete"),
    (ALLOW, "timerfd_create timerfd_settime timerfd_gettime eventfd eventfd2 poll ppoll select pselect6"),
    (ALLOW, "epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2"),
    # Sockets; the network namespace says where they lead.
    (ORDINARY_SOCKETS, "socket socketpair"),
    (ALLOW, "bind listen accept accept4 connect shutdown getsockname getpeername getsockopt"),
    (KNOWN_SOCKET_OPTIONS, "setsockopt"),
    (ALLOW, "sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg"),
    # System V and POSIX message passing, in an ipc namespace of its own.
    (NO_HUGE_SEGMENT, "shmget"),
    (ALLOW, "shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl"),
    (ALLOW, "mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr"),
    # Facts about the system, and devices that the sandbox has opened.
    (ALLOW, "uname sysinfo getrandom"),
    (NO_TERMINAL_TAKEOVER, "ioctl"),
    # Flushes the disks of the whole host and can't be interrupted, which would delay a kill. It reports no errors, and
    # may return before anything is written, so a program cannot notice that it was left out.
    (PRETEND, "sync"),
    # The same for one file system, which can be the host's. Its callers do rely on the answer.
    (REFUSE, "syncfs"),
    # Their flags and modes are in memory, where a filter can't look; libc falls back on the older call.
    (ABSENT, "clone3 openat2"),
    # Needs the same check as fchmodat, on libcs that then use fchmodat anyway.
    (ABSENT, "fchmodat2"),
    # libnuma gives up quietly when this one is missing, and does not try the calls below.
    (ABSENT, "get_mempolicy"),
    # Memory that not even the kernel can read is of no use to an ordinary program; most kernels have it switched off.
    (ABSENT, "memfd_secret"),
    # No limit counts the filters that a kernel compiles, and freeing thousands of them at once can stop it for good.
    # Programs that confine themselves go on without, as on a kernel that has no seccomp.
    (ABSENT, "seccomp"),
    # Kernel AIO: few programs use it, all of them do without, and its record is poor.
    (ABSENT, "io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents"),
    # Does what other calls do, unseen by the filter.
    (REFUSE, "io_uring_setup io_uring_enter io_uring_register"),
    # Other namespaces and other views of the file system.
    (REFUSE, "unshare setns mount umount2 pivot_root chroot open_tree open_tree_attr move_mount"),
    (REFUSE, "fsopen fsconfig fsmount fspick mount_setattr"),
    # Files by handle, past the mount namespace; and watching whole mounts.
    (REFUSE, "name_to_handle_at open_by_handle_at fanotify_init fanotify_mark"),
    # Other processes' memory and descriptors.
    (REFUSE, "ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd"),
    # Kernel key rings are shared between namespaces.
    (REFUSE, "add_key request_key keyctl"),
    # Large interfaces that most kernel exploits start from.
    (REFUSE, "bpf perf_event_open userfaultfd"),
    # Which processors and memory nodes are used is a limit of the sandbox.
    (REFUSE, "sched_setaffinity mbind set_mempolicy set_mempolicy_home_node migrate_pages move_pages"),
    # The administrator's calls. Capabilities guard them too.
    (REFUSE, "kexec_load kexec_file_load create_module init_module finit_module delete_module reboot"),
    (REFUSE, "swapon swapoff acct quotactl quotactl_fd syslog vhangup nfsservctl lookup_dcookie"),
    (REFUSE, "sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex"),
    # Hardware ports and segments.
    (REFUSE, "ioperm iopl modify_ldt"),
)


def decisions(numbers: Mapping[str, int]) -> dict[int, Decision]:
    """The rules by number on one architecture. A name that it does not have is a call that cannot be made there."""
    return {numbers[name]: decision for decision, names in RULES for name in names.split() if name in numbers}


# A process of the same user may change these of another process. By the number 0 a process means itself.
_OWN_PROCESS_RULES: tuple[tuple[Decision, str], ...] = (
    (ITSELF_AT_FIRST, "sched_setparam sched_setscheduler sched_setattr"),
    (SyscallCheck(0, (0,), _LIMITS, REFUSE), "prlimit64"),
    (priority_of_processes(ITSELF_AT_SECOND), "setpriority"),
    (disk_priority_of_processes(ITSELF_AT_SECOND), "ioprio_set"),
)


def own_process_only(numbers: Mapping[str, int]) -> dict[int, Decision]:
    return {numbers[name]: rule for rule, names in _OWN_PROCESS_RULES for name in names.split() if name in numbers}


# What a cell needs to set up its runs, and programs in them must not have.
SET_UP = ("unshare", "setns", "mount", "umount2", "open_tree", "move_mount", "mount_setattr", "sched_setaffinity")
SET_UP_IN_PART = {"socket": or_sockets_of_the_cell, "setsockopt": or_packet_filter}


def gated(numbers: Mapping[str, int], decided: Mapping[int, Decision]) -> dict[int, Gated]:
    whole: dict[str, Decision] = dict.fromkeys(SET_UP, ALLOW)
    partly = {name: widen(decided[numbers[name]]) for name, widen in SET_UP_IN_PART.items()}
    return {numbers[name]: Gated(then, decided[numbers[name]]) for name, then in {**whole, **partly}.items()}
