"""`hood cluster`, `hood worker` and `hood workers`: sandboxes on many hosts."""
