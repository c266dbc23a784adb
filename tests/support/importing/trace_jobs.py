"""Random jobs on devices, and the traces that tools would write of them."""

import csv
import io
import json
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from collir.importing.traces.trace import RankTrace

DTYPES = {"Float": 4, "BFloat16": 2, "Long": 8}
KINETO_NAMES = {
    "all_reduce": "allreduce", "all_gather": "_allgather_base", "all_to_all": "all_to_allv",
    "reduce_scatter": "_reduce_scatter_base", "broadcast": "broadcast",
}  # fmt: skip
NCCL_NAMES = {
    "all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast", "send": "SendRecv",
}  # fmt: skip
HLO_NAMES = {
    "all_reduce": "all-reduce", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all", "permute": "collective-permute",
}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A kernel, or a product if it has sizes; times are in nanoseconds."""

    name: str
    start: int
    end: int
    product: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Sent:
    """A collective of a rank: each of the ranks of its group has so many elements of its own."""

    kind: str
    issued: int
    start: int
    end: int
    elements: int
    ranks: tuple[int, ...]
    dtype: str = "Float"

    @property
    def shapes(self) -> tuple[int, int]:
        """The elements of its input and its output."""
        whole = self.elements * len(self.ranks)
        match self.kind:
            case "all_gather":
                return self.elements, whole
            case "reduce_scatter":
                return whole, self.elements
            case "all_to_all":
                return whole, whole
            case _:
                return self.elements, self.elements

    @property
    def size(self) -> int:
        """The bytes of its full buffer."""
        return max(self.shapes) * DTYPES[self.dtype]


@dataclass(frozen=True)
class Ran:
    """What a rank ran."""

    rank: int
    world: int
    kernels: tuple[Kernel, ...]
    sent: tuple[Sent, ...]
    steps: tuple[tuple[int, int], ...]


NAMES = ("void cutlass::Kernel<f16>(Params)", "ampere_sgemm_128x64_tn", 'a, b = "c"\n<b>&', "ядро")


@st.composite
def jobs(
    draw: st.DrawFn, kinds: Sequence[str], world: int = 2, dtypes: Sequence[str] = tuple(DTYPES)
) -> list[Ran]:
    """Return what ranks ran: collectives do not overlap."""
    count = draw(st.integers(1, 4))
    planned = [
        (draw(st.sampled_from(kinds)), draw(st.integers(1, 2**20)), draw(st.sampled_from(dtypes)))
        for _ in range(count)
    ]
    job: list[Ran] = []
    for rank in range(world):
        times = draw(st.lists(st.integers(1, 10**6), min_size=8 * count, max_size=8 * count))
        at, kernels, sent, edges = 10**9, list[Kernel](), list[Sent](), [10**9]
        for (kind, elements, dtype), steps in zip(
            planned, zip(*[iter(times)] * 8, strict=True), strict=True
        ):
            points = [at := at + x for x in steps]
            product = draw(st.none() | st.tuples(*[st.integers(1, 512)] * 3))
            kernels.append(Kernel(draw(st.sampled_from(NAMES)), points[0], points[1], product))
            issued, start, end = points[2:5]
            sent.append(Sent(kind, issued, start, end, elements, tuple(range(world)), dtype))
            edges.append(points[7])
        job.append(Ran(rank, world, tuple(kernels), tuple(sent), tuple(pairwise(edges))))
    return job


def nanoseconds(seconds: float) -> int:
    """Return a time as a whole number."""
    return round(seconds * 1e9)


def times_of(rank: RankTrace, kind: bool = True) -> list[tuple[str, int, int]]:
    """Return the collectives that were read."""
    return [
        (x.kind if kind else "", nanoseconds(x.start), nanoseconds(x.end)) for x in rank.collectives
    ]


def kernels_of(rank: RankTrace) -> list[tuple[str, int, int]]:
    """Return the kernels that were read, by their start."""
    found = [(x.name, nanoseconds(x.start), nanoseconds(x.end)) for x in rank.work.spans()]
    return sorted(found, key=lambda x: x[1])


# --- torch's profiler ----------------------------------------------------------------------------


def kineto(ran: Ran) -> dict[str, Any]:
    """Return what torch's profiler writes of GPUs."""
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": ran.rank, "name": "H100"}],
        "distributedInfo": {
            "backend": "nccl", "rank": ran.rank, "world_size": ran.world,
            "pg_config": [{"pg_name": "0", "ranks": list(range(ran.world))}],
        },
        "traceEvents": [*_kineto_events(ran)],
        "traceName": "trace.json",
    }  # fmt: skip


