"""What isolation works on this machine, found out by trying, and what to do about the rest.

`checks` asks the kernel in a process of its own and judges each answer, `cgroups` looks at controllers, `diagnosis` is
the result as data, with reasons and fixes. Showing it is for the caller.
"""

from fumehood.backends.native.doctor.checks import examine
from fumehood.backends.native.doctor.diagnosis import Diagnosis, MechanismCheck, MechanismState

__all__ = ["Diagnosis", "MechanismCheck", "MechanismState", "examine"]
