"""Costs as formulas of the parameters of functions and of the sizes of axes.

``opening`` gives a program open sizes and simulates it, so that the numbers of its steps are
formulas. ``times``, ``sent`` and ``memory`` make expressions of sympy of them, ``costs`` those of a
function, and ``function`` a function over arrays.
"""
