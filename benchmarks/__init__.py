"""Measurements against other people's software: `make bench` prints all of them as one table."""
