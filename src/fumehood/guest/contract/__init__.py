"""What the host and the guest agree on: messages, specifications, paths, limits and system call rules.

The only part of the guest that the host imports. Nothing here acts.
"""
