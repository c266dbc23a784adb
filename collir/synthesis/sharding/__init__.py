"""Sharding: the layouts of all values of a function that make it fastest, by exact search."""
