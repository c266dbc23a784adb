"""The engine on long-lived processes, with a pipe to each and a board in shared memory.

The end of its pipe tells that a worker is lost (killed, out of memory, crashed in a kernel). The
messages it had sent are read first; then other workers search its tasks again.
"""

import contextlib
import multiprocessing
import os
import pickle
import queue
import selectors
import signal
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray
from typing import Any, Literal

from collir.search.core.board import STOP, Board, cell_count
from collir.search.core.plan import SearchPlan
from collir.search.core.problem import SearchError, check_whole
from collir.search.core.tasks import SearchTask, WorkerError, exception_text
from collir.search.core.worker import Worker
from collir.search.engines.base import Event
from collir.search.engines.memory import resident

Method = Literal["fork", "spawn"]

GRACE = 2.0
"""Seconds that workers have to stop when a search ends, before they are killed."""

LOSSES = 10
"""Losses per worker after which a search gives up."""

LONG = 16384
"""Bytes from which on a message may not fit into a pipe beside others."""

PATIENCE = 1.0
"""Seconds between two checks of an idle worker that its parent lives."""


_NOT_STARTED = (
    "workers could not start: guard what a script does with `if __name__ == '__main__':`, define "
    "the problem in a module that can be imported, or search with workers=1"
)


class Processes:
    """Workers in processes of their own, started once and used for any number of searches.

    Args:
        workers: the number of processes.
        method: the start method. ``fork`` takes milliseconds and is only safe in a process
            without threads, ``spawn`` takes longer and needs an importable main module. None:
            ``fork`` where it is safe.
    """

    durable = True

    def __init__(self, workers: int, method: Method | None = None):
        check_whole("workers", workers, 1)
        self.workers = workers
        self._method = method
        self._shared = RawArray("d", cell_count(workers))
        self.board = Board(workers, memoryview(self._shared).cast("B").cast("d"))
        self._search = 0
        self._losses = 0
        self._plan = b""
        self._outbox: queue.SimpleQueue[tuple[Connection, bytes] | None] | None = None
        self._selector = selectors.DefaultSelector()
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._ready: set[int] = set()
        """The workers that have started."""

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [process.pid for process in self._processes if process.pid]

    def start(self, plan: SearchPlan) -> None:
        """Start the processes unless they run, and prepare them for a search."""
        self._plan = plan.packed()
        self.board.reset()
        self._search += 1
        self._losses = 0
        if not self._processes:
            try:
                for index in range(self.workers):
                    self._launch(index)
            except BaseException:
                self.close()
                raise
        for pipe in self._pipes:
            self._send(pipe, ("plan", self._search, self._plan))

    def _launch(self, index: int) -> None:
        if multiprocessing.current_process().daemon:
            raise SearchError(
                "this is a worker process itself, which may start no others: search with workers=1"
            )
        context: Any = multiprocessing.get_context(self._method or _method())
        parent_end, worker_end = context.Pipe()
        inherited = [pipe.fileno() for pipe in (*self._pipes, parent_end) if not pipe.closed]
        process = context.Process(
            target=_main,
            args=(
                worker_end,
                self._shared,
                self.workers,
                index,
                os.getpid(),
                inherited if context.get_start_method() == "fork" else [],
            ),
            name=f"collir-search-{index}",
            daemon=True,
        )
        process.start()
        worker_end.close()  # then the pipe ends when the worker ends
        self._selector.register(parent_end, selectors.EVENT_READ, index)
        if index < len(self._pipes):
            self._pipes[index], self._processes[index] = parent_end, process
        else:
            self._pipes.append(parent_end)
            self._processes.append(process)

    def _send(self, pipe: Connection, message: object) -> None:
        """Send a message without waiting for a worker that itself waits for this process.

        A long message may fill the pipe of a worker that is itself sending a message. From the
        first long message on, a second thread sends while this one keeps reading.
        """
        try:
            data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise SearchError(f"a node cannot be sent to other processes: {error}") from error
        if len(data) > LONG and self._outbox is None:
            self._outbox = queue.SimpleQueue()
            threading.Thread(target=_send_all, args=(self._outbox,), daemon=True).start()
        if self._outbox is None:
            _send(pipe, data)
        else:
            self._outbox.put((pipe, data))

    def submit(self, worker: int, tasks: list[tuple[int, SearchTask]]) -> None:
        """Send tasks to a worker."""
        self._send(self._pipes[worker], ("tasks", self._search, tasks))

    def wait(self, seconds: float) -> list[Event]:
        """Return the events that have come from the workers."""
        events: list[Event] = []
        for key, _ in self._selector.select(seconds):
            event = self._receive(key.data)
            if event is not None:
                events.append(event)
        return events

    def _receive(self, index: int) -> Event | None:
        """Receive a message of a worker, or notice its loss."""
        try:
            kind, search, content = pickle.loads(self._pipes[index].recv_bytes())
        except (EOFError, OSError):
            return Event(index, lost=self._replace(index))
        if kind == "ready":
            self._ready.add(index)
        if kind == "error" and search == self._search:
            raise WorkerError(content)
        if search != self._search or kind != "reports":
            return None
        return Event(index, content)

    def _replace(self, index: int, going_on: bool = True) -> str:
        """Replace a lost worker by a new one; return how the lost one ended."""
        process = self._processes[index]
        self._selector.unregister(self._pipes[index])
        self._pipes[index].close()
        process.join(GRACE)
        why = _ending(process)
        self._losses += 1
        try:
            if index not in self._ready and (process.exitcode or 0) > 0:
                raise SearchError(f"{_NOT_STARTED} ({why})")
            if self._losses > LOSSES * self.workers:
                raise SearchError(f"{self._losses} workers were lost, the last one was {why}")
            self._ready.discard(index)
            self._launch(index)
        except BaseException:
            self.close()
            raise
        if going_on:
            self._send(self._pipes[index], ("plan", self._search, self._plan))
        return why

    def stop(self) -> list[Event]:
        """End the search; return the last events. Workers that do not stop in time are killed."""
        self.board.cells[STOP] = self._search
        events: list[Event] = []
        for pipe in self._pipes:
            self._send(pipe, ("stop", self._search, None))
        waiting = set(range(len(self._pipes)))
        end = time.monotonic() + GRACE
        while waiting and time.monotonic() < end:
            for key, _ in self._selector.select(end - time.monotonic()):
                index: int = key.data
                try:
                    kind, search, content = pickle.loads(self._pipes[index].recv_bytes())
                except (EOFError, OSError):
                    events.append(Event(index, lost=self._replace(index, going_on=False)))
                    waiting.discard(index)
                    continue
                if kind == "ready":
                    self._ready.add(index)
                if kind == "stopped" and search == self._search:
                    waiting.discard(index)
                if kind in ("reports", "stopped") and search == self._search:
                    events.append(Event(index, content))
        for index in waiting:
            self._processes[index].kill()
            self._ready.add(index)  # a slow start is no error here
            events.append(Event(index, lost=self._replace(index, going_on=False)))
        return events

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            self._send(pipe, ("end", 0, None))
        if self._outbox is not None:
            self._outbox.put(None)
            self._outbox = None
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if not pipe.closed:
                self._selector.unregister(pipe)
            process.join(GRACE)
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()
        self._pipes.clear()
        self._processes.clear()
        self._ready.clear()

    def memory(self) -> int:
        """Return the bytes of memory of this process and the workers."""
        return resident(self.pids)


