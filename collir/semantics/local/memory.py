"""The memory of a rank: what is written, in use, or gone."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from collir.layout.local import LocalBuffer
from collir.semantics.reference.collectives import Array


class LocalError(RuntimeError):
    """Something that a rank must not do."""


@dataclass(eq=False)
class RankMemory:
    """The elements of a rank.

    Attributes:
        name: its name in messages.
        data: the elements.
        written: whether each has been written.
        is_constant: whether nothing may be written.
        is_gone: whether its life has ended.
        uses: the uses under way, each with its first element, the one behind its last, and whether
            it writes.
    """

    name: str
    data: Array
    written: NDArray[np.bool_]
    is_constant: bool = False
    is_gone: bool = False
    uses: dict[object, tuple[int, int, bool]] = field(
        default_factory=dict[object, tuple[int, int, bool]]
    )


@dataclass(frozen=True, eq=False)
class View:
    """Elements of a memory in some order.

    Attributes:
        start: the first of them.
    """

    memory: RankMemory
    start: int
    buffer: LocalBuffer

    def _of(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return the elements of an array, in the shape of the buffer, without a copy."""
        x, behind = self.buffer, flat[self.start :]
        if x.is_contiguous:
            return behind[: x.elements].reshape(x.shape)
        strides = [step * flat.itemsize for step in x.steps]
        return as_strided(behind, x.shape, strides)

    def _disturbs(self, low: int, high: int) -> bool:
        """Return whether some elements are between two numbers."""
        if high <= self.start or low >= self.start + self.buffer.span:
            return False
        used = np.zeros(self.memory.data.size, np.bool_)
        used[low:high] = True
        return bool(self._of(used).any())

    def check(self, *, writes: bool) -> None:
        """Check that the elements may be read, or written.

        Raises:
            LocalError: they may not.
        """
        memory, verb = self.memory, "written" if writes else "read"
        if memory.is_gone:
            raise LocalError(f"{memory.name} is {verb} behind its end")
        if writes and memory.is_constant:
            raise LocalError(f"{memory.name} is an argument, and is written")
        size = memory.data.size
        if self.start < 0 or self.start + self.buffer.span > size:
            raise LocalError(f"{memory.name} is {verb} outside of its {size} elements")
        for low, high, is_written in memory.uses.values():
            if (writes or is_written) and self._disturbs(low, high):
                raise LocalError(f"{memory.name} is {verb} while a collective uses it")
        if not writes and not bool(self._of(memory.written).all()):
            raise LocalError(f"{memory.name} is read before it is written")

    def read(self) -> Array:
        """Return a copy of the elements.

        Raises:
            LocalError: they may not be read.
        """
        self.check(writes=False)
        return self.held()

    def held(self) -> Array:
        """Return a copy of the elements, for a collective that uses them."""
        return self._of(self.memory.data).copy()

    def write(self, values: Array) -> None:
        """Set the elements.

        Raises:
            LocalError: they may not be written, or values are of another shape or type.
        """
        self.check(writes=True)
        self.put(values)

    def put(self, values: Array) -> None:
        """Set the elements, by a collective that uses them.

        Raises:
            LocalError: values are of another shape or type.
        """
        if (values.shape, values.dtype) != (self.buffer.shape, self.memory.data.dtype):
            there = f"{self.memory.data.dtype}{list(self.buffer.shape)}"
            raise LocalError(f"{values.dtype}{list(values.shape)} is written to {there}")
        self._of(self.memory.data)[...] = values
        self._of(self.memory.written)[...] = True
