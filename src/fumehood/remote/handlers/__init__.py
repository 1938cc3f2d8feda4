"""Handlers of a client's calls, at the end that has the sandbox. One conversation is one call."""
