"""The kernel's mechanisms that isolate a run: namespaces, mounts, users, cgroups, Landlock, seccomp."""
