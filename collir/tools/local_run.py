"""Runs of programs of ranks, all in one process, in orders that are drawn."""

import random
import time
from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from collir.dialects.local import local_functions
from collir.localize.localize import localize
from collir.semantics.local.executor import execute_local
from collir.semantics.reference.collectives import Buffers
from collir.tools.processes import Call, Outcome


def run(module: ModuleOp, calls: Sequence[Call]) -> list[Outcome]:
    """Run functions of a module at the local level.

    Returns: for every function its results, with None on ranks that hold none, and the seconds.

    Raises:
        DiagnosticError: a function is not lowered.
        LocalError: a rank does what it must not do.
    """
    lowered = module.clone()
    localize(lowered)
    functions = {function.sym_name.data: function for function in local_functions(lowered)}
    outcomes: list[Outcome] = []
    for number, (function, arguments) in enumerate(calls):
        held: list[Buffers] = [list(buffers) for buffers in arguments]
        start = time.perf_counter()
        results = execute_local(functions[function.sym_name.data], held, random.Random(number))
        outcomes.append((results, time.perf_counter() - start))
    return outcomes
