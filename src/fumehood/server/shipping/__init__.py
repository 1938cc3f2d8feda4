"""Audit records for other systems: syslog, OCSF, webhooks. Each chain of this host goes to each sink that wants it.

Owns what a sink has got so far (a cursor on the disk for each sink and chain) and how records look there. It reads
chains as any reader does, in threads of its own: no request and no run waits for a sink. What a sink has not confirmed
is sent again, so each record gets there at least once, and its number shows which came twice.
"""
