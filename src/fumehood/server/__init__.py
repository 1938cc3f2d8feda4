"""`hood serve`: sandboxes of this host for many tenants, over HTTP.

Owns who somebody is and to which tenant they belong, which policies a tenant has, what it may use and has used, and
which sandboxes are open for it. How a sandbox is spoken to is `remote`; what happens in it is `sandbox`.
"""
