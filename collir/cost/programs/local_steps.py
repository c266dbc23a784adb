"""Local steps of programs, which send nothing, and their times on a device.

A local step takes the time to read and write its bytes; if the machine does not say how fast the
memory of a device is, it takes none. So does a collective that only copies, and a copy at the end,
of a result that lies in another buffer. ``compute`` takes the time of its operations at the rate of
the device; a kind of devices with smaller blocks does a share of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from collir.cost.collectives.phases import Phase
from collir.cost.model import StepCost
from collir.cost.programs.compute import compute_seconds
from collir.cost.programs.products import MatrixProducts, slowdown
from collir.machine import Device, Efficiency, Execution

COPY = "copy"
"""The kind of a step that copies a result which lies in another buffer."""

SLICE = "slice"
"""The name of the elements of slices that loops copy."""

CALL = "call"
"""The kind of a step that stands for the call of a function."""


@dataclass(frozen=True)
class LocalStep:
    """A step that sends nothing.

    Attributes:
        kind: the name of its operation, or ``COPY``; of a kernel of several, their names.
        size: the bytes it reads and writes.
        work: its floating-point operations, for each dtype.
        maps: whether the operations take no time on a device without a rate for the dtype, as is
            the case for elementwise operations, which memory limits.
        launched: whether it is a kernel: it is launched, and reaches a part of the rates.
        product: the matrices that it multiplies, if it does.
        elements: its operations, each with a dtype and the number of elements that it maps or
            reduces. A product has the transposes that a runtime may make of operands and results
            whose dimensions are in another order.
        reach: the bytes of the whole buffer, if the step uses a slice of it: a cache that is too
            small for the whole holds no slice.
        inner: the products inside its kernel, each as its dtype, operations and matrices.
        counted: for a kernel of the forward program, all operations of its products, with those
            that it skips as their results are masked.
        arrays: for the call of a function, the arrays that it takes and returns.
        inside: the names of the results that it makes and uses without writing them.
    """

    kind: str
    size: float
    work: tuple[tuple[str, float], ...] = ()
    maps: bool = False
    launched: bool = True
    product: MatrixProducts | None = None
    inside: tuple[str, ...] = ()
    elements: tuple[tuple[str, str, float], ...] = ()
    reach: float = 0.0
    arrays: int = 0
    inner: tuple[tuple[str, float, MatrixProducts], ...] = ()
    counted: tuple[tuple[str, float], ...] = ()

    def scaled(self, factor: float) -> "LocalStep":
        """Return the step on buffers ``factor`` times as large."""
        work, counted = (
            tuple((dtype, flops * factor) for dtype, flops in of)
            for of in (self.work, self.counted)
        )
        inner = tuple((dtype, flops * factor, product) for dtype, flops, product in self.inner)
        elements = tuple((*names, count * factor) for *names, count in self.elements)
        size, reach = self.size * factor, self.reach * factor
        new = {"size": size, "reach": reach, "elements": elements}
        return replace(self, **new, work=work, inner=inner, counted=counted)


def local_phases(local: LocalStep, device: Device | None) -> tuple[Phase, ...]:
    """Return the phases of a local step; none if it takes no time on the device."""
    work = local_times(local, device).seconds
    return (Phase(work=work),) if work else ()


@dataclass(frozen=True)
class LocalTimes:
    """The seconds of a local step: its operations and its bytes, which overlap, then its launch,
    and copies of operands before."""

    operations: float = 0.0
    memory: float = 0.0
    launch: float = 0.0
    copies: float = 0.0

    def total(self, larger: Callable[[float, float], float]) -> float:
        """Return the seconds of the step; ``larger`` returns the larger one of two numbers."""
        return self.launch + self.copies + larger(self.operations, self.memory)

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return self.total(max)


@dataclass(frozen=True)
class Arithmetic:
    """The functions that the time of a step needs beside sums, products and quotients, so that its
    numbers may be formulas.

    Attributes:
        bandwidth: a function from the software of a device, the bytes of a kernel and the bandwidth
            of the memory to the bytes/second of the kernel.
        operations: a function from a number of operations, a dtype and a device to seconds.
        slowdown: a function from a product and the efficiency of a device to the time of the
            product divided by that at the full rate.
    """

    larger: Callable[[float, float], float] = max
    bandwidth: Callable[[Execution, float, float | None], float | None] = Execution.bandwidth
    operations: Callable[[float, str, Device], float] = compute_seconds
    slowdown: Callable[[MatrixProducts, Efficiency], float] = slowdown


NUMBERS = Arithmetic()


def local_times(local: LocalStep, device: Device | None, by: Arithmetic = NUMBERS) -> LocalTimes:
    """Return the times of a local step on a device."""
    flops = [pair for pair in local.work if pair[1]]
    if device is None:
        if flops and not local.maps:
            compute_seconds(flops[0][1], flops[0][0], device)
        return LocalTimes()
    efficiency, rates = device.efficiency, dict(device.compute)
    execution = device.execution
    if local.arrays:
        return LocalTimes(launch=execution.call + local.arrays * execution.array)
    reach = by.larger(local.size, local.reach) if local.reach else local.size
    speed = by.bandwidth(execution, reach, device.memory_bandwidth)
    memory = local.size / (speed * efficiency.memory) if speed else 0.0
    operations = sum(
        by.operations(count, dtype, device)
        for dtype, count in flops
        if dtype in rates or not local.maps
    )
    inner = 0.0
    for dtype, count, product in local.inner:
        if dtype in rates:
            full = by.operations(count, dtype, device)
            slowed = full * by.slowdown(product, efficiency.inside) / efficiency.fused
            inner, operations = inner + slowed, operations + slowed - full
    if not local.launched or not (local.size or flops):
        return LocalTimes(operations, memory)
    times = execution.seconds_of_element
    own = sum(count * times.get((name, dtype), 0.0) for name, dtype, count in local.elements)
    if times and local.product is None:
        own += inner / efficiency.compute
        return LocalTimes(own, memory, efficiency.launch)
    if local.product is not None:
        operations *= by.slowdown(local.product, efficiency)
    copies = own if execution.copies else 0.0
    copies += execution.start if local.product else 0.0
    if local.product is not None and execution.packing:
        packing = local.size / execution.packing
        return LocalTimes(operations / efficiency.compute + packing, 0.0, efficiency.launch, copies)
    return LocalTimes(operations / efficiency.compute, memory, efficiency.launch, copies)


def copied_bytes(does: StepCost) -> float:
    """Return the bytes that a collective which sends nothing reads and writes; 0 if it sends."""
    return 0.0 if any(does.port_bytes) else 2 * does.collective.size


def sent_phases(does: StepCost) -> tuple[Phase, ...]:
    """Return the phases of a collective that sends or copies.

    Where its blocks lie in several rows, a device copies them before or after they are sent.
    """
    device = does.collective.mesh.machine.slowest
    copy = local_phases(LocalStep(COPY, 2 * does.collective.size), device)
    if not any(does.port_bytes):
        return (*does.phases, *copy)
    packed, unpacked = does.collective.packs
    seconds = device.execution.sync if device else 0.0
    sync = (Phase(((None, seconds),)),) if seconds else ()
    return (*(copy if packed else ()), *sync, *does.phases, *(copy if unpacked else ()))
