"""One clear sentence for each thing that can be wrong between us and an engine: what, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fumehood.errors import SandboxError

# How servers of different making say it.
_NO_TLS = ("WRONG_VERSION_NUMBER", "WRONG VERSION NUMBER", "RECORD_LAYER_FAILURE")
_WANTS_CERTIFICATE = (
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE REQUIRED",
    "BAD_CERTIFICATE",
    "BAD CERTIFICATE",
    "UNKNOWN_CA",
)


class EngineError(SandboxError):
    """The engine is not there, does not let us in, or cannot do what was asked; says which, and what to do."""


class ImageMissingError(EngineError):
    """The engine has no image of that name."""


@contextmanager
def speaking_to(host: str) -> Iterator[None]:
    """What goes wrong between us and the daemon, in our words."""
    import aiohttp
    from aiodocker import DockerError

    try:
        yield
    except (DockerError, aiohttp.ClientError, OSError) as error:
        raise EngineError(_explain(host, str(error))) from error


def _explain(host: str, said: str) -> str:
    is_local = host.startswith("unix://")
    if "CERTIFICATE_VERIFY_FAILED" in said or "certificate verify failed" in said:
        return (
            f"the Docker engine at {host} shows a certificate that is not to be trusted: {said}. Name the authority "
            "that signed it as docker.tls_ca in the policy, and the engine by a name that the certificate has."
        )
    # The refusal itself is often lost: the server hangs up while we still write.
    has_hung_up = "https://" in said and any(word in said for word in ("reset by peer", "Broken pipe", "disconnected"))
    if has_hung_up or any(word in said.upper() for word in _WANTS_CERTIFICATE):
        return (
            f"the Docker engine at {host} does not accept our certificate, or wants one: {said}. Set docker.tls_cert "
            "and docker.tls_key in the policy to a pair that its authority has signed."
        )
    if "to an HTTPS server" in said:
        return f"the Docker engine at {host} speaks TLS: set docker.tls_ca, and tls_cert and tls_key, in the policy."
    if any(word in said.upper() for word in _NO_TLS):
        return f"the Docker engine at {host} speaks no TLS: turn it on there, or remove docker.tls_* from the policy."
    if is_local and "Permission denied" in said:
        return (
            f"no permission to use the Docker engine at {host}. Join its group (`sudo usermod -aG docker $USER`, then "
            "log in again), run as root, or use backend: native, which needs neither."
        )
    if any(word in said for word in ("Cannot connect", "refused", "No such file", "Name or service", "Temporary fail")):
        start = (
            "Start it (`sudo systemctl start docker`)" if is_local else "Check the address, and that it listens there"
        )
        return f"no Docker engine answers at {host}. {start}, or set docker.host in the policy or DOCKER_HOST. ({said})"
    if "no space left" in said:
        return f"the Docker engine at {host} has no space left on its disk. Free some (`docker system prune`): {said}"
    return f"the Docker engine at {host} refused: {said}"


def explain_ssh(host: str, said: str) -> str:
    place = host.removeprefix("ssh://")
    return (
        f"no Docker engine answers at {host}: ssh says {said!r}. See that `ssh -o BatchMode=yes {place} docker "
        "version` works: with a key, a known host, and docker for that user."
    )
