"""Exact search of trees: one problem, any order, any division of work, any engine.

>>> from collir.search import optimise
>>> from collir.search.problems.knapsack import Knapsack
>>> optimise(Knapsack([60, 100, 120], [10, 20, 30], 50)).best.value
220
"""

from collir.search.api import decide, k_best, optimise
from collir.search.api import enumerate as enumerate
from collir.search.checked import check
from collir.search.coordination import (
    Budget,
    Coordination,
    DepthBounded,
    Ordered,
    Sequential,
    StackStealing,
)
from collir.search.engines.base import Engine
from collir.search.engines.futures import Futures
from collir.search.engines.local import Local
from collir.search.engines.mpi import Mpi
from collir.search.engines.processes import Processes
from collir.search.engines.threads import Threads
from collir.search.goals import Collect, Fold, Nodes, NodesByDepth, Solutions
from collir.search.options import Options
from collir.search.problem import Dive, Kernel, Problem, SearchError
from collir.search.profiling import recommend
from collir.search.results import (
    Decision,
    Enumeration,
    Optimum,
    Outcome,
    Solution,
    Statistics,
    so_far,
)

# Without `enumerate`, which `import *` would put in the place of the builtin function.
__all__ = [
    "Budget",
    "Collect",
    "Coordination",
    "Decision",
    "DepthBounded",
    "Dive",
    "Engine",
    "Enumeration",
    "Fold",
    "Futures",
    "Kernel",
    "Local",
    "Mpi",
    "Nodes",
    "NodesByDepth",
    "Optimum",
    "Options",
    "Ordered",
    "Outcome",
    "Problem",
    "Processes",
    "SearchError",
    "Sequential",
    "Solution",
    "Solutions",
    "StackStealing",
    "Statistics",
    "Threads",
    "check",
    "decide",
    "k_best",
    "optimise",
    "recommend",
    "so_far",
]
