"""The engine on the ranks of an MPI job: rank 0 divides the search, the others run it.

Every rank makes the same call and gets the same outcome. Tasks and reports are messages. The board
is cells that each rank holds and other ranks write (RMA): a better cut needs no message, and a
worker that prunes by it reads its own memory.

The loss of a rank ends the search: MPI cannot replace it. Most launchers then end the whole job
themselves: MPICH's kills all ranks at once, with a status that is not 0 and without a signal that
could be caught; the last checkpoint stays. Where the other ranks survive, they notice the loss
(within a second on one machine; elsewhere when MPI fails to reach the rank, or after ``patience``),
and all ranks raise an error that names the lost rank.
"""

import os
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from collir.search.core.board import CUT, LAST, STOP, WANTED, Board, cell_count
from collir.search.core.plan import SearchPlan
from collir.search.core.problem import SearchError
from collir.search.core.tasks import SearchTask, WorkerError
from collir.search.engines.base import Event
from collir.search.engines.local import Local
from collir.search.engines.memory import resident
from collir.search.engines.mpi_link import PATIENCE, Link, LostRankError, Pause, mpi
from collir.search.engines.mpi_worker import RankWorker, ignored_interrupts

if TYPE_CHECKING:
    from mpi4py import MPI

Result = TypeVar("Result")


LAUNCHERS = (
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, Slurm with PMI-2
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
)
"""The variables by which launchers tell a process its rank and the number of ranks."""


def launched() -> bool:
    """Return whether a launcher started this process as one of several ranks; MPI is not used."""
    return _place() is not None


def leads() -> bool:
    """Return whether this process prints for the job: it is rank 0, or alone; MPI is not used."""
    return not _place()


def _place() -> int | None:
    """Return the rank of this process; None if it is alone."""
    for rank, ranks in LAUNCHERS:
        values = os.environ.get(rank, ""), os.environ.get(ranks, "")
        if all(map(str.isdecimal, values)) and int(values[1]) > 1:
            return int(values[0])
    return None


def world_size() -> int:
    """Start MPI, and return the number of ranks of this job.

    Raises:
        SearchError: mpi4py or MPI is missing.
    """
    return mpi().COMM_WORLD.size


def agree(error: str | None) -> tuple[int, str] | None:
    """Return the first rank with an error and the error; all ranks of a job must call this.

    Raises:
        SearchError: mpi4py or MPI is missing.
    """
    try:
        errors = mpi().COMM_WORLD.allgather(error)
    except mpi().Exception as failed:
        raise SearchError(f"a rank was lost before the search began: {failed}") from failed
    return next(((rank, text) for rank, text in enumerate(errors) if text is not None), None)


