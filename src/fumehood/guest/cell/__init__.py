"""A cell: the process that keeps runs on standby and watches over those that are under way."""
