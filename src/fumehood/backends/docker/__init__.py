"""Containers: one for each sandbox, on any engine that speaks Docker's API, with any runtime that it has.

`engine` is the connection to the daemon (`ssh` is one way to it, `errors` explains what is wrong with it),
`labels` knows which image a policy means, `users` and `mounts` which user programs run as, `enforcement`
decides whether a policy can be held, `configuration` turns it into a container's (with `profile`, the filter of system
calls, and `labels`), `interpreter` is what the guest runs on where the image has no Python, `container` starts one,
whose stream `backends.relay` uses, `gc` removes what dead owners left, `backend` is what callers use.
"""

from fumehood.backends.docker.backend import DockerBackend

__all__ = ["DockerBackend"]
