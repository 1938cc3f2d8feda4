"""Backends make sandboxes. Each meets the same interface (`interface`) and the same contract tests.

Owns how a policy is enforced on one kind of isolation, and the pumping of a run's bytes. Must not know who calls:
no command line, no agents, no audit.
"""
