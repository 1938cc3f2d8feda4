"""What isolation works on this machine, found out by trying, and what to do about the rest.

`probing` asks the kernel in a process of its own, `mechanisms` says what each answer means, `remedies` knows reasons
and fixes, `controllers` looks at cgroups. All of it ends as data; showing it is for the caller.
"""

from fumehood.backends.native.doctor.diagnosis import Check, Condition, Diagnosis
from fumehood.backends.native.doctor.examination import examine

__all__ = ["Check", "Condition", "Diagnosis", "examine"]
