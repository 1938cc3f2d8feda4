"""Attacks. A package, so that containers can be shared by all of them."""
