"""What a backend does otherwise than the shared tests say, and why. Every entry is itself a test.

A test that is named here has to fail on that backend: one that passes is a failure, and its entry must go. Names are
those of the tests, with their parameters where only some differ. No entry here is a way out of a sandbox.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

CONTAINERS = ("docker", "gvisor")
DOCKER, GVISOR = ("docker",), ("gvisor",)
MICROVM = ("microvm",)
ELSEWHERE = ("remote", "remote-postgresql", "cluster")
"""At a server: in its own process, with either database, and on a worker of a cluster."""
CLUSTER = ("cluster",)


class Difference(NamedTuple):
    backends: tuple[str, ...]
    reason: str
    tests: tuple[str, ...]
    is_certain: bool = True
    """Whether it shows every time."""
    is_refused: bool = False
    """The attack is refused as well, with another error: getting anything is a failure, expected or not."""


_PLACES = (
    "the internet",
    "the metadata service",
    "a private network",
    "a container network",
    "a carrier's network",
    "the internet by IPv6",
    "the metadata service by IPv6",
)
_COUNTLESS = (
    "files",
    "pipes",
    "files in /tmp",
    "sockets",
    "folders",
    "folders in folders",
    "long names",
    "symbolic links",
    "hard links",
)

DIFFERENCES = (
    Difference(
        DOCKER,
        "runs share the container's cgroups, so that processor time is what parents have waited for",
        ("test_cpu_time_counts_though_nobody_waits_for_the_process",),
    ),
    Difference(
        MICROVM,
        "a machine shares no folder with the host: a policy with mounts is refused",
        (
            "test_what_cannot_be_done_is_one_clear_error[writing to a read-only mount]",
            "test_a_writable_mount_can_be_written_to",
            "test_a_program_in_a_mount_cannot_be_executed",
            "test_a_link_in_a_kept_tmp_does_not_bring_out_what_no_output_names",
            "test_trying_changes_nothing_of_the_hosts",
            "test_a_sandbox_does_what_the_policy_says_of_files_and_connections",
            "test_what_is_done_is_seen_and_not_only_said_again",
            "test_a_rename_leaves_no_device_on_a_writable_mount",
            "test_a_read_only_mount_gives_no",
        ),
    ),
    Difference(
        MICROVM,
        "the machine's own way of doing it, as strong but with another error or another sign",
        (
            "test_there_is_one_user_in_the_map",
            "test_capabilities_cannot_be_had_by[keeping them]",
            "test_output_that_is_taken_back_cannot_make_the_host_wait",
        ),
    ),
    Difference(
        MICROVM,
        "pip and uv are not there unless the image has them: packages are named by the policy",
        (
            "test_without_a_rule_the_refusal_says_which_one_to_add",
            "test_what_is_installed_is_there_for_the_session_under_way_and_for_later_runs",
            "test_without_an_index_of_the_policys_the_refusal_names_the_one_that_uv_would_use",
            "test_a_program_installs_what_it_lacks_and_imports_it",
            "test_the_installers_threads_reserve_no_arenas_of_their_own",
            "test_a_wheel_that_is_there_is_installed_without_a_network",
            "test_a_package_that_cannot_be_installed_is_an_error_with_the_installers_reason",
            "test_a_hostile_package_runs_in_programs_of_the_sandbox_and_in_no_process_of_ours",
        ),
    ),
    Difference(
        MICROVM,
        "runs of one sandbox at the same time are in one machine: they share /tmp, ports and terminals",
        (
            "test_two_sessions_of_a_sandbox_share_the_workspace_and_nothing_else",
            *(
                f"test_two_runs_do_not_see_each_others[{what}]"
                for what in ("TCP ports", "abstract sockets", "shared memory", "files in /dev/shm", "terminals")
            ),
            *(
                f"test_two_runs_have_each_their_own_namespace[{kind}]"
                for kind in ("mnt", "pid", "net", "ipc", "user", "cgroup")
            ),
            "test_two_policies_never_share_a_cell",
            "test_a_process_of_another_run_cannot_be_signalled",
        ),
    ),
    Difference(
        MICROVM,
        "the machine's kernel (before Linux 6.12) lets processes of a user signal each other: a program can end its "
        "sandbox's own services, and with them the sandbox",
        ("test_the_service_cannot_be_seen_traced_or_stopped",),
    ),
    Difference(
        MICROVM,
        "the root is the image's: it has these places, and nothing of the host's is in them",
        (
            *(
                f"test_a_place_of_the_host_is_not_there[{place}]"
                for place in (
                    *("/var/lib", "/var/log", "/var/run", "/sys", "/root/.ssh", "/root/.bashrc", "/etc/hostname"),
                    *("/srv", "/opt", "/mnt", "/media", "/boot", "/dev/mqueue"),
                )
            ),
            "test_the_root_holds_nothing_but_the_system",
            "test_the_way_to_the_interpreter_has_no_side_doors",
            "test_the_hosts_accounts_are_not_listed",
            "test_the_root_cannot_be_changed[a new file in /var/empty]",
            "test_the_root_cannot_be_changed[a hidden proc folder]",
            "test_no_mount_honours_set_uid_and_only_device_nodes_are_devices",
            "test_the_hosts_name_servers_are_unknown",
        ),
    ),
    Difference(
        MICROVM,
        "the machine's kernel has no code for it: refused with another error",
        ("test_the_network_cannot_be_administered_by[a bridge]",),
        is_refused=True,
    ),
    Difference(
        MICROVM,
        "a processor of software is a boundary in part, so that a strict policy is refused",
        ("test_a_strict_policy_opens_only_where_every_control_is_whole",),
    ),
    Difference(
        MICROVM,
        "the kernel is the machine's own: what it shows of itself is nobody else's",
        (
            *(
                f"test_a_fact_about_the_host_is_empty[{name}]"
                for name in (
                    *("cmdline", "diskstats", "interrupts", "kallsyms", "key-users", "modules", "partitions"),
                    "schedstat",
                )
            ),
            *(
                f"test_a_folder_about_the_host_is_empty[{name}]"
                for name in ("acpi", "bus", "driver", "fs", "irq", "pressure", "tty")
            ),
            "test_only_harmless_kinds_of_file_systems_are_mounted",
            "test_the_own_cgroup_looks_like_the_top",
            "test_a_namespace_does_not_lead_to[the owner]",
            "test_terminals_are_counted",
            "test_the_hosts_handler_of_core_dumps_is_not_started_despite",
        ),
    ),
    Difference(
        CLUSTER,
        "workers cannot mount what a client sends along",
        ("test_what_cannot_be_done_is_one_clear_error[writing to a read-only mount]",),
    ),
    Difference(
        CLUSTER,
        "a worker is another process, which the test does not change and whose warnings it does not see",
        (
            "test_a_language_that_the_sandbox_lacks_is_refused_with_those_it_has",
            "test_a_new_language_is_one_entry",
            "test_whoever_opens_a_dangerous_policy_is_warned",
        ),
    ),
    Difference(
        ELSEWHERE,
        "a policy of a tenant names no file of the server and no package index",
        (
            "test_a_writable_mount_can_be_written_to",
            "test_typescript_runs_where_node_is_new_enough",
            "test_packages_come_beside_those_of_the_policy",
        ),
    ),
    Difference(
        GVISOR,
        "there is no Landlock to keep /proc from being written, and the killer is the container's own kernel's",
        ("test_the_program_cannot_save_itself_from_the_out_of_memory_killer",),
        is_certain=False,
    ),
    Difference(
        CONTAINERS,
        "mounts keep their owners: programs run as the owner's number, for which the image has no name",
        ("test_inside_the_owner_has_the_name_of_the_sandboxs_user",),
    ),
    Difference(
        CONTAINERS,
        "folders on the way to a target are the image's: nobody gets through its /root, where the tests' Python may be",
        ("test_a_mount_over_a_folder_of_the_interpreter_is_refused_or_works",),
        is_certain=False,
    ),
    Difference(
        CONTAINERS,
        "nobody gets through the image's /root, where the tests may be: whether they are there is not even said",
        ("test_fumehood_and_its_repository_are_not_there",),
        is_certain=False,
        is_refused=True,
    ),
    Difference(
        CONTAINERS,
        "the guest's processes are in the same process namespace, where everyone sees them and nobody can touch them",
        (
            "test_nothing_but_the_workspace_is_shared",
            "test_only_own_processes_are_in_proc",
            "test_the_service_cannot_be_seen_traced_or_stopped",
            "test_no_process_shows_a_secret_of_the_host",
        ),
    ),
    Difference(
        CONTAINERS,
        "runs of one sandbox at the same time are in one container: they share /tmp, ports and terminals",
        (
            "test_two_sessions_of_a_sandbox_share_the_workspace_and_nothing_else",
            "test_two_runs_do_not_see_each_others[processes]",
            "test_two_runs_do_not_see_each_others[TCP ports]",
            "test_two_runs_do_not_see_each_others[abstract sockets]",
            "test_two_runs_do_not_see_each_others[shared memory]",
            "test_two_runs_do_not_see_each_others[files in /dev/shm]",
            "test_two_runs_do_not_see_each_others[terminals]",
            *(f"test_two_runs_have_each_their_own_namespace[{kind}]" for kind in ("mnt", "ipc", "cgroup")),
            "test_two_policies_never_share_a_cell",
            "test_a_process_of_another_run_cannot_be_signalled",
        ),
    ),
    Difference(
        DOCKER,
        "an engine has these in each container, and gVisor has not",
        (
            *(f"test_two_runs_have_each_their_own_namespace[{kind}]" for kind in ("pid", "net", "user")),
            "test_a_place_of_the_host_is_not_there[/dev/mqueue]",
            "test_a_listener_on_the_hosts_loopback_cannot_be_reached[IPv6]",
        ),
    ),
    Difference(DOCKER, "processes are counted for all runs together", ("test_a_limit_on_processes_is_each_runs_own",)),
    Difference(
        DOCKER,
        "the guest has memory on top of the limit, which a program can take",
        tuple(
            f"test_a_process_cannot_hoard_memory_in[{way}]"
            for way in ("one large block", "many small blocks", "a private mapping", "a shared mapping")
        ),
    ),
    Difference(
        CONTAINERS,
        "each scratch folder has the whole limit",
        ("test_a_disk_cannot_be_overfilled_by[/tmp, /dev/shm and /run together]",),
    ),
    Difference(
        GVISOR,
        "gVisor ends the program, or all of the sandbox, where the kernel refuses memory",
        tuple(f"test_a_run_cannot_hoard_memory_in[{way}]" for way in ("System V shared memory", "pipes")),
        is_certain=False,
        is_refused=True,
    ),
    Difference(
        CONTAINERS,
        "the image has another release of Python than the tests: tracebacks through its library differ",
        (
            "test_a_program_behaves_as_under_plain_python[an error in a thread]",
            "test_a_program_behaves_as_under_plain_python[encodings]",
            "test_a_program_behaves_as_under_plain_python[stdout is full]",
            "test_a_program_behaves_as_under_plain_python[a failing task]",
        ),
    ),
    Difference(
        CONTAINERS,
        "the root is the image's: it has these places, and nothing of the host's is in them",
        (
            *(
                f"test_a_place_of_the_host_is_not_there[{place}]"
                for place in (
                    "/var/lib",
                    "/var/log",
                    "/var/run",
                    "/sys",
                    "/root/.ssh",
                    "/root/.bashrc",
                    "/etc/hostname",
                    "/home",
                    "/srv",
                    "/opt",
                    "/mnt",
                    "/media",
                    "/boot",
                )
            ),
            "test_the_root_holds_nothing_but_the_system",
            "test_the_way_to_the_interpreter_has_no_side_doors",
            "test_the_hosts_accounts_are_not_listed",
            "test_the_root_cannot_be_changed[a new file in /var/empty]",
            *(
                f"test_a_device_of_the_host_cannot_be_touched[{name}]"
                for name in ("null", "zero", "full", "random", "urandom", "tty")
            ),
            "test_no_mount_honours_set_uid_and_only_device_nodes_are_devices",
            "test_the_hosts_name_servers_are_unknown",
            "test_sysfs_is_not_there[/sys/fs/cgroup]",
            "test_only_harmless_kinds_of_file_systems_are_mounted",
        ),
    ),
    Difference(
        CONTAINERS,
        "the engine's own way of doing it, as strong but with another error or another sign",
        (
            "test_the_network_cannot_be_administered_by[a privileged port]",
            "test_a_namespace_does_not_lead_to[the owner]",
            "test_there_is_one_user_in_the_map",
            "test_capabilities_cannot_be_had_by[keeping them]",
            "test_new_privileges_are_forbidden_also_after_executing",
            "test_output_that_is_taken_back_cannot_make_the_host_wait",
        ),
    ),
    Difference(
        GVISOR,
        "gVisor refuses with another error",
        (
            "test_the_next_run_does_not_find[shared memory]",
            "test_the_next_run_does_not_find[a message queue]",
            "test_the_root_cannot_be_changed[the accounts' mode]",
            "test_the_root_cannot_be_changed[the root folder's mode]",
            "test_the_root_cannot_be_changed[a hidden proc folder]",
            "test_a_read_only_mount_cannot_be_changed_by[an inode flag]",
            *(f"test_there_is_no_route_to[{place}]" for place in _PLACES),
            *(
                f"test_the_network_cannot_be_administered_by[{way}]"
                for way in (
                    "an address",
                    "a device's state",
                    "a device's name",
                    "a device's hardware address",
                    "a bridge",
                )
            ),
            "test_the_network_cannot_be_administered_by[the namespace of a socket]",
            "test_a_namespace_does_not_lead_to[the parent of the users]",
            "test_a_namespace_does_not_lead_to[the parent of the processes]",
            "test_capabilities_cannot_be_had_by[ambient ones]",
            "test_capabilities_cannot_be_had_by[security bits]",
            "test_process_1_is_not_disturbed_by[a signal by descriptor]",
            "test_priority_cannot_be_had_by[first in, first out]",
            "test_priority_cannot_be_had_by[round robin]",
            "test_priority_cannot_be_had_by[deadlines]",
            *(
                f"test_the_user_map_cannot_be_widened[{line}-projid_map]"
                for line in ("0 0 4294967295", "0 0 1", "0 1000 1")
            ),
            "test_groups_stay_given_up",
        ),
        is_refused=True,
    ),
    Difference(
        GVISOR,
        "the kernel is the container's own: what it shows, lets be set or ignores is nobody else's",
        (
            "test_a_place_of_the_host_is_not_there[/dev/fuse]",
            "test_a_place_of_the_host_is_not_there[/dev/net/tun]",
            "test_the_network_cannot_be_administered_by[priorities above the rest]",
            "test_calls_of_another_set_end_the_process[32-bit]",
            "test_a_capability_set_is_empty[CapBnd]",
            "test_a_capability_set_is_empty[CapAmb]",
            "test_priority_cannot_be_had_by[nice]",
            "test_priority_cannot_be_had_by[priority]",
            "test_a_limit_cannot_be_raised[NPROC]",
            "test_a_fact_about_the_host_is_empty[cmdline]",
            "test_sysfs_is_not_there[/sys/class/net]",
            "test_the_own_cgroup_looks_like_the_top",
            *(
                f"test_the_program_cannot_save_itself_from_the_out_of_memory_killer[{value}]"
                for value in ("-1", "-1000")
            ),
        ),
    ),
    Difference(
        GVISOR,
        "gVisor has no Landlock, so that a policy with commands.enforce: kernel does not open",
        (
            "test_an_unnamed_program_cannot_be_executed",
            "test_a_shell_that_is_named_starts_nothing_that_is_not",
            "test_the_loader_cannot_be_made_to_run",
            "test_what_was_written_is_not_code",
            "test_a_script_that_was_written_cannot_be_executed",
            "test_a_program_in_a_mount_cannot_be_executed",
            "test_a_file_in_memory_cannot_be_executed",
        ),
    ),
    Difference(
        GVISOR,
        "gVisor lets everybody look at another user's process, but not into its memory or its streams",
        tuple(
            f"test_process_1_keeps_to_itself_its[{name}]"
            for name in ("environ", "maps", "auxv", "fd", "fdinfo", "net namespace", "user namespace")
        ),
    ),
    Difference(
        GVISOR,
        "gVisor does not count files, nor what has no name or is no data, nor processes that have ended",
        (
            *(f"test_there_cannot_be_countless[{kind}]" for kind in _COUNTLESS),
            "test_a_disk_cannot_be_overfilled_by[a file without a name]",
            "test_a_disk_cannot_be_overfilled_by[attributes]",
            "test_a_program_cannot_multiply_by[forks that nobody waits for]",
        ),
    ),
    Difference(
        GVISOR,
        "the limit is of each process's own memory: what the interpreter had before comes on top",
        ("test_a_process_cannot_hoard_memory_in[many small blocks]",),
        False,
    ),
    Difference(
        GVISOR,
        "gVisor looks at permissions before it looks at what is read-only",
        (
            "test_what_cannot_be_done_is_one_clear_error[writing to a read-only mount]",
            "test_what_cannot_be_done_is_one_clear_error[writing to the system]",
            "test_an_error_about_a_file_has_the_kernels_number[read-only]",
        ),
    ),
    Difference(
        GVISOR,
        "gVisor's terminals send no signals, neither for control-C nor for a new size",
        ("test_a_terminal_can_be_resized", "test_control_c_interrupts_what_runs_in_a_terminal"),
    ),
    Difference(
        GVISOR,
        "gVisor does not count files, so that a strict policy is refused",
        (
            "test_a_full_disk_is_told_as_such[files-/workspace]",
            "test_a_full_disk_is_told_as_such[files-/tmp]",
            "test_a_full_disk_is_told_as_such[files-/var/tmp]",
            "test_a_full_disk_is_told_as_such[files-/dev/shm]",
            "test_a_strict_policy_opens_only_where_every_control_is_whole",
        ),
    ),
    Difference(
        GVISOR,
        "without Landlock a program may write what /proc has of its processes, which is the sandbox's own kernel's",
        ("test_nothing_of_a_process_is_written_in_proc_and_the_policy_says_so",),
    ),
    Difference(
        GVISOR,
        "a kernel of the sandbox's own connects to no socket of the host, so that mounts with sockets are harmless",
        (
            "test_a_mount_with_a_socket_is_refused_by_its_name",
            "test_sockets_in_a_mount_that_allows_them_can_be_used",
        ),
    ),
    Difference(
        GVISOR,
        "terminals are those of a kernel of the sandbox's own, and no other's",
        ("test_terminals_are_counted",),
    ),
    Difference(
        DOCKER,
        "programs in all containers of an image are one user to the host, which counts these by user",
        (
            "test_one_run_cannot_take_all_watches_from_the_others",
            "test_descriptors_in_flight_are_not_taken_from_sandboxes_of_other_policies",
        ),
    ),
    Difference(
        DOCKER,
        "the host counts pipes by user, and refuses earlier",
        ("test_a_run_cannot_hoard_memory_in[pipes]",),
        False,
    ),
)

_IS_REFUSED = pytest.StashKey[bool]()
# How an attack says that it succeeded.
_BOOTY = "GOT "

# Weaknesses of the native backend that containers and machines do not have: known failures there, and none here.
STRONGER = {
    "test_a_lock_on_a_system_file_is_not_seen_by_others": (*CONTAINERS, *MICROVM),
}


def mark(items: list[pytest.Item]) -> None:
    known = {(backend, test): entry for entry in DIFFERENCES for backend in entry.backends for test in entry.tests}
    for item in items:
        backend, names = _names(item)
        if backend in STRONGER.get(names[0], ()):
            item.own_markers = [marker for marker in item.own_markers if marker.name != "xfail"]
        for name in names:
            if (backend, name) in known:
                entry = known[backend, name]
                item.add_marker(pytest.mark.xfail(reason=entry.reason, strict=entry.is_certain))
                item.stash[_IS_REFUSED] = entry.is_refused


def look_again(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """An attack that is refused otherwise than elsewhere must still be refused."""
    if call.excinfo and item.stash.get(_IS_REFUSED, False) and _BOOTY in str(call.excinfo.value):
        report.outcome = "failed"
        report.longrepr = f"it got something: {call.excinfo.value}"
        del report.wasxfail


def backend_of(item: pytest.Item) -> str:
    """The one that it runs on, or nothing."""
    return parameter_of(item, "backend")


def parameter_of(item: pytest.Item, name: str) -> str:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get(name, "") if callspec else ""


def _names(item: pytest.Item) -> tuple[str, tuple[str, str]]:
    """Of the backend, and of the test without and with its parameters."""
    backend, plain = backend_of(item), item.name.partition("[")[0]
    if not backend:
        return "", (plain, plain)
    parameters = "-".join(part for part in item.callspec._idlist if part != backend)  # type: ignore[attr-defined]
    return backend, (plain, f"{plain}[{parameters}]")