def _send(pipe: Connection, data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError, TypeError):  # a loss is noticed when reading
        pipe.send_bytes(data)


def _send_all(outbox: "queue.SimpleQueue[tuple[Connection, bytes] | None]") -> None:
    """Send the messages of the queue until one is None."""
    while (message := outbox.get()) is not None:
        _send(*message)


def _method() -> Method:
    can_fork = "fork" in multiprocessing.get_all_start_methods()
    return "fork" if can_fork and threading.active_count() == 1 else "spawn"


def _ending(process: BaseProcess) -> str:
    code = process.exitcode
    if code is None:
        return "stuck"
    if code < 0:
        known = -code in signal.valid_signals() and -code in set(signal.Signals)
        return f"killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
    return f"ended with status {code}"


def _main(
    pipe: Connection, shared: Any, workers: int, index: int, parent: int, inherited: list[int]
) -> None:
    """Run a worker process until its parent ends it, or is gone."""
    for end in inherited:  # the parent's ends of pipes: copies of them would keep the pipes open
        os.close(end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator decides what an interrupt means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    served = _Served(pipe, _SharedBoard(workers, memoryview(shared).cast("B").cast("d")), index)
    try:
        served.serve(parent)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone
    except BaseException as error:
        with contextlib.suppress(OSError):
            served.send("error", exception_text(error))


class _SharedBoard(Board):
    """The board in a worker process, which must not reset it."""

    def reset(self) -> None:
        """Do nothing: only the coordinator resets the board."""


class _Served:
    """A worker in its own process, with the pipe to its parent."""

    def __init__(self, pipe: Connection, board: Board, index: int):
        self._pipe = pipe
        self._board = board
        self._index = index
        self._search = 0
        self._worker: Worker | None = None

    def send(self, kind: str, content: object) -> None:
        """Send a message of the current search."""
        message = (kind, self._search, content)
        self._pipe.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def serve(self, parent: int) -> None:
        """Work until the parent ends this process, or is gone."""
        self.send("ready", None)
        checked = time.monotonic()
        while True:
            if time.monotonic() - checked > PATIENCE:
                checked = time.monotonic()
                if os.getppid() != parent:
                    return
            busy = self._worker is not None and self._worker.busy
            if self._pipe.poll(0 if busy else PATIENCE):
                message = pickle.loads(self._pipe.recv_bytes())
                if message[0] == "end":
                    return
                self._obey(*message)
            elif self._worker is not None and busy:
                self._work(self._worker)

    def _obey(self, kind: str, search: int, content: Any) -> None:
        if kind == "plan":
            self._search = search
            self._worker = Worker(pickle.loads(content), self._board, self._index)
        elif kind == "tasks" and self._worker is not None and search == self._search:
            self._worker.add(content)
        elif kind == "stop":
            self.send("stopped", self._worker.stop() if self._worker is not None else [])
            self._worker = None

    def _work(self, worker: Worker) -> None:
        """Run tasks until there is something to report, and report it."""
        if not (reports := worker.burst(self._search)):
            return
        started = time.perf_counter()
        self.send("reports", reports)
        worker.publish()
        worker.cost((time.perf_counter() - started) / len(reports))
