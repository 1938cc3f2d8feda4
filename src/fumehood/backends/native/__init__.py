"""The embedded backend: Linux namespaces, Landlock, seccomp, cgroups and limits; no daemon, no root needed.

`host_facts` detects what this computer supports, `enforcement` decides whether that is enough for a policy, `cell_spec`
builds a cell's specification from the policy, `prestart` starts its process, `cells` keeps warm cells, `backend` is the
entry point.
"""
