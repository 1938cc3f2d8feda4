"""What belongs to a tenant: its policies, its quotas, what it has used, its secrets."""
