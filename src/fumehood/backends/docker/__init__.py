"""Containers: one for each sandbox, on any engine that speaks Docker's API, with any runtime that it has.

`engine` talks to the daemon and says in one sentence what is wrong with it, `enforcement` decides whether it can hold a
policy, `configuration` turns the policy into a container's (with `profile`, the filter of system calls), `delivery` is
how the guest gets inside, `container` starts one, `bridge` carries its runs over the attached stream, `pool` keeps some
started ahead, `backend` is the door.
"""

from fumehood.backends.docker.backend import DockerBackend

__all__ = ["DockerBackend"]
