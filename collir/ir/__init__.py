"""Questions that every later stage asks of a module: functions, checks, names, types, buffers.

Imports run one way: machine, layout and dialects are below, the text of ``syntax`` is above, and
what changes programs is in ``transforms``.
"""
