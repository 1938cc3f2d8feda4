"""What a sandbox may do, as data.

Owns the policy file format: the frozen models, reading it with errors that name file, line and key, its digest, the
difference between two policies in words, and the search for dangerous choices. All of it is pure but reading a file.

Must not know: backends, the gateway, the audit log, or how anything here is enforced. Not every backend enforces every
key; `controls` names the keys in use, so that a backend can refuse what it would otherwise have to ignore.

    policy = Policy.load("analyst.yaml")        text -> document -> model
    policy.digest, policy.diff(other), policy.lint(), policy.override({"resources": {"memory": "1G"}})
    controls(policy), describe(policy)

Beside it: `egress` and `commands` decide about connections and command lines, `decisions` about any attempt, in words,
and runs the tests of a policy; `secret` reads the values of secrets; `file` has the line of each key in a file.
"""

from fumehood.policy.approvals import Approval
from fumehood.policy.arguments import AnyPolicy, Bytes, Seconds, read_policy, read_seconds, read_size
from fumehood.policy.attempts import Expectation
from fumehood.policy.audit import Audit
from fumehood.policy.canonical_form import controls
from fumehood.policy.command_rules import Commands
from fumehood.policy.filesystem import Filesystem, Mount, Workspace
from fumehood.policy.filters import CanarySource, Filters
from fumehood.policy.lint import Finding
from fumehood.policy.model import Policy, deny_all
from fumehood.policy.network import Network, NetworkRule
from fumehood.policy.quantities import format_duration, format_size, parse_duration, parse_size
from fumehood.policy.secret import Injection, Secret
from fumehood.policy.sections import Docker, Environment, Resources
from fumehood.policy.words import describe

__all__ = [
    "AnyPolicy",
    "Approval",
    "Audit",
    "Bytes",
    "CanarySource",
    "Commands",
    "Docker",
    "Environment",
    "Expectation",
    "Filesystem",
    "Filters",
    "Finding",
    "Injection",
    "Mount",
    "Network",
    "NetworkRule",
    "Policy",
    "Resources",
    "Seconds",
    "Secret",
    "Workspace",
    "controls",
    "deny_all",
    "describe",
    "format_duration",
    "format_size",
    "parse_duration",
    "parse_size",
    "read_policy",
    "read_seconds",
    "read_size",
]
