"""Containers: one for each sandbox, on any engine that speaks Docker's API, with any runtime that it has.

`engine` talks to the daemon (`ssh` is one way to it, `troubles` says what is wrong with it), `reference` knows which
image a policy means, `mounts` whom programs run as for their sake, `enforcement` decides whether a policy can be held,
`configuration` turns it into a container's (with `profile`, the filter of system calls), `delivery` is how the guest
gets inside, `interpreter` what it runs on where the image has no Python, `container` starts one, `bridge` carries its
runs over the attached stream, `pool` keeps some started ahead, `backend` is the entry point.
"""

from fumehood.backends.docker.backend import DockerBackend

__all__ = ["DockerBackend"]
