"""Algorithms of collectives: what every rank does with each chunk of its buffers."""