def _event(category: str, name: str, start: int, end: int, thread: int, **args: Any) -> Any:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start / 1e3,
        "dur": (end - start) / 1e3, "args": args,
    }  # fmt: skip


def _kineto_events(ran: Ran) -> Iterator[Any]:
    yield {"name": "process_name", "ph": "M", "ts": 0, "pid": 1, "args": {"name": "python"}}
    for number, (start, end) in enumerate(ran.steps):
        yield _event("user_annotation", f"ProfilerStep#{number}", start, end, 1)
    for number, kernel in enumerate(ran.kernels):
        if kernel.product:
            rows, inner, columns = kernel.product
            dims = {"Input Dims": [[rows, inner], [inner, columns]]}
            yield _event("cpu_op", "aten::mm", kernel.start - 5, kernel.start, 1,
                         **{"External id": 100 + number, **dims})  # fmt: skip
    for number, sent in enumerate(ran.sent):
        yield _event("cpu_op", "record_param_comms", sent.issued, sent.issued + 5, 1,
                     **{"External id": 500 + number})  # fmt: skip
    for number, kernel in enumerate(ran.kernels):
        yield _event("kernel", kernel.name, kernel.start, kernel.end, 7,
                     **{"External id": 100 + number, "stream": 7})  # fmt: skip
    for number, sent in enumerate(ran.sent):
        given, taken = sent.shapes
        yield _event("kernel", f"ncclDevKernel_{sent.kind}(x)", sent.start, sent.end, 20, **{
            "External id": 500 + number, "stream": 20, "Collective name": KINETO_NAMES[sent.kind],
            "In msg nelems": given, "Out msg nelems": taken, "Group size": len(sent.ranks),
            "dtype": sent.dtype, "Process Group Name": "0", "Process Group Description": "default",
            "Process Group Ranks": json.dumps(sent.ranks),
        })  # fmt: skip


# --- torch's flight recorder ---------------------------------------------------------------------


def flight_recorder(ran: Ran, is_timed: bool) -> dict[str, Any]:
    """Return a dump of torch's flight recorder."""
    entries: list[dict[str, Any]] = []
    for number, sent in enumerate(ran.sent):
        given, taken = sent.shapes
        entries.append({
            "frames": [{"name": "step", "filename": "train.py", "line": 3}],
            "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"),
            "collective_seq_id": number + 1, "p2p_seq_id": 0, "op_id": number + 1,
            "profiling_name": f"nccl:{KINETO_NAMES[sent.kind]}", "time_created_ns": sent.issued,
            "input_sizes": [[given]], "input_dtypes": [sent.dtype], "output_sizes": [[taken]],
            "output_dtypes": [sent.dtype], "state": "completed", "retired": True,
            "time_discovered_started_ns": None, "time_discovered_completed_ns": sent.end + 10**6,
            "timeout_ms": 600000, "is_p2p": False,
        })  # fmt: skip
        if is_timed:
            entries[-1]["duration_ms"] = (sent.end - sent.start) / 1e6
    ranks = json.dumps(list(range(ran.world)))
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {"last_enqueued_collective": len(entries)}},
        "entries": entries,
    }


# --- Nsight Systems ------------------------------------------------------------------------------

_TABLES = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
    globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER,
    streamId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER, text TEXT,
    globalTid INTEGER, textId INTEGER, domainId INTEGER, jsonText TEXT, binaryData BLOB);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, idx INTEGER,
    flags INTEGER, type INTEGER, name TEXT, description TEXT, arrayOrUnionDetail INTEGER,
    offset INTEGER);
INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES
    (1, 3, 0, 0, 18, 'NCCL communicator ID', NULL, NULL, NULL),
    (1, 3, 1, 0, 6, 'No. of ranks', NULL, NULL, 8),
    (1, 4, 0, 0, 18, 'NCCL communicator ID', NULL, NULL, NULL),
    (1, 4, 1, 0, 22, 'Message size [bytes]', NULL, NULL, 8);
"""
_COMMUNICATOR = 2**63 + 5


def write_nsys(path: Path, job: Sequence[Ran], with_ranges: bool) -> None:
    """Write the database of a computer on which some ranks ran, each in a process."""
    database = sqlite3.connect(path)
    database.executescript(_TABLES)
    for ran in job:
        _fill(database, ran, with_ranges)
    database.commit()
    database.close()


def _fill(database: sqlite3.Connection, ran: Ran, with_ranges: bool) -> None:
    process = (ran.rank + 1) << 24
    known: dict[str, int] = dict(database.execute("SELECT value, id FROM StringIds"))

    def text(value: str) -> int:
        if value not in known:
            known[value] = len(known) + 1
            database.execute("INSERT INTO StringIds VALUES (?, ?)", (known[value], value))
        return known[value]

    def kernel(name: str, start: int, end: int, stream: int, launch: int) -> None:
        row = start, end, ran.rank, 1, stream, launch, process, text(name), text(name[:4])
        database.execute(f"INSERT INTO {_KERNELS} VALUES (?,?,?,?,?,?,?,?,?)", row)

    def span(name: str, start: int, end: int, data: bytes | None = None) -> None:
        row = start, end, 59, process + 7, text(name), data
        columns = "(start, end, eventType, globalTid, textId, binaryData)"
        database.execute(f"INSERT INTO NVTX_EVENTS {columns} VALUES (?,?,?,?,?,?)", row)

    for kernel_ in ran.kernels:
        kernel(kernel_.name, kernel_.start, kernel_.end, 7, 1)
    for number, sent in enumerate(ran.sent):
        name = f"ncclDevKernel_{NCCL_NAMES[sent.kind]}_Sum_bf16_RING_LL(ncclDevKernelArgs)"
        kernel(name, sent.start, sent.end, 20, 10 + number)
        if with_ranges:
            own = min(sent.shapes) * DTYPES[sent.dtype]
            data = struct.pack("<QQ", _COMMUNICATOR, own)
            span(f"nccl{NCCL_NAMES[sent.kind]}", sent.issued, sent.issued + 5, _carried(4, data))
    if with_ranges:
        data = struct.pack("<QI", _COMMUNICATOR, ran.world)
        span("ncclCommInitRank", 5, 10, _carried(3, data))
    for number, (start, end) in enumerate(ran.steps):
        span(f"iteration {number}", start, end)
    span("load data", 10**9, 10**9 + 5)
    span("aten::mm, seq = 3", 10**9, 10**9 + 5)


_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def _carried(schema: int, data: bytes) -> bytes:
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(data), 32 + len(data)) + data


def nsys_table(job: Sequence[Ran], unit: str = "ns", with_notes: bool = False) -> str:
    """Return what ``nsys stats -r cuda_gpu_trace --format csv`` prints."""
    scale = {"ns": 1, "us": 1e3, "ms": 1e6, "sec": 1e9}[unit]
    text = io.StringIO()
    if with_notes:
        text.write("NOTICE: Existing SQLite export found: x.sqlite\n\n")
        text.write("Processing [x.sqlite] with [cuda_gpu_trace.py]...\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([f"Start ({unit})", f"Duration ({unit})", "CorrId", "GrdX", "Bytes (MB)",
                     "Device", "Ctx", "GreenCtx", "Strm", "Name"])  # fmt: skip
    for ran in job:
        rows = [(x.start, x.end, 7, x.name) for x in ran.kernels]
        rows += [
            (x.start, x.end, 20, f"ncclDevKernel_{NCCL_NAMES[x.kind]}_RING_LL(int, long)")
            for x in ran.sent
        ]
        for start, end, stream, name in sorted(rows):
            writer.writerow([start / scale, (end - start) / scale, 1, 1, "",
                             f"NVIDIA H100 80GB ({ran.rank})", 1, "", stream, name])  # fmt: skip
    return text.getvalue()


# --- XLA's profiler ------------------------------------------------------------------------------


def xla(job: Sequence[Ran], device: str) -> dict[str, Any]:
    """Return what XLA's profiler writes of a host with GPUs or TPUs."""
    events: list[Any] = [_called("process_name", 1, 0, "/host:CPU")]
    for ran in job:
        events += _xla_names(ran, device)
    for ran in job:
        events += _gpu_events(ran) if device == "GPU" else _tpu_events(ran)
    return {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": events}


def _called(what: str, process: int, thread: int, name: str) -> Any:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}


