"""Workers of a cluster as the server sees them: which there are, where a sandbox is opened, and when one is lost.

Owns placement on other hosts, the queue of openings that wait for one, and the connection to the cluster. Knows nothing
of HTTP, keys or quotas: what is opened was admitted before.
"""
