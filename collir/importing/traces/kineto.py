"""Traces of torch's profiler (Kineto): one file of Chrome's JSON for each rank."""

import re
from array import array
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BufferedIOBase
from itertools import pairwise
from typing import Any

import numpy as np

from collir.importing.traces.chrome import ChromeTrace
from collir.importing.traces.loose import (
    UNREADABLE,
    finite,
    integer,
    integers,
    json_list,
    listed,
    mapped,
    number,
)
from collir.importing.traces.names import (
    elements,
    full_size,
    is_collective_kernel,
    item_size,
    kind_of,
)
from collir.importing.traces.products import product_of
from collir.importing.traces.trace import (
    KernelWork,
    RankTrace,
    Span,
    TracedCollective,
    TracedProduct,
)

_KERNELS = {"kernel", "gpu_memcpy", "gpu_memset"}
_ISSUES = re.compile(r"c10d::|_c10d_functional::|record_param_comms|nccl:|gloo:|mpi:|ucc:|xccl:")
_WAITS = re.compile(r"wait_tensor|c10d::.*(?:wait|barrier)|cudaStreamSynchronize|work::wait")
_STEP = re.compile(r"ProfilerStep#\d+")
_RUNS = re.compile(r"(?:gloo|mpi|ucc):\s*(.+)")

_SECOND = 1e-6
"""A microsecond, the unit of the times of a trace."""


@dataclass(frozen=True)
class _Asked:
    """A request of the host: a collective, its time, and the bytes of its tensors."""

    kind: str
    label: str
    at: float
    sizes: frozenset[float]
    size: float


@dataclass
class _Reading:
    """The data read of a rank so far."""

    made: RankTrace
    asked: list[_Asked] = field(default_factory=list[_Asked])
    ran: list[tuple[str, Span, float, str]] = field(
        default_factory=list[tuple[str, Span, float, str]]
    )
    """On CPUs: the kind of a collective, when it ran, its bytes, and its thread."""
    products: dict[int, TracedProduct] = field(default_factory=dict[int, TracedProduct])
    communications: dict[int, tuple[float, Mapping[str, Any]]] = field(
        default_factory=dict[int, tuple[float, Mapping[str, Any]]]
    )
    """When the host asked a library for a collective, and what for."""
    host: dict[str, KernelWork] = field(default_factory=lambda: defaultdict(KernelWork))
    """The operations of each thread, as long as nothing ran on a device."""
    kernels: KernelWork = field(default_factory=KernelWork)
    links: "array[int]" = field(default_factory=lambda: array("q"))
    """The numbers of the operations that the kernels belong to."""
    has_device: bool = False
    events: int = 0
    ignored: int = 0


@dataclass(frozen=True)
class KinetoFile:
    """The contents of a file.

    Attributes:
        rank, world: of the job; -1 and 0 if the file does not say.
        groups: the ranks of process groups by name.
        base: the seconds by which its times are behind the times of a clock.
    """

    made: RankTrace
    rank: int
    world: int
    groups: Mapping[str, tuple[int, ...]]
    events: int
    ignored: int
    cut_off: bool
    base: float


def read_kineto(stream: BufferedIOBase, file: str) -> KinetoFile:
    """Return what the trace of a rank says.

    Raises:
        ReadError: it is no such trace.
    """
    chrome, reading = ChromeTrace(stream), _Reading(RankTrace(-1, file))
    for event in chrome.events():
        reading.events += 1
        try:
            used = _read(event, reading)
        except UNREADABLE:
            used = False
        reading.ignored += not used
    if chrome.cut_off:  # the kernel of a request may be missing
        reading.asked.clear()
    _finish(reading)
    base = number(chrome.about.get("baseTimeNanoseconds")) * 1e-9
    job = mapped(chrome.about.get("distributedInfo"))
    return KinetoFile(
        reading.made, integer(job.get("rank"), -1), integer(job.get("world_size"), 0),
        dict(_groups(job)), reading.events, reading.ignored, chrome.cut_off, base,
    )  # fmt: skip


