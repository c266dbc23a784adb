"""Execution traces of Chakra: those of all ranks, and the program that they are of."""
