"""Symbolic execution: programs on expressions for all elements of all devices at once."""
