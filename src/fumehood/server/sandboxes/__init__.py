"""Sandboxes that are open for tenants: who opened them, how long they live, and how each ended."""