def _xla_names(ran: Ran, device: str) -> Iterator[Any]:
    process = 10 + ran.rank
    yield _called("process_name", process, 0, f"/device:{device}:{ran.rank}")
    threads = ("Steps", "XLA Modules", "XLA Ops", "Async XLA Ops", "Stream #13(Compute)", "Source")
    for thread, name in enumerate(threads):
        yield _called("thread_name", process, thread, name)


def _xla_event(ran: Ran, thread: int, name: str, start: int, end: int, **args: Any) -> Any:
    return {
        "ph": "X", "pid": 10 + ran.rank, "tid": thread, "name": name, "ts": start / 1e3,
        "dur": (end - start) / 1e3, "args": args,
    }  # fmt: skip


def _gpu_events(ran: Ran) -> Iterator[Any]:
    for number, (start, end) in enumerate(ran.steps):
        yield _xla_event(ran, 0, str(number), start, end)
    for x in ran.kernels:
        yield _xla_event(ran, 4, x.name, x.start, x.end, hlo_op="loop_reduce_fusion.3")
        yield _xla_event(ran, 2, "loop_reduce_fusion.3", x.start, x.end)  # XLA Ops repeat streams
    for x in ran.sent:
        name = f"{HLO_NAMES[x.kind]}-start.2"
        yield _xla_event(ran, 4, "ncclDevKernel_X(ncclDevKernelArgsStorage<4096ul>)", x.start,
                         x.end, hlo_op=name)  # fmt: skip
        yield _xla_event(ran, 2, name, x.start, x.end)


def _tpu_events(ran: Ran) -> Iterator[Any]:
    for start, end in ran.steps:
        yield _xla_event(ran, 1, "jit_step(123456)", start, end)
        yield _xla_event(ran, 2, "while.3", start, end)
    for x in ran.kernels:
        yield _xla_event(ran, 2, x.name, x.start, x.end, hlo_category="convolution fusion")
        yield _xla_event(ran, 5, "train.py:3", x.start, x.end)
    for number, x in enumerate(ran.sent):
        name, given, taken = HLO_NAMES[x.kind], *x.shapes
        groups = f"replica_groups=[1,{len(x.ranks)}]<=[{len(x.ranks)}]"
        if number % 2:
            text = f"%{name}.{number} = f32[{taken}]{{0:T(1024)}} {name}(f32[{given}] %p), {groups}"
            yield _xla_event(ran, 2, f"{name}.{number}", x.start, x.end, long_name=text)
            continue
        both = x.kind in ("all_gather", "permute")
        result = f"(f32[{given}], f32[{taken}])" if both else f"f32[{taken}]"
        text = f"%{name}-start.{number} = {result} {name}-start(f32[{given}] %p), {groups}"
        yield _xla_event(ran, 2, f"{name}-start.{number}", x.start, x.start + 1, long_name=text)
        yield _xla_event(ran, 2, f"{name}-done.{number}", x.end - 1, x.end)
