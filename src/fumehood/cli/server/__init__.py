"""`hood serve` and the commands of those who run a server: tenants, keys and quotas."""
