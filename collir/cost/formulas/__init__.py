"""Costs as formulas of the parameters of functions and of the sizes of axes.

``opening`` gives a program open sizes, and simulates it: the numbers of its steps are formulas then.
``times`` and ``memory`` make times and peaks of them, as expressions of sympy, ``costs`` those of a
function, and ``compiled`` functions over arrays.
"""
