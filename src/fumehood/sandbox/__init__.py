"""The sandbox as callers see it: opens a backend's sandbox under a policy, runs code in it, and records what happens.

`async_sandbox` has the facade, `core` what its parts share; the other modules are parts, and what a run goes
through.
"""
