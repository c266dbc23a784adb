"""Functions on eight devices in three axes."""

from support.semantics.checks import functions_of
from xdsl.dialects.func import FuncOp

import collir

CUBE = """
machine @box { level gpu[8] { port = 8 GB/s, latency = 3 us } }
mesh @m on @box { x = gpu:2, y = gpu:2, z = gpu:2 }
"""


def function_on_cube(text: str) -> FuncOp:
    """Return a function on eight devices, in three axes."""
    (function,) = functions_of(collir.parse(CUBE + text))
    return function
