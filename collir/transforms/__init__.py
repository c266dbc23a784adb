"""Rewrites that need no cost: gradients, loops, microbatches, stages, and functions of other sizes.

Each takes a module to one that means the same. The passes that people name are in ``passes/``.
"""
