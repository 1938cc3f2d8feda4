"""Machines: one for each sandbox, with a kernel of its own, in a QEMU that is itself in a native sandbox.

`machine` describes one as QEMU's command line, `acceleration` tries whether it runs by hardware, `image` is what it
boots, `template` boots it once and keeps its memory and its state, `clone` continues from there with a machine of its
own for each sandbox. `launch` starts QEMU for both, in `confinement`, the native sandbox around it; `qmp` controls it.
`disks` are packages as file systems, `start` is what the guest is told, `enforcement` decides whether a policy
can be held, `backend` is what callers use. What goes over a machine's stream is `backends.relay`'s.
"""

from fumehood.backends.microvm.backend import MicroVMBackend

__all__ = ["MicroVMBackend"]
