"""The sandbox as callers see it: opens a backend's sandbox under a policy, runs code in it, and records what happens.

`sandbox` has the async facade and `sync` the blocking one; the other modules are what a run goes through.
"""
