"""The place of the batch in a value of a function, and the types of a part of the batch.

A function of a microbatch has two parameters in the place of one: the size of the microbatch, and
that of the whole batch. In a value, only the size of the dimension with the rows is a formula of
the first. Every other number read from the size of the batch means the second.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from collir.layout import DistType
from collir.layout.formulas import Formula
from collir.layout.sizes import formula_of, size_at, sized

ONE = Formula.constant(1)


class Over(Enum):
    """The reduction over the batch that made a value without rows of it."""

    SUM = auto()
    """A sum over the batch."""
    MEAN = auto()
    """A mean over the batch."""


@dataclass(frozen=True)
class Rows:
    """The dimension of a value along which the rows of the batch lie.

    Its positions consist of three indices, with the batch in the middle: in a dimension of ``batch
    * seq``, ``seq`` is inside of the batch.

    Attributes:
        outer, inner: the sizes of the indices outside and inside of the batch.
    """

    dim: int
    outer: Formula = ONE
    inner: Formula = ONE

    def at(self, dim: int) -> "Rows":
        """Return the same rows along another dimension."""
        return replace(self, dim=dim)


State = Rows | Over | None
"""The part of the batch in a value: its rows, a reduction over it, or nothing that differs between
microbatches."""


@dataclass(frozen=True)
class BatchSize:
    """The size of a batch, and of its parts.

    Attributes:
        part, whole: the parameters that are the sizes of a microbatch and of the whole batch.
        values: the parameters of the function, with the values that its sizes have.
    """

    part: str
    whole: str
    values: Mapping[str, int]

    def sized(self, formula: Formula) -> int:
        """Return the size that a formula gives."""
        return size_at(formula, self.values)

    def is_in(self, size: int) -> bool:
        """Return whether a size is a formula of the batch."""
        return self.part in formula_of(size).parameters

    def of_whole(self, size: int) -> int:
        """Return a size that depends on the batch as one of the whole batch."""
        if not self.is_in(size):
            return size
        whole = {self.part: Formula.parameter(self.whole)}
        return sized(int(size), formula_of(size).substituted(whole))

    def sizes(self, shape: Sequence[int], state: State) -> list[int]:
        """Return the sizes of a value of a microbatch."""
        sizes = [self.of_whole(size) for size in shape]
        if isinstance(state, Rows):
            formula = state.outer * Formula.parameter(self.part) * state.inner
            sizes[state.dim] = sized(int(shape[state.dim]), formula)
        return sizes

    def type(self, x: DistType, state: State) -> DistType:
        """Return the type of a value of a microbatch."""
        sizes = self.sizes(x.shape, state)
        dims = (replace(dim, size=size) for dim, size in zip(x.dims, sizes, strict=True))
        return replace(x, dims=tuple(dims))

    def rows(self, x: DistType) -> list[Rows]:
        """Return the ways in which a value may have the rows of the batch along one dimension.

        The formula ``batch * seq`` does not say which of the two is inside: both are returned, the
        batch outside first.
        """
        dims = [dim for dim, size in enumerate(x.shape) if self.is_in(size)]
        if len(dims) != 1:
            return []
        [dim] = dims
        times = formula_of(x.shape[dim]) / Formula.parameter(self.part)
        if self.part in times.parameters:
            return []
        ways = [Rows(dim, inner=times), Rows(dim, outer=times)]
        return ways if times != ONE else ways[:1]

    def fits(self, x: DistType, rows: Rows) -> bool:
        """Return whether a value of the whole batch has its rows in some place."""
        whole = rows.outer * Formula.parameter(self.whole) * rows.inner
        return formula_of(self.of_whole(x.shape[rows.dim])) == whole

    def reshaped(self, before: DistType, after: DistType, rows: Rows) -> Rows | None:
        """Return the rows after a step that only changes the shape; None if it moves them."""
        sizes = [*map(formula_of, self.sizes(before.shape, rows))]
        outer = _product(sizes[: rows.dim]) * rows.outer
        inner = rows.inner * _product(sizes[rows.dim + 1 :])
        whole = [formula_of(self.of_whole(size)) for size in after.shape]
        for dim, size in enumerate(after.shape):
            if not self.is_in(size):
                continue
            new = Rows(dim, outer / _product(whole[:dim]), inner / _product(whole[dim + 1 :]))
            if all(map(self._is_integer, (new.outer, new.inner))) and self.fits(after, new):
                return new
        return None

    def _is_integer(self, formula: Formula) -> bool:
        return formula.value(self.values).denominator == 1


def _product(formulas: Sequence[Formula]) -> Formula:
    return math.prod(formulas, start=ONE)