class Mpi:
    """Workers as the ranks of MPI except rank 0; a rank that is alone works itself.

    All ranks make, use and close an engine together; one program may have several engines.

    Args:
        comm: the communicator; None: all ranks of the job.
        patience: seconds without a sign of life after which a rank on another machine counts as
            lost. A rank gives no sign while it handles a single node.

    Attributes:
        rank: the rank of this process.

    Raises:
        SearchError: mpi4py or MPI is missing.
    """

    durable = False

    def __init__(self, comm: "MPI.Comm | None" = None, patience: float = PATIENCE):
        world: MPI.Comm = mpi().COMM_WORLD if comm is None else comm
        self.rank = world.rank
        self.workers = max(1, world.size - 1)
        self._others = range(1, world.size)
        self._search = 0
        self._running = False
        self._alone: Local | None = None
        self._link: Link | None = None
        if world.size == 1:
            self._alone = Local()
            self.board = self._alone.board
        else:
            self._link = Link(world, cell_count(self.workers), patience)
            self.board = _RankBoard(self._link, self.workers)
            self._link.meet()

    def __enter__(self) -> "Mpi":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def together(self, search: Callable[[], Result]) -> Result:
        """Run a search on rank 0 while the other ranks work; return its result on all ranks.

        Raises:
            SearchError: on all ranks, after an error on any rank (rank 0 raises the error itself).
        """
        if self._alone is not None:
            return search()
        if self.rank == 0:
            return self._lead(search)
        with ignored_interrupts():
            kind, content = RankWorker(self._open(), self.board).serve()
        if kind == "done":
            return pickle.loads(content)
        if kind == "lost":
            self._open().broken(content[1])
            raise LostRankError(*content)
        raise SearchError(content)

    def _lead(self, search: Callable[[], Result]) -> Result:
        try:
            result = search()
            data = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        except LostRankError as error:
            with suppress(LostRankError):  # another one
                self._tell("lost", (str(error), error.rank))
            raise
        except BaseException as error:
            named = isinstance(error, SearchError)
            self._tell(
                "failed", str(error) if named else f"rank 0 raised {type(error).__name__}: {error}"
            )
            raise
        self._tell("done", data)
        return result

    def _tell(self, kind: str, content: object) -> None:
        """Tell all other ranks how the search has ended."""
        link = self._open()
        link.send((rank for rank in self._others if rank != link.lost), (kind, 0, content))
        if link.lost is None:
            link.settle(silence=False)

    def _open(self) -> Link:
        if self._link is None:
            raise SearchError("this engine has been closed")
        return self._link

    # The engine, on rank 0.

    def start(self, plan: SearchPlan) -> None:
        """Prepare the workers for a search."""
        if self._alone is not None:
            self._alone.start(plan)
            return
        data = plan.packed()
        if self._running:  # an exception left the last search
            self.stop()
        self._search += 1
        self._running = True
        link = self._open()
        link.shut = False
        link.listen()
        link.send(self._others, ("plan", self._search, data))

    def submit(self, worker: int, tasks: list[tuple[int, SearchTask]]) -> None:
        """Send tasks to a worker."""
        if self._alone is not None:
            self._alone.submit(worker, tasks)
            return
        try:
            self._open().send((worker + 1,), ("tasks", self._search, tasks))
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise SearchError(f"nodes cannot be sent to other ranks: {error}") from error

    def wait(self, seconds: float) -> list[Event]:
        """Return the events that have come from the workers."""
        if self._alone is not None:
            return self._alone.wait(seconds)
        link, pause = self._open(), Pause()
        end = time.monotonic() + seconds
        events: list[Event] = []
        while not events:
            while (message := link.receive()) is not None:
                rank, (kind, search, content) = message
                if search != self._search:
                    continue
                if kind == "error":
                    raise WorkerError(content)
                events.append(Event(rank - 1, content))
                if len(events) > self.workers:
                    break
            self._go_on(link)
            if time.monotonic() >= end:
                break
            if not events:
                pause()
        return events

    def _go_on(self, link: Link) -> None:
        """Keep pending messages going, give a sign of life, and check for lost ranks."""
        link.sent()
        link.beat(self._others)
        link.look()

    def stop(self) -> list[Event]:
        """End the search, wait for the nodes that workers are at, and return the last events."""
        if self._alone is not None:
            return self._alone.stop()
        link, pause = self._open(), Pause()
        if link.lost is not None:
            return []
        self.board.set(STOP, self._search)
        link.send(self._others, ("stop", self._search, None))
        events: list[Event] = []
        waiting = set(self._others)
        while waiting:
            self._go_on(link)
            if (message := link.receive()) is None:
                pause()
                continue
            rank, (kind, search, content) = message
            if search != self._search or kind == "error":
                continue
            events.append(Event(rank - 1, content))
            if kind == "stopped":
                waiting.discard(rank)
        for cell, value in ((CUT, float("inf")), (WANTED, 0.0), (LAST, float("inf"))):
            link.write(cell, value)  # for the next search, while no rank searches
        link.written()
        self._running = False
        link.shut = True
        return events

    def close(self) -> None:
        """Free the resources of MPI, unless a rank is lost, which would never join in."""
        if self._link is None:
            return
        link, self._link = self._link, None
        self.board = Board(self.workers)
        if link.lost is None:
            link.close()

    def memory(self) -> int:
        """Return the bytes of memory of this rank and the other ranks on its machine."""
        others = self._link.pids if self._link is not None else {}
        return resident(pid for rank, pid in others.items() if rank != self.rank)


class _RankBoard(Board):
    """The cells of this rank; writes go to the cells of all ranks."""

    def __init__(self, link: Link, workers: int):
        self._link = link
        super().__init__(workers, link.cells)

    def publish(self, cut: float) -> None:
        """Lower the cut of all ranks."""
        if cut < self.cells[CUT] and not self._link.shut:
            self._link.lower(CUT, cut)

    def set(self, cell: int, value: float) -> None:
        """Write a cell of all ranks."""
        if self.cells[cell] != value and not self._link.shut:
            self._link.write(cell, value)
