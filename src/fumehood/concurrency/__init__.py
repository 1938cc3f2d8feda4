"""Event loops in threads, and threads that a cancelled task does not leave behind."""
