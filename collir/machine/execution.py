"""The costs of the software of a device: of calls, streams of bytes and operations."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Execution:
    """The times of software beyond the rates of a device; the default adds nothing to them.

    Attributes:
        call: seconds of a call of a function besides its kernels.
        array: seconds more for each array that a call takes or returns.
        streams: pairs of bytes and of bytes/second: how fast a kernel that moves so many bytes
            moves them, by ascending bytes. In between, both are interpolated by their logarithms.
            Without a pair, the bandwidth of the memory counts.
        elements: triples of an operation, a dtype and seconds: the time that an operation takes
            for each element of its first operand, where that is more than its bytes take.
        start: seconds that a product of matrices takes to begin, besides the launch of a kernel.
        packing: bytes/second at which a product of matrices packs its operands and writes its
            result, beside its operations; None if that is done while it computes.
        copies: whether loops copy the slices that products read and the products that they stack,
            and whether products copy operands and results whose dimensions are in another order.
        maps: whether each map is a kernel of its own.
        issue: seconds that the host takes to issue a kernel or a collective; it issues one after
            the other, ahead of the device.
        sync: seconds that a collective takes besides the time of its library, as devices change
            streams and wait for the last of them.
    """

    call: float = 0.0
    array: float = 0.0
    streams: tuple[tuple[float, float], ...] = ()
    elements: tuple[tuple[str, str, float], ...] = ()
    start: float = 0.0
    packing: float | None = None
    copies: bool = False
    maps: bool = False
    issue: float = 0.0
    sync: float = 0.0

    def problem(self) -> str | None:
        """Return why there is no such software, or None."""
        times = (
            ("a call", self.call),
            ("an array of a call", self.array),
            ("the start of a product", self.start),
            ("the issue of a kernel", self.issue),
            ("the sync of a collective", self.sync),
        )
        for what, time in times:
            if not 0 <= time < 1e3:
                return f"{what} takes less than 1000 s, not {time:g} s"
        if any(not (0 < size < math.inf and 0 < rate < math.inf) for size, rate in self.streams):
            return "streams have sizes and bandwidths above 0"
        if self.packing is not None and not 0 < self.packing < math.inf:
            return f"packing has a bandwidth above 0, not {self.packing:g} B/s"
        sizes = [size for size, _ in self.streams]
        if sizes != sorted(set(sizes)):
            return "the sizes of streams are in ascending order"
        names = [pair for *pair, _ in self.elements]
        if any(pair in names[:n] for n, pair in enumerate(names)):
            return "the time of an element is given twice for an operation and a type"
        if any(not 0 < time < 1e3 for *_, time in self.elements):
            return "an element takes more than 0 s and less than 1000 s"
        return None

    @cached_property
    def seconds_of_element(self) -> dict[tuple[str, str], float]:
        """The seconds of an element by operation and dtype."""
        return {(operation, dtype): time for operation, dtype, time in self.elements}

    def bandwidth(self, size: float, memory: float | None) -> float | None:
        """Return the bytes/second of a kernel.

        Args:
            size: the bytes that it reads and writes.
            memory: the bandwidth of the memory.
        """
        if not self.streams or size <= 0:
            return memory
        place = bisect_left(self.streams, (size, 0.0))
        if place in (0, len(self.streams)):
            return self.streams[min(place, len(self.streams) - 1)][1]
        (low, slow), (high, fast) = self.streams[place - 1 : place + 1]
        part = math.log(size / low) / math.log(high / low)
        return slow * (fast / slow) ** part

    def slower(self, other: "Execution") -> "Execution":
        """Return one that is at most as fast as both."""
        times = other.seconds_of_element
        elements = {
            pair: max(time, times.get(pair, 0.0)) for pair, time in self.seconds_of_element.items()
        }
        return Execution(
            max(self.call, other.call),
            max(self.array, other.array),
            min(
                self.streams,
                other.streams,
                key=lambda pairs: min((r for _, r in pairs), default=math.inf),
            ),
            tuple((*pair, time) for pair, time in (times | elements).items()),
            max(self.start, other.start),
            min((x for x in (self.packing, other.packing) if x is not None), default=None),
            self.copies or other.copies,
            self.maps or other.maps,
            max(self.issue, other.issue),
            max(self.sync, other.sync),
        )


PLAIN = Execution()
"""Software that adds nothing to the times of kernels."""
