"""Host paths that give away the host: what each of them holds, and whether a mount touches it.

Lexical like the rest: a link that leads to one of these is found by the backend that opens it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fumehood.policy.paths import is_inside

# Dangerous as a whole and in every part.
_FORBIDDEN = {
    "/etc": "the host's configuration, with its accounts and keys",
    "/proc": "the host's processes",
    "/sys": "the host's kernel and devices",
    "/dev": "the host's devices",
    "/boot": "the host's boot files",
    "/run/user": "the sockets of a logged-in user",
    "/run/secrets": "credentials handed to this machine",
    "/var/run/secrets": "credentials handed to this machine, of Kubernetes too",
    "/run/containerd": "the control of a container engine",
    "/run/podman": "the control of a container engine",
    "/run/crio": "the control of a container engine",
    "/var/lib/docker": "the files of every container",
    "/var/lib/containerd": "the files of every container",
    "/var/lib/kubelet": "the credentials of every pod",
    "/etc/kubernetes": "the credentials of the cluster",
}
# Dangerous as a whole; folders inside may be harmless.
_CROWDED = {
    "/": "the whole host",
    "/root": "the home of root",
    "/home": "the homes of all users",
    "/Users": "the homes of all users",
    "/var": "the host's databases, logs and sockets",
    "/var/lib": "the state of the host's services",
    "/run": "the sockets of the host's services",
    "/var/run": "the sockets of the host's services",
    "/tmp": "the temporary files of every user, agent sockets among them",
}
_CREDENTIALS = {
    ".ssh": "SSH keys",
    ".gnupg": "GPG keys",
    ".aws": "AWS credentials",
    ".azure": "Azure credentials",
    ".config/gcloud": "Google Cloud credentials",
    ".kube": "Kubernetes credentials",
    ".docker": "registry credentials",
    ".netrc": "passwords of hosts",
    ".git-credentials": "Git passwords",
    ".npmrc": "npm tokens",
    ".pypirc": "PyPI tokens",
    ".vault-token": "a Vault token",
    ".password-store": "passwords",
    ".local/share/keyrings": "passwords",
    ".mozilla": "browser sessions",
    ".bash_history": "typed commands, passwords among them",
}
# Folders of a home that hold some of the above.
_KEEPERS = ("/.config", "/.local", "/.local/share")
_SOCKET = r".*/(?:docker|containerd|podman|crio|cri-dockerd|buildkitd|dockershim)\.sock"
_AGENT = r"/tmp/ssh-[^/]+(?:/.*)?|.*/(?:agent\.\d+|ssh-agent[^/]*|S\.gpg-agent[^/]*)"
_HOME = r"/(?:home|Users)/[^/]+"


def path_hazards(path: str, home: str) -> Iterator[str]:
    """What a mount of this path exposes; nothing for a path that holds no more than its own files."""
    if path in _CROWDED:
        yield _CROWDED[path]
    elif is_inside(home, path) or re.fullmatch(_HOME, path):
        yield "a home directory, with the keys and tokens in it"
    yield from (what for folder, what in _FORBIDDEN.items() if is_inside(path, folder))
    yield from (what for name, what in _CREDENTIALS.items() if f"/{name}/" in f"{path}/")
    if path.endswith(_KEEPERS):
        yield "the settings of a user's programs, tokens among them"
    if re.fullmatch(_SOCKET, path):
        yield "the control of a container engine, which is root on the host"
    if re.fullmatch(_AGENT, path):
        yield "an agent that signs with the user's keys"
