"""Attention of which each device has a block, computed around a ring."""
