"""The embedded backend: Linux namespaces, Landlock, seccomp, cgroups and limits; no daemon, no root needed.

`machine` finds out what this computer can do, `enforcement` decides whether that is enough for a policy, `blueprint`
turns the policy into what a cell is told, `embryos` starts what becomes one, `cells` keeps warm cells, `backend` is the
door.
"""
