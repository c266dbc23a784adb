"""Execution traces of Chakra: the traces of all ranks, and the program that ran."""
