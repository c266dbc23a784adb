"""Costs as formulas of the parameters of functions, the sizes of axes and constants of the machine.

``opening`` gives a program open sizes and simulates it, so that the numbers of its steps are
formulas. ``times``, ``sent`` and ``memory`` make expressions of sympy of them, with the symbols of
``constants``; ``costs`` makes those of a function, and ``function`` a function over arrays.
``levels`` divides the time of a collective among the levels of the machine.
"""
