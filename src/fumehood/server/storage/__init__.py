"""What a server remembers: tenants, keys, policies, sandboxes, usage. One set of statements for two databases.

`database.py` is what both offer, `sqlite.py` and `postgres.py` are the two, `schema.py` has the tables. The statements
are with what they are about: in `identity`, `tenants`, `sandboxes`. Every table has the tenant in its primary key, and
every statement names it; PostgreSQL checks it a second time.
"""
