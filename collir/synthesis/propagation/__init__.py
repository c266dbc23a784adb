"""Layouts for the values of ``auto`` functions, and the programs that have them."""
