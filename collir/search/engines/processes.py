"""Processes that live long: one pipe to each, and a board in shared memory.

A worker that is lost (killed, out of memory, crashed in a kernel) is seen by the end of its pipe;
what it had sent is read first, then its tasks are searched again by others.
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
import traceback
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray
from typing import Any, Literal

from collir.search.board import STOP, Board, size
from collir.search.engines.base import Event
from collir.search.memory import resident
from collir.search.plan import Plan
from collir.search.problem import SearchError
from collir.search.tasks import Report, Task
from collir.search.worker import Worker

Method = Literal["fork", "spawn"]

GRACE = 2.0
"""Seconds that workers have to stop when a search ends, before they are killed."""

LOSSES = 10
"""Workers that may be lost, for each that there is, in one search."""

LONG = 16384
"""Bytes of a message that may not fit into a pipe beside others."""

PATIENCE = 1.0
"""Seconds between two looks of an idle worker for its parent."""


class WorkerError(SearchError):
    """The problem raised an exception in a worker; its text is the message."""


class Processes:
    """Workers in processes of their own, started once and used for any number of searches.

    Args:
        workers: how many.
        method: how they are started. ``fork`` takes milliseconds and is only safe in a process
            without threads, ``spawn`` takes longer and needs an importable main module. None:
            ``fork`` where it is safe.
    """

    durable = True

    def __init__(self, workers: int, method: Method | None = None):
        self.workers = workers
        self._method = method
        self._shared = RawArray("d", size(workers))
        self.board = Board(workers, memoryview(self._shared).cast("B").cast("d"))
        self._search = 0
        self._losses = 0
        self._plan = b""
        self._outbox: queue.SimpleQueue[tuple[Connection, bytes] | None] | None = None
        self._selector = selectors.DefaultSelector()
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The processes of the workers."""
        return [process.pid for process in self._processes if process.pid]

    def start(self, plan: Plan) -> None:
        """Starts the processes, if they are not there, and makes them ready for a search."""
        self._plan = plan.packed()
        self.board.reset()
        self._search += 1
        self._losses = 0
        if not self._processes:
            for index in range(self.workers):
                self._launch(index)
        for pipe in self._pipes:
            self._send(pipe, ("plan", self._search, self._plan))

    def _launch(self, index: int) -> None:
        if multiprocessing.current_process().daemon:
            raise SearchError(
                "this is a worker process itself, which may start no others: search with workers=1"
            )
        context: Any = multiprocessing.get_context(self._method or _method())
        ours, theirs = context.Pipe()
        inherited = [pipe.fileno() for pipe in (*self._pipes, ours) if not pipe.closed]
        process = context.Process(
            target=_main,
            args=(
                theirs,
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
        theirs.close()  # so that the end of the worker is the end of the pipe
        self._selector.register(ours, selectors.EVENT_READ, index)
        if index < len(self._pipes):
            self._pipes[index], self._processes[index] = ours, process
        else:
            self._pipes.append(ours)
            self._processes.append(process)

    def _send(self, pipe: Connection, message: object) -> None:
        """Sends a message without waiting for a worker that waits for us.

        A long message may fill the pipe of a worker that is itself sending one: from the first of
        them on, a thread sends while this one goes on reading.
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

    def submit(self, worker: int, tasks: list[tuple[int, Task]]) -> None:
        """Gives tasks to a worker."""
        self._send(self._pipes[worker], ("tasks", self._search, tasks))

    def wait(self, seconds: float) -> list[Event]:
        """What has come from the workers."""
        events: list[Event] = []
        for key, _ in self._selector.select(seconds):
            event = self._receive(key.data)
            if event is not None:
                events.append(event)
        return events

    def _receive(self, index: int) -> Event | None:
        """One message of a worker, or its loss."""
        try:
            kind, search, content = pickle.loads(self._pipes[index].recv_bytes())
        except (EOFError, OSError):
            return Event(index, lost=self._replace(index))
        if kind == "error":
            raise WorkerError(content)
        if search != self._search or kind != "reports":
            return None
        return Event(index, content)

    def _replace(self, index: int) -> str:
        """Starts another worker in the place of a lost one; returns what became of that."""
        process = self._processes[index]
        self._selector.unregister(self._pipes[index])
        self._pipes[index].close()
        process.join(GRACE)
        why = _ending(process)
        self._losses += 1
        self._launch(index)
        self._send(self._pipes[index], ("plan", self._search, self._plan))
        if self._losses > LOSSES * self.workers:
            raise SearchError(f"{self._losses} workers were lost, the last one was {why}")
        return why

    def stop(self) -> list[Event]:
        """Ends the search; workers that do not stop in time are killed."""
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
                    events.append(Event(index, lost=self._replace(index)))
                    waiting.discard(index)
                    continue
                if kind == "stopped":
                    waiting.discard(index)
                if kind in ("reports", "stopped") and search == self._search:
                    events.append(Event(index, content))
        for index in waiting:
            self._processes[index].kill()
            events.append(Event(index, lost=self._replace(index)))
        return events

    def close(self) -> None:
        """Ends the processes."""
        for pipe in self._pipes:
            self._send(pipe, ("end", 0, None))
        if self._outbox is not None:
            self._outbox.put(None)
            self._outbox = None
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            self._selector.unregister(pipe)
            process.join(GRACE)
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()
        self._pipes.clear()
        self._processes.clear()

    def memory(self) -> int:
        """Bytes of memory of this process and the workers."""
        return resident(self.pids)


def _send(pipe: Connection, data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError, TypeError):  # it is lost: seen when reading
        pipe.send_bytes(data)


def _send_all(outbox: "queue.SimpleQueue[tuple[Connection, bytes] | None]") -> None:
    """Sends what is put into the queue, until that is None."""
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
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _main(
    pipe: Connection, shared: Any, workers: int, index: int, parent: int, inherited: list[int]
) -> None:
    """What a worker process does until its parent ends it, or is gone."""
    for end in inherited:  # the parent's ends of pipes: with a copy of them here, they never close
        os.close(end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator decides what an interrupt means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    board = _SharedBoard(workers, memoryview(shared).cast("B").cast("d"))
    try:
        _serve(pipe, board, index, parent)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent has gone
    except BaseException as error:
        with contextlib.suppress(OSError):
            text = f"{type(error).__name__}: {error}"
            if not isinstance(error, SearchError):
                text = f"a worker raised {text}\n{traceback.format_exc()}"
            else:
                text = str(error)
            pipe.send_bytes(pickle.dumps(("error", 0, text)))


class _SharedBoard(Board):
    """The board as a worker sees it: only the coordinator resets it."""

    def reset(self) -> None:
        """Nothing: the search is going on."""


def _serve(pipe: Connection, board: Board, index: int, parent: int) -> None:
    worker: Worker | None = None
    search = 0
    checked = time.monotonic()
    while True:
        if time.monotonic() - checked > PATIENCE:
            checked = time.monotonic()
            if os.getppid() != parent:
                return
        busy = worker is not None and worker.busy
        if pipe.poll(0 if busy else PATIENCE):
            kind, number, content = pickle.loads(pipe.recv_bytes())
            if kind == "end":
                return
            if kind == "plan":
                search, worker = number, Worker(pickle.loads(content), board, index)
            elif kind == "tasks" and worker is not None and number == search:
                worker.add(content)
            elif kind == "stop":
                reports = worker.stop() if worker is not None else []
                pipe.send_bytes(pickle.dumps(("stopped", search, reports), pickle.HIGHEST_PROTOCOL))
                worker = None
        elif worker is not None and busy:
            _work(worker, pipe, search, board)


def _work(worker: Worker, pipe: Connection, search: int, board: Board) -> None:
    """Runs tasks until there is something to say, and says it."""
    reports: list[Report] = []
    started = time.perf_counter()
    while worker.busy and board.cells[STOP] < search:
        new = worker.step()
        reports += new
        urgent = any(report.state != "done" or report.found or report.given for report in new)
        if urgent or time.perf_counter() - started > 0.001:
            break
    if not reports:
        return
    started = time.perf_counter()
    pipe.send_bytes(pickle.dumps(("reports", search, reports), pickle.HIGHEST_PROTOCOL))
    worker.publish()
    worker.cost((time.perf_counter() - started) / len(reports))
