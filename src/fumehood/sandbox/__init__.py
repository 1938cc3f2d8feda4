"""The sandbox as callers see it: opens a backend's sandbox under a policy, runs code in it, and records what happens.

`async_sandbox` has the async facade and `blocking` the blocking one; the other modules are what a run goes through.
"""
