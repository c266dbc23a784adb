"""Algorithms of collectives that other tools write."""
