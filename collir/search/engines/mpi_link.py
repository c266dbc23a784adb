"""The connection between the ranks of MPI: messages, shared cells, and signs of life.

Nothing waits inside MPI, which would occupy a core: a request that is not complete is tested again
after a pause. The first import of mpi4py starts MPI, so it is done when a link is made.
"""

import atexit
import os
import pickle
import struct
import sys
import time
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

from collir.search.core.problem import SearchError

if TYPE_CHECKING:
    from mpi4py import MPI

TAG = 7
"""The tag of all messages; the communicator is used for nothing else."""

SHORTEST, LONGEST = 2e-5, 2e-3
"""Seconds of the shortest and the longest pause between two tests of a request."""

LONG = 65536
"""Bytes from which on a message may take a while to arrive."""

BEAT = 0.1
"""Seconds between two signs of life."""

LOOK = 1.0
"""Seconds between two checks of the other ranks."""

PATIENCE = 300.0
"""Seconds without a sign of life after which a rank on another machine counts as lost."""


class LostRankError(SearchError):
    """The loss of a rank, which has ended or is silent: a search on these ranks cannot go on."""

    def __init__(self, message: str, rank: int = 0):
        super().__init__(message)
        self.rank = rank


class Pause:
    """A pause that gets longer the longer nothing has happened."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Make the next pause short, because something has happened."""
        self._since = time.monotonic()

    def __call__(self) -> None:
        waited = time.monotonic() - self._since
        time.sleep(min(max(waited / 8, SHORTEST), LONGEST))


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _names_lost_rank(
    method: "Callable[Concatenate[Link, Parameters], Result]",
) -> "Callable[Concatenate[Link, Parameters], Result]":
    """Turn an error of MPI, raised by a call that needs a lost rank, into a LostRankError.

    MPI may crash at the next call that involves the rank, so none is made after the error.
    """

    @wraps(method)
    def call(self: "Link", *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return method(self, *args, **kwargs)
        except self.error as error:
            text = f"MPI cannot reach it ({str(error).strip().splitlines()[-1]})"
        return self.lose(self.unreachable(), text)

    return call


class Link:
    """A rank's end of the connection; all ranks make it and close it together.

    Args:
        comm: the communicator of the ranks.
        cells: the number of cells (float64) that each rank holds and all ranks can write.
        patience: see ``PATIENCE``.
    """

    def __init__(self, comm: "MPI.Comm", cells: int, patience: float = PATIENCE):
        self._mpi = mpi()
        self._comm = comm.Dup()
        self.rank, self.ranks = self._comm.rank, self._comm.size
        self.error: type[Exception] = self._mpi.Exception
        self.lost: int | None = None
        """The lost rank, if any; from then on, no call of MPI that needs it is made."""
        self._peer: int | None = None  # the rank that the current call of MPI involves
        self._sending: list[tuple[MPI.Request, bytes, int]] = []
        self._writing: list[tuple[MPI.Request, bytes, int]] = []
        self._window = self._mpi.Win.Allocate(8 * (cells + self.ranks), 8, comm=self._comm)
        self._cells = memoryview(self._window.tomemory()).cast("B").cast("d")
        for cell in range(len(self._cells)):
            self._cells[cell] = 0.0
        self.cells = self._cells[:cells]
        self._window.Lock_all(self._mpi.MODE_NOCHECK)
        self._patience = patience
        self._beats = 0
        self.shut = False
        """True between searches: cells stay unwritten then, as the next search would read them."""

    @_names_lost_rank
    def meet(self) -> None:
        """Learn where all ranks are; no rank writes cells before all ranks have called this."""
        self.pids, self._heard = dict[int, int](), dict[int, tuple[float, float]]()
        here = _place(self._mpi.Get_processor_name())
        met = self._comm.allgather((here, os.getpid()))
        self.pids = {rank: pid for rank, (place, pid) in enumerate(met) if place == here}
        """The process ids of the ranks on this machine, including this rank."""
        self._looked = self._beaten = time.monotonic()
        self.listen()

    # Messages.

    @_names_lost_rank
    def send(self, ranks: Iterable[int], message: object) -> None:
        """Send a message without waiting until it has arrived."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        for self._peer in ranks:
            request = self._comm.Isend((data, self._mpi.BYTE), self._peer, TAG)
            if not request.Test():
                self._sending.append((request, data, self._peer))
        self._peer = None

    @_names_lost_rank
    def sent(self) -> bool:
        """Return whether all messages have left, and let MPI go on with the others."""
        if self._writing:
            self._writing = self._unfinished(self._writing)
        if self._sending:
            self._sending = self._unfinished(self._sending)
        return not self._sending

    def _unfinished(
        self, requests: "list[tuple[MPI.Request, bytes, int]]"
    ) -> "list[tuple[MPI.Request, bytes, int]]":
        """Return the requests that are not done."""
        rest: list[tuple[MPI.Request, bytes, int]] = []
        for request, data, self._peer in requests:
            if not request.Test():
                rest.append((request, data, self._peer))
        self._peer = None
        return rest

    @_names_lost_rank
    def receive(self) -> tuple[int, Any] | None:
        """Return the next message and the rank that sent it; None if there is none."""
        status = self._mpi.Status()
        message = self._comm.Improbe(self._mpi.ANY_SOURCE, TAG, status)
        if message is None:
            self._window.Sync()  # makes the writes of other ranks visible
            return None
        data = bytearray(status.Get_count(self._mpi.BYTE))
        if len(data) <= LONG:
            message.Recv((data, self._mpi.BYTE))
        else:
            request, pause = message.Irecv((data, self._mpi.BYTE)), Pause()
            while not request.Test():
                self.look()
                pause()
        return status.Get_source(), pickle.loads(data)

    # Cells.

    @_names_lost_rank
    def lower(self, cell: int, value: float) -> None:
        """Lower a cell of all ranks to a value, where the cell is greater."""
        self._write(range(self.ranks), cell, value, self._mpi.MIN)
        self._window.Flush(self.rank)

    @_names_lost_rank
    def write(self, cell: int, value: float) -> None:
        """Write a cell of all ranks. Two writes of the same rank arrive in order."""
        self._write(range(self.ranks), cell, value, self._mpi.REPLACE)
        self._window.Flush(self.rank)

    def _write(self, ranks: Iterable[int], cell: int, value: float, how: "MPI.Op") -> None:
        data = struct.pack("d", value)
        for self._peer in ranks:
            # Not flushed: on another machine, a flush waits until that rank calls MPI.
            target = self._peer, (cell, 1)
            request = self._window.Raccumulate((data, self._mpi.DOUBLE), *target, how)
            if not request.Test():
                self._writing.append((request, data, self._peer))
        self._peer = None

    @_names_lost_rank
    def written(self) -> None:
        """Wait until all writes have arrived."""
        self._window.Flush_all()

    # Signs of life.

    def listen(self) -> None:
        """Expect signs of life of the ranks on other machines from now on."""
        now = time.monotonic()
        elsewhere = set(range(self.ranks)) - {self.rank, *self.pids}
        self._heard = dict.fromkeys(elsewhere, (-1.0, now))

    @_names_lost_rank
    def beat(self, ranks: Iterable[int], cell: int | None = None, due: bool = False) -> None:
        """Give other ranks a sign of life, if it is time, together with a cell of this rank.

        Args:
            due: whether to give it now, whatever the clock says.
        """
        now = time.monotonic()
        if now - self._beaten < BEAT and not due:
            return
        self._beaten = now
        self._beats += 1
        self._write(ranks, len(self.cells) + self.rank, self._beats, self._mpi.REPLACE)
        if cell is not None:
            self._write(ranks, cell, self.cells[cell], self._mpi.REPLACE)

    def look(self, silence: bool = True, everyone: bool = False) -> None:
        """Check the other ranks, if it is time: rank 0 checks all, the others check rank 0.

        Args:
            silence: whether ranks on other machines must give signs of life.
            everyone: whether every rank checks every rank.

        Raises:
            LostRankError: a rank is lost.
        """
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        watched = range(self.ranks) if everyone or not self.rank else (0,)
        for rank, pid in self.pids.items():
            if rank != self.rank and rank in watched and not _alive(pid):
                self.lose(rank, f"its process ({pid}) has ended")
        if not silence:
            self.listen()
        for rank, (beat, since) in self._heard.items():
            if (new := self._cells[len(self.cells) + rank]) != beat:
                self._heard[rank] = new, now
            elif rank in watched and now - since > self._patience:
                self.lose(rank, f"it has given no sign of life for {self._patience:g} s")

    def unreachable(self) -> int:
        """Return the rank that a call to MPI has failed to reach.

        If the call involves all ranks, this is a rank whose process has ended, or the rank that has
        been silent for longest; a worker hears of rank 0 only.
        """
        if self._peer is not None:
            return self._peer
        ended = (rank for rank, pid in self.pids.items() if not _alive(pid))
        heard = [(since, rank) for rank, (_, since) in self._heard.items() if not self.rank]
        return next(ended, min(heard, default=(0.0, int(not self.rank)))[1])

    def lose(self, rank: int, why: str) -> NoReturn:
        """Give up a rank.

        Raises:
            LostRankError: the rank is lost.
        """
        self.broken(rank)
        raise LostRankError(f"rank {rank} of {self.ranks} is lost: {why}", rank)

    def broken(self, lost: int) -> None:
        """Abort the whole job when this process ends, since MPI cannot finalize without a rank.

        Rank 0 aborts at once. Another rank waits for rank 0 to do so, unless rank 0 is lost.
        """
        self.lost, self.shut = lost, True
        atexit.unregister(_abort)
        if self.rank and lost:
            atexit.register(_abort, self.pids.get(0), self._patience)
        else:
            atexit.register(_abort, None, 0.0)

    # The end.

    def settle(self, silence: bool = True) -> None:
        """Wait until all messages have left."""
        pause = Pause()
        while not self.sent():
            self.look(silence)
            pause()

    @_names_lost_rank
    def close(self) -> None:
        """Free all resources, once all ranks have called this.

        Raises:
            LostRankError: a rank is lost.
        """
        request, pause = self._comm.Ibarrier(), Pause()
        while not (self.sent() and not self._writing and request.Test()):
            self.look(silence=False, everyone=True)
            pause()
        self._window.Unlock_all()
        self._window.Free()
        self._comm.Free()


def mpi() -> Any:
    """Return the module ``mpi4py.MPI``.

    Raises:
        SearchError: mpi4py is missing, or finds no MPI.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise SearchError(
            "the engine 'mpi' needs mpi4py and an MPI: `pip install 'collir[mpi,mpi4py]'` brings "
            f"both into this environment ({error})"
        ) from error
    return MPI


def _place(name: str) -> tuple[str, str]:
    """Return the machine and the container; ranks with the same see each other's processes."""
    try:
        return name, str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return name, ""


def _alive(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's process, or a system without /proc
    return state.rpartition(")")[2].split()[0] not in ("Z", "X")


def _abort(leader: int | None, patience: float) -> None:
    """End the job, but leave rank 0 time to do so first."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(LOOK / 2)  # the launcher passes the output on meanwhile
    end = time.monotonic() + patience
    while time.monotonic() < end if leader is None else _alive(leader):
        time.sleep(LOOK / 10)
    mpi().COMM_WORLD.Abort(1)
