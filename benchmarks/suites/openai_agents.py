"""The tests of OpenAI's SDK that open sessions of its client for the host."""

from __future__ import annotations

from contextlib import ExitStack
from types import ModuleType
from typing import Any

from agents.sandbox import Manifest
from agents.sandbox.session import SandboxSession

from benchmarks.suites.suite import Difference, Suite
from fumehood.integrations.adapter import default_policy
from fumehood.integrations.openai_agents import FumehoodSandboxClient
from fumehood.integrations.openai_agents.session import FumehoodSandboxSession
from fumehood.policy.paths import WORKSPACE, is_inside


def stand_in(backend: str) -> type[FumehoodSandboxClient]:
    class UnixLocalStandIn(FumehoodSandboxClient):
        """The SDK's sessions need no start, and their workspaces are folders of the host's."""

        backend_id = "unix_local"

        def __init__(
            self,
            *,
            inherit_host_environment: bool = True,
            host_environment_allowlist: object = None,
            **options: Any,
        ) -> None:
            super().__init__(default_policy(None).override({"backend": backend}), **options)

        async def create(self, *, manifest: Manifest | None = None, **options: Any) -> SandboxSession:
            if manifest is not None and not is_inside(manifest.root, WORKSPACE):
                manifest = manifest.model_copy(update={"root": WORKSPACE})
            session = await super().create(manifest=manifest, **options)
            inner = session._inner  # pyright: ignore[reportPrivateUsage]
            assert isinstance(inner, FumehoodSandboxSession)
            await inner._ensure_backend_started()  # pyright: ignore[reportPrivateUsage]
            return session

    return UnixLocalStandIn


def substitute(module: ModuleType, backend: str, left_open: ExitStack) -> None:
    if hasattr(module, "UnixLocalSandboxClient"):
        vars(module)["UnixLocalSandboxClient"] = stand_in(backend)


_HOST_FOLDER = "they look at the workspace as a folder of the host's"
_INTERNALS = "they replace functions inside the SDK's own client"
_GRANTS = "a folder of the host's has to be in the policy; refused by name"
_PORTS = "options open no ports: that is the policy's"
_ENVIRONMENT = "nothing of the application's environment is there"
_MACOS = "for macOS"

SUITE = Suite(
    distribution="openai-agents",
    folder="openai_agents",
    files=(
        "sandbox/integration_tests/test_runner_pause_resume.py",
        "sandbox/test_exposed_ports.py",
        "sandbox/test_run_cwd.py",
        "sandbox/test_runtime.py",
        "sandbox/test_unix_local.py",
    ),
    concerns="UnixLocalSandboxClient|_unix_local_run_config",
    substitute=substitute,
    not_applicable={
        **dict.fromkeys(
            (
                "test_unix_local_client_rewrites_default_manifest_root_to_temp_workspace",
                "test_unix_local_client_delete_preserves_caller_owned_workspace_root",
                "test_unix_local_runner_cleanup_preserves_resumed_caller_owned_workspace_root",
                "test_wrapped_unix_local_helpers_reject_symlink_escape_paths",
                "test_unix_local_snapshot_round_trips_hardlinks",
                "test_unix_local_snapshot_resume_removes_stale_link_without_following_target",
                "test_unix_local_resume_rejects_invalid_snapshot_before_clearing_workspace",
                "test_unix_local_exec_runs_without_wrapper_on_linux",
                "test_move_to_an_existing_directory_keeps_the_source",
                "test_same_file_answers_for_real_paths",
            ),
            _HOST_FOLDER,
        ),
        **dict.fromkeys(
            (
                "test_unix_local_client_delete_unmounts_workspace_mounts_before_rmtree",
                "test_unix_local_client_delete_unmounts_nested_mounts_deepest_first",
                "test_unix_local_client_delete_skips_rmtree_when_unmount_fails",
                "test_unix_local_exec_rejects_when_confinement_is_unavailable",
                "test_unix_local_virtual_environment_grants_follow_client_path_inheritance",
                "test_unix_local_start_cancellation_waits_for_workspace_creation",
                "test_unix_local_resume_cancellation_waits_for_archive_validation",
                "test_unix_local_rejects_invalid_host_environment_allowlist_configuration",
                "test_client_delete_keeps_workspace_removal_off_the_event_loop",
            ),
            _INTERNALS,
        ),
        "test_unix_local_exec_confines_commands_to_workspace_root": _MACOS,
        "test_unix_local_exec_denies_launch_services": _MACOS,
        "test_case_only_move_to_keeps_the_file": _MACOS,
    },
    differences={
        "test_runner_preserves_unix_local_lifecycle_state_across_pause_and_resume": Difference(
            "UsageError: manifest.extra_path_grants: .* has to be in filesystem.mounts", _GRANTS
        ),
        "test_unix_local_rejects_host_path_before_creating_workspace": Difference(
            "UsageError: manifest.extra_path_grants: '/mnt/shared-data' has to be", _GRANTS
        ),
        "test_runner_rejects_unix_local_manifest_user_and_group_provisioning": Difference(
            "UsageError: manifest.users and groups are not supported", "refused by `create`, and theirs by `start`"
        ),
        "test_unix_local_resolve_exposed_port_uses_wrapper_and_normalizes_state": Difference(
            "ExposedPortUnavailableError: port 8765 is not configured", _PORTS
        ),
        "test_unix_local_resolve_exposed_port_rejects_undeclared_ports": Difference(r"assert \[\] == \[8765\]", _PORTS),
        "test_python_skill_uses_absolute_root_from_nested_workdir": Difference(
            "output.txt' does not exist in the sandbox", "it starts the host's interpreter by its path there"
        ),
        "test_unix_local_inherits_host_environment_by_default": Difference("assert 'unset", _ENVIRONMENT),
        "test_unix_local_uses_default_allowlist_when_inheritance_is_disabled": Difference("b'unset\\|", _ENVIRONMENT),
        "test_unix_local_uses_custom_host_environment_allowlist": Difference(r"assert b'\|unset'", _ENVIRONMENT),
        "test_pty_terminal_signals_interrupt_even_if_parent_ignores_signal": Difference(
            "assert 13[01] == -", "what a signal ended has 128 and its number as exit code, as in a shell"
        ),
    },
)
