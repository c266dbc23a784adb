"""What every later stage asks of a module: functions, checks, names, types, buffers, diagnostics.

Imports run one way: machine, layout and dialects are below, the text of ``syntax`` is above.
"""
