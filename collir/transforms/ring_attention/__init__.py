"""Attention on blocks of the sequence, computed around a ring of devices."""
