"""Exact search of trees: one problem, any order, any division of work, any engine.

>>> from collir.search import optimise
>>> from collir.problems.knapsack import Knapsack
>>> optimise(Knapsack([60, 100, 120], [10, 20, 30], 50)).best.value
220
"""

from collir.search.core.checked import check
from collir.search.core.coordination import (
    Budget,
    Coordination,
    DepthBounded,
    Ordered,
    Sequential,
    StackStealing,
)
from collir.search.core.goals import Collect, Fold, Nodes, NodesByDepth, Solutions
from collir.search.core.problem import Dive, Kernel, Problem, SearchError
from collir.search.engines.base import SearchEngine
from collir.search.engines.futures import Futures
from collir.search.engines.local import Local
from collir.search.engines.mpi import Mpi
from collir.search.engines.processes import Processes
from collir.search.engines.threads import Threads
from collir.search.running.api import decide, enumerate_tree, k_best, optimise
from collir.search.running.options import Options
from collir.search.running.profiling import recommend
from collir.search.running.results import (
    Decision,
    Enumeration,
    Optimum,
    SearchOutcome,
    Solution,
    Statistics,
    so_far,
)

enumerate = enumerate_tree  # the name before, which hides the builtin function

__all__ = [
    "Budget",
    "Collect",
    "Coordination",
    "Decision",
    "DepthBounded",
    "Dive",
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
    "Problem",
    "Processes",
    "SearchEngine",
    "SearchError",
    "SearchOutcome",
    "Sequential",
    "Solution",
    "Solutions",
    "StackStealing",
    "Statistics",
    "Threads",
    "check",
    "decide",
    "enumerate_tree",
    "k_best",
    "optimise",
    "recommend",
    "so_far",
]
