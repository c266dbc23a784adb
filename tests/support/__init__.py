"""Oracles, generators of programs and runners that tests share, in rooms like those of collir.

harness/: seeds, patience with what hangs, lit files and browsers; programs/: random and small
programs; the others are named for the folder of collir/ that they test.
"""
