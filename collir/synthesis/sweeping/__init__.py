"""Sweeps: the configurations of a training step on machines, and which of them is the fastest."""
