"""Which system calls programs may make, as data: the guest's filter and the engine's profile are made from it."""
