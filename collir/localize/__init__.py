"""The lowering from global types to the program of a rank.

All decisions of a rank are made here, once: which blocks are packed, where values lie in memory and
until when, and which collectives are under way while others run.
"""
