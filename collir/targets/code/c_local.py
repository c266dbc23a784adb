"""Steps that send nothing, for C on a host and for C++ on a device."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.blocks import shares_by_dim
from collir.layout import DistType, DType, Mesh, Reduction, place_at
from collir.layout.cuts import GroupShares
from collir.layout.mesh import digits_over
from collir.layout.operation_table import OperationTable
from collir.targets.code.c_text import (
    Elements,
    MeshNames,
    element_count,
    factor_text,
    number_text,
    only_if,
    size_text,
)
from collir.targets.code.emitters import Emitters


@dataclass(frozen=True)
class Local:
    """A step that sends nothing, with the names of its buffers.

    Attributes:
        operands, out: the names of the operands and of the result.
        starts: for each operand the element of the result where it already lies, or None if it
            lies in other memory.
    """

    op: DistOp
    names: MeshNames
    operands: Sequence[str]
    out: str
    starts: Sequence[int | None]

    @property
    def mesh(self) -> Mesh:
        """The mesh."""
        return self.names.mesh

    @property
    def operand(self) -> str:
        """The name of the first operand."""
        return self.operands[0]

    @property
    def x(self) -> DistType:
        """The type of the first operand."""
        return dist_type(self.op.input)

    @property
    def y(self) -> DistType:
        """The type of the result."""
        return dist_type(self.op.result)

    @property
    def elements(self) -> int:
        """The number of elements of the result on one rank."""
        return element_count(self.y, self.mesh)


@dataclass
class LocalSteps(ABC):
    """The statements of steps that send nothing, and what they need from the rest of the file.

    Attributes:
        needs: the sections of the runtime.
    """

    elements: ClassVar[Elements]
    zeroing: ClassVar[str]
    """The function that sets bytes."""

    needs: set[str] = field(default_factory=lambda: {"check"})

    # --- what a language says ---------------------------------------------------------------

    @abstractmethod
    def called(self, function: str, *arguments: str) -> str:
        """Return the statement that calls a function on memory."""

    @abstractmethod
    def copy(self, to: str, start: str, size: str) -> str:
        """Return the statement that copies ``size`` bytes."""

    @abstractmethod
    def repeated(self, out: str, count: int, value: float, dtype: DType) -> list[str]:
        """Return the statements that set every element to a value."""

    @abstractmethod
    def arithmetic(
        self, s: Local, name: str, operator: str, factor: str | None = None
    ) -> list[str]:
        """Return the statements that combine the elements of the operands, or the elements of one
        operand and a factor."""

    @abstractmethod
    def cast(self, s: Local) -> list[str]:
        """Return the statements that convert every element."""

    @abstractmethod
    def either(self, s: Local, condition: str, first: str, second: Sequence[str]) -> list[str]:
        """Return one of two statements by a condition."""

    @abstractmethod
    def transposed(self, s: Local, shape: Sequence[int], order: Sequence[int]) -> list[str]:
        """Return the statements that reorder dimensions, none of which has size 1."""

    # --- what both languages share ----------------------------------------------------------

    def statements(self, s: Local) -> list[str]:
        """Return the statements of a step that sends nothing."""
        return self.LOCAL[s.op.mnemonic](self, s)

    def rows(
        self,
        to: str,
        to_stride: int,
        start: str,
        from_stride: int,
        rows: int,
        count: int,
        size: int,
    ) -> str:
        """Return the statement that copies rows; strides and ``count`` are in elements of ``size``
        bytes."""
        if rows == 1:
            return self.copy(to, start, size_text(count * size))
        self.needs.add("copy_rows")
        return self.called(
            "copy_rows",
            to,
            size_text(to_stride * size),
            start,
            size_text(from_stride * size),
            size_text(rows),
            size_text(count * size),
        )

    def fill(self, out: str, count: int, value: float, dtype: DType) -> list[str]:
        """Return the statements that write the same value everywhere."""
        if value == 0 and math.copysign(1, value) > 0:
            return [self.called(self.zeroing, out, "0", size_text(count * dtype.bytes))]
        return self.repeated(out, count, value, dtype)

    def place(self, buffer: str, offset: int) -> str:
        """Return the place some elements behind the start of a buffer."""
        return f"{buffer} + {size_text(offset)}" if offset else buffer

    def _add(self, s: Local) -> list[str]:
        return self.arithmetic(s, "add", "+")

    def _scale(self, s: Local) -> list[str]:
        return self.arithmetic(s, "scale", "*", number_text(s.op.number("factor"), s.x.dtype))

    def _cast(self, s: Local) -> list[str]:
        return self.cast(s)

    def _mask(self, s: Local) -> list[str]:
        ones = Reduction(s.op.word("reduction")) is Reduction.PROD
        copied = self.copy(s.out, s.operand, size_text(s.elements * s.y.dtype.bytes))
        filled = self.fill(s.out, s.elements, float(ones), s.y.dtype)
        return self.either(s, s.names.at_zero(s.op.over), copied, filled)

    def _slice(self, s: Local) -> list[str]:
        dim, group = s.op.integer("dim"), s.mesh.group_size(s.op.over)
        rows = math.prod(s.x.local_shape(s.mesh)[:dim])
        block = s.y.local_shape(s.mesh)
        piece = math.prod(block[dim:])
        if (shares := shares_by_dim(s.op, s.mesh)) is not None:
            unit = shares[dim].unit(block[dim]) * math.prod(block[dim + 1 :])
            row = math.prod(s.x.local_shape(s.mesh)[dim:])
            start = f"{s.operand} + {self.units_before(s, shares[dim])} * {factor_text(unit)}"
        else:
            row = piece * group
            start = f"{s.operand} + (size_t){s.names.factor_over(s.op.over)} * {factor_text(piece)}"
        return [self.rows(s.out, piece, start, row, rows, piece, s.y.dtype.bytes)]

    def units_before(self, s: Local, shares: GroupShares) -> str:
        """Return the units of the ranks of the group before this one."""
        self.needs.add("units_before")
        parts = s.names.parts_of(s.op.over, shares)
        return f"units_before({parts}, {s.names.index_over(s.op.over)})"

    def _concat(self, s: Local) -> list[str]:
        dim, shape = s.op.integer("dim"), s.y.local_shape(s.mesh)
        rows, row = math.prod(shape[:dim]), math.prod(shape[dim:])
        lines: list[str] = []
        offset = 0
        for name, operand, start in zip(s.operands, s.op.operands, s.starts, strict=True):
            x = dist_type(operand)
            piece = math.prod(x.local_shape(s.mesh)[dim:])
            if start != offset:
                to = self.place(s.out, offset)
                lines.append(self.rows(to, row, name, piece, rows, piece, x.dtype.bytes))
            offset += piece
        return lines

    def _assemble(self, s: Local) -> list[str]:
        copy_bytes = size_text(s.elements * s.y.dtype.bytes)
        lines: list[str] = []
        for index, (name, start) in enumerate(zip(s.operands, s.starts, strict=True)):
            if start != 0:
                place = place_at(digits_over(s.mesh, s.op.over, index))
                copy = self.copy(s.out, name, copy_bytes)
                lines.append(only_if(s.names.at_place(place), copy))
        return lines

    def _pad(self, s: Local) -> list[str]:
        dim, low, high = (s.op.integer(name) for name in ("dim", "low", "high"))
        before, after = s.x.local_shape(s.mesh), s.y.local_shape(s.mesh)
        rows, inner = math.prod(before[:dim]), math.prod(before[dim + 1 :])
        lines: list[str] = []
        if low > 0 or high > 0:
            lines = self.fill(s.out, s.elements, s.op.number("value"), s.y.dtype)
        kept = (before[dim] + min(low, 0) + min(high, 0)) * inner
        to = self.place(s.out, max(0, low) * inner)
        start = self.place(s.operand, -min(low, 0) * inner)
        strides = after[dim] * inner, before[dim] * inner
        return [*lines, self.rows(to, strides[0], start, strides[1], rows, kept, s.y.dtype.bytes)]

    def _transpose(self, s: Local) -> list[str]:
        shape = s.x.local_shape(s.mesh)
        kept = [d for d in range(len(shape)) if shape[d] != 1]
        order = [kept.index(d) for d in s.op.sizes("order") if d in kept]
        return self.transposed(s, [shape[d] for d in kept], order)

    LOCAL: ClassVar[Emitters[Local]] = OperationTable(
        "LocalSteps.LOCAL",
        __name__,
        {
            "add": _add,
            "scale": _scale,
            "cast": _cast,
            "mask": _mask,
            "slice": _slice,
            "concat": _concat,
            "assemble": _assemble,
            "pad": _pad,
            "transpose": _transpose,
        },
        row="a method that returns its statements in C",
    )
    """The statements of every step that sends nothing and is no view."""
