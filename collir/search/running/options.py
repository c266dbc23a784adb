"""The options of a search."""

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from collir.search.core.coordination import COORDINATIONS, Coordination
from collir.search.core.plan import ORDERS, Order
from collir.search.core.problem import SearchError, check_whole
from collir.search.engines.base import SearchEngine
from collir.search.running.results import Solution

EngineName = Literal["auto", "local", "processes", "threads", "mpi"]
ENGINES: tuple[EngineName, ...] = ("auto", "local", "processes", "threads", "mpi")


class Options(TypedDict, total=False):
    """The options of a search. By default it runs alone in this process, to the end.

    Attributes:
        order: ``depth-first`` (branch and bound) or ``best-first``, the best bound next (A*).
        coordination: the division into tasks, or its name as in ``collir search``, such as
            ``budget`` or ``ordered=3``. By default ``Budget()`` if there are several workers.
        workers: the number of workers; None: the number of available cores. By default 1.
        engine: the place of the workers: ``local`` (this process, in turns), ``processes``,
            ``threads`` (useful for kernels, which release the interpreter lock), ``mpi``, an engine
            object (which can serve many searches), or an ``Executor``. ``auto``: this process, and
            separate processes once the search has taken long enough for them to pay.
        seed: the seed of the turns of ``local``.
        depth_limit: nodes at this depth have no children.
        time_limit, node_limit, memory_limit: seconds, nodes, bytes after which the best solution so
            far is returned, as after SIGINT.
        progress: whether to show progress on stderr; None: if stderr is a terminal.
        checkpoint: a file that is written at intervals, and at the end of a search that a limit or
            an exception ended.
        checkpoint_every: seconds between two checkpoints. By default 30.
        resume: a checkpoint to go on with. It is a pickle: only read files that you trust.
        profile: whether to count nodes for each depth.
        check: whether to search the complete tree first, without pruning, for a wrong bound, order
            of children, key or objective; the error names the node.
        on_solution: a function that is called with each solution that is better than all before (of
            ``k_best``: that is among the best so far), in the process that called the search, and
            on rank 0 of MPI. Its exceptions end the search.
        slice: nodes that a worker visits between two looks at the board; None: 2 ms of them.
    """

    order: Order
    coordination: Coordination | str | None
    workers: int | None
    engine: SearchEngine | Executor | EngineName
    seed: int
    depth_limit: int | None
    time_limit: float | None
    node_limit: int | None
    memory_limit: int | None
    progress: bool | None
    checkpoint: str | Path | None
    checkpoint_every: float
    resume: str | Path | None
    profile: bool
    check: bool
    slice: int | None
    on_solution: Callable[[Solution[Any]], object] | None


def check_options(options: Options) -> None:
    """Check the options.

    Raises:
        SearchError: an option has a wrong value, or is unknown.
    """
    for name, value in options.items():
        if name not in Options.__annotations__:
            raise SearchError(f"there is no option {name!r}: {', '.join(Options.__annotations__)}")
        if value is None:
            continue
        if name in ("workers", "slice", "depth_limit", "node_limit", "memory_limit"):
            check_whole(name, value, 1 if name in ("workers", "slice") else 0)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name in ("time_limit", "checkpoint_every") and not number:
            raise SearchError(f"{name} must be a number of seconds, not {value!r}")
        if name == "checkpoint_every" and not cast(float, value) >= 0:
            raise SearchError(f"checkpoint_every must not be below 0, as {value} is")
    if not callable(options.get("on_solution") or print):
        raise SearchError(f"on_solution is a function, not {options.get('on_solution')!r}")
    order: object = options.get("order", "depth-first")
    if order not in ORDERS:
        raise SearchError(f"the order is one of {', '.join(ORDERS)}, not {order!r}")
    coordination = cast(object, options.get("coordination"))
    if coordination is not None and not isinstance(coordination, Coordination | str):
        known = ", ".join(COORDINATIONS)
        raise SearchError(
            f"a coordination is one of {known}, or made, such as Budget(), not {coordination!r}"
        )
    engine: object = options.get("engine", "auto")
    made = hasattr(engine, "submit") and not isinstance(engine, type)
    if not (engine in ENGINES if isinstance(engine, str) else made):
        names = ", ".join(ENGINES)
        raise SearchError(f"the engine is one of {names}, or made before, not {engine!r}")
