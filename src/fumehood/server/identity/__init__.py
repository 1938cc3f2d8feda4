"""Who makes a request: keys and tokens in, a principal out. Knows nothing of what is asked for."""
