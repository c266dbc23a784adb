"""The lowering from global types to what a rank does.

Everything that a rank has to decide is decided here, once: which blocks are packed, where values
lie in memory and until when, which collectives are under way while others run.
"""
