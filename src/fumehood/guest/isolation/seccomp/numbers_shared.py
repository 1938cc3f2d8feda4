"""System call numbers that every architecture shares, and the notation of the tables.

Since Linux 5.1 a new call gets the same number everywhere, from 424 on. Older calls are in one table per architecture.
"""

from collections.abc import Mapping


def numbered(rows: Mapping[int, str]) -> dict[str, int]:
    """Name to number, from rows of consecutive names, each under the number of its first name."""
    return {name: first + index for first, row in rows.items() for index, name in enumerate(row.split())}


SHARED = {
    424: "pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount",
    430: "fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2",
    440: "process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset",
    445: "landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv",
    450: "set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake",
    455: "futex_wait futex_requeue statmount listmount lsm_get_self_attr",
    460: "lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat",
    465: "listxattrat removexattrat open_tree_attr file_getattr file_setattr",
}
