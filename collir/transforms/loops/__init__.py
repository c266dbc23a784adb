"""Loops as other programs that mean the same: unrolled, cut in two, rotated, joined."""
