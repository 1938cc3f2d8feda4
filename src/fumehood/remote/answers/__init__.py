"""What the half that has the sandbox answers to each call. One conversation is one call."""