def _groups(job: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the process groups of a job: their names, and their ranks."""
    for group in map(mapped, listed(job.get("pg_config"))):
        if ranks := integers(group.get("ranks")):
            yield str(group.get("pg_name", "")), tuple(ranks)


def _read(event: Mapping[str, Any], reading: _Reading) -> bool:
    """Take in an event; return whether it says anything."""
    if event.get("ph") != "X":
        return False
    category, name = event.get("cat"), str(event.get("name", ""))
    start = finite(event["ts"]) * _SECOND
    span = Span(name, start, start + max(0.0, finite(event.get("dur", 0))) * _SECOND)
    arguments = mapped(event.get("args"))
    thread = str(event.get("tid", ""))
    if category in _KERNELS:
        reading.has_device = True
        _read_kernel(span, arguments, thread, reading)
    elif category == "user_annotation":
        if _STEP.fullmatch(name):
            reading.made.steps.append(span)
        elif match := _RUNS.match(name):
            size = _sizes(arguments)
            reading.ran.append((kind_of(match[1]), span, size[0] if size else 0.0, thread))
        else:
            reading.made.marks.append(span)
    elif category == "cpu_op":
        _read_operation(span, arguments, thread, reading)
    else:
        return False
    return True


def _read_kernel(span: Span, arguments: Mapping[str, Any], stream: str, reading: _Reading) -> None:
    link = integer(arguments.get("External id"), -1)
    label = arguments.get("Collective name")
    if label is None and not is_collective_kernel(span.name):
        reading.kernels.add(span.name, span.start, span.end)
        reading.links.append(link)
        return
    issued, known = reading.communications.get(link, (span.start, {}))
    reading.made.collectives.append(
        _collective(span, arguments if label else known, stream, min(issued, span.start))
    )


def _collective(
    span: Span, said: Mapping[str, Any], stream: str, issued: float
) -> TracedCollective:
    """Return a collective of a device from its entry in the trace."""
    label = str(said.get("Collective name") or span.name)
    kind, item = kind_of(label), item_size(str(said.get("dtype", "")))
    received, sent = (
        max(0.0, number(said.get(f"{side} msg nelems"))) * item for side in ("Out", "In")
    )
    ranks = _ranks(said.get("Process Group Ranks"))
    return TracedCollective(
        kind, label, number(full_size(kind, received, sent)), span.start, span.end, issued, stream,
        ranks, integer(said.get("Group size"), 0) or len(ranks or ()),
        str(said.get("Process Group Name", "")),
    )  # fmt: skip


def _ranks(value: Any) -> tuple[int, ...] | None:
    """Return ranks as a trace lists them: as JSON in a text, which may be cut off with dots."""
    found = integers(json_list(value))
    return tuple(found) if found else None


def _read_operation(
    span: Span, arguments: Mapping[str, Any], thread: str, reading: _Reading
) -> None:
    link = arguments.get("External id")
    if span.name == "record_param_comms":
        if isinstance(link, int):
            reading.communications[link] = span.start, arguments
        return
    if _WAITS.search(span.name):
        reading.made.waits.append(span)
        return
    if _ISSUES.match(span.name):
        if not span.name.startswith("_c10d_functional"):  # which asks c10d for it
            _ask(span, arguments, reading)
        reading.made.waits.append(span)
        return
    product = product_of(span.name, arguments)
    if product and isinstance(link, int):
        reading.products[link] = product
    if not reading.has_device:
        reading.host[thread].add(span.name, span.start, span.end, product)


def _ask(span: Span, arguments: Mapping[str, Any], reading: _Reading) -> None:
    """Note a collective that the host asks for."""
    kind, sizes = kind_of(span.name), _sizes(arguments)
    if kind == "other" or not sizes:
        return
    received, sent = sizes[0], sizes[1] if len(sizes) > 1 else sizes[0]
    size = full_size(kind, received, sent)
    reading.asked.append(_Asked(kind, span.name, span.start, frozenset(sizes), size))


def _sizes(arguments: Mapping[str, Any]) -> list[float]:
    """Return the bytes of each of the tensors that an operation gets."""
    operand_bytes: list[float] = []
    dims, types = (listed(arguments.get(name)) for name in ("Input Dims", "Input type"))
    items = [item_size(str(x)) for x in types]
    known = next(filter(None, items), 4)
    for sizes, dtype, item in zip(dims, types, items, strict=False):
        count = elements(sizes)
        if count > 0 and (item or str(dtype) == "TensorList"):
            operand_bytes.append(finite(count * (item or known)))
    return operand_bytes


def _finish(reading: _Reading) -> None:
    """Bring together what stands apart in a trace: operations of the host and what ran."""
    made = reading.made
    if reading.has_device:
        for span, link in zip(reading.kernels.spans(), reading.links, strict=True):
            made.work.add(span.name, span.start, span.end, reading.products.pop(link, None))
    else:
        for operations in reading.host.values():
            for span, product in _outermost(operations):
                made.work.add(span.name, span.start, span.end, product)
        made.collectives += _matched(reading.asked, reading.ran)
    made.collectives.sort(key=lambda x: x.issued)
    made.steps.sort(key=lambda x: x.start)
    made.marks.sort(key=lambda x: x.start)


def _outermost(operations: KernelWork) -> Iterator[tuple[Span, TracedProduct | None]]:
    """Yield the operations of a thread that are in no other one, in parts: products by themselves,
    and what is before, between and behind them.

    A product in another one is what was computed: DTensor's has the sizes of all ranks outside.
    """
    products = dict(operations.products)
    order: list[int] = np.lexsort((-operations.end, operations.start)).tolist()
    in_order = [x for x in order if x in products]
    for before, index in pairwise(in_order):
        if operations.span(index).start < operations.span(before).end:
            del products[before]
    outer: Span | None = None
    at = 0.0
    for index in order:
        span, product = operations.span(index), products.get(index)
        if outer is None or span.start >= outer.end:
            if outer is not None and outer.end > at:
                yield Span(outer.name, at, outer.end), None
            outer, at = span, span.start
        if product is not None and span.start >= at:
            if span.start > at:
                yield Span(outer.name, at, span.start), None
            yield span, product
            at = span.end
    if outer is not None and outer.end > at:
        yield Span(outer.name, at, outer.end), None


def _matched(
    asked: Sequence[_Asked], ran: Sequence[tuple[str, Span, float, str]]
) -> Iterator[TracedCollective]:
    """Yield the collectives of CPUs: the requests of the host, with the times of their runs.

    A library may run another collective than the requested one (gloo reduces and scatters by an
    all_reduce). Therefore a run is matched by its bytes, with requests and runs in their order.
    """
    waiting: dict[float, deque[_Asked]] = defaultdict(deque)
    for collective in sorted(asked, key=lambda x: x.at):
        for size in collective.sizes:
            waiting[size].append(collective)
    used: set[int] = set()
    for kind, span, size, thread in sorted(ran, key=lambda x: x[1].start):
        queue = waiting.get(size, deque[_Asked]())
        while queue and id(queue[0]) in used:
            queue.popleft()
        if queue and queue[0].at <= span.end:
            own = queue.popleft()
            used.add(id(own))
            yield TracedCollective(own.kind, own.label, own.size, span.start, span.end, own.at,
                                   thread)  # fmt: skip
        else:
            yield TracedCollective(kind, span.name, size, span.start, span.end, span.start, thread)
