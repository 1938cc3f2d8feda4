"""The host's end of a guest behind one byte stream, whatever the guest is in: a container or a machine of its own.

`bootstrap` is how the guest's code gets inside over that stream, `bridge` carries runs over it, `egress` and `ingress`
their connections, `link` is what `GuestSandbox` sends requests to, `pool` keeps some guests started ahead, `loop` is
the event loop that all of it lives in. Must not know what starts a guest, or what holds it.
"""
