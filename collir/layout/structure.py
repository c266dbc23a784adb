"""The index structure of an operation, and the typing rule that follows from it.

Every dimension of an operand or of the result runs over an index. An index of the result is passed
through; one that only operands have is reduced; a blocked index must not be sharded.
The layouts that an operation accepts, the state of its result, its work and its gradient follow
from that (as with MLIR's linalg and Shardy's sharding rules), so no table lists them by operation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from collir.layout.cuts import block_size, is_even
from collir.layout.dtypes import DType, Reduction
from collir.layout.errors import LayoutError
from collir.layout.mesh import Mesh
from collir.layout.sizes import quotient, same_size, without_formula
from collir.layout.types import Dim, DistType, check_type, place_text

REPEATED = ""
"""The index of a dimension of size 1 that is repeated along the others, or is new in the result."""


class Linear(Enum):
    """The linearity of an operation: the operands in which it is linear."""

    NOT = auto()
    EACH = auto()
    """In each of them alone, as a product is."""
    ALL = auto()
    """In all of them together, as a sum is."""
    FIRST = auto()
    """In the first alone; the others select, or divide it."""
    PAIR = auto()
    """In each of the first two alone, as a product is; the third selects."""

    def holds(self, number: int) -> bool:
        """Return whether an operation is linear in an operand alone."""
        last = {Linear.EACH: number, Linear.FIRST: 0, Linear.PAIR: 1}
        return number <= last.get(self, -1)


@dataclass(frozen=True)
class Structure:
    """The relation between the dimensions of operands and of the result.

    Attributes:
        operands: the index of each dimension, for every operand.
        result: the index of each dimension of the result.
        sizes: the size of every index; in the first operand, if dimensions are regrouped.
        reduction: the reduction over the indices that the result lacks.
        linear: whether partial operands may pass through.
        blocked: the indices of dimensions that must not be sharded.
        flops: floating-point operations for each point of all indices.
        selected: the indices of which an operation visits one position for each point of the
            others; they do not multiply its work.
        grouped: the selected indices over which work divides: positions are assumed to be spread
            evenly, so a device with a part of them has an equal part of the work.
        regrouped: the indices of dimensions that are split or merged.
    """

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]
    sizes: Mapping[str, int]
    reduction: Reduction = Reduction.SUM
    linear: Linear = Linear.NOT
    blocked: frozenset[str] = field(default=frozenset())
    flops: int = 1
    selected: frozenset[str] = field(default=frozenset())
    grouped: frozenset[str] = field(default=frozenset())
    regrouped: frozenset[str] = field(default=frozenset())

    @property
    def contracts(self) -> bool:
        """True if it sums products over indices, as a matrix product does."""
        multiplies = self.linear in (Linear.EACH, Linear.PAIR)
        return multiplies and len(self.operands) > 1 and bool(self.reduced)

    @property
    def reduced(self) -> tuple[str, ...]:
        """The indices that the result lacks, in order."""
        return tuple(index for index in self.sizes if index not in self.result)

    def local_flops(self, mesh: Mesh, operands: Sequence[DistType], result: DistType) -> int:
        """Return the operations of a device: on the largest blocks, if they differ."""
        points: dict[str, int] = {}
        for indices, x in zip((*self.operands, self.result), (*operands, result), strict=True):
            for index, dim in zip(indices, x.dims, strict=True):
                if index != REPEATED:
                    block = block_size(mesh, without_formula(dim.size), dim.axes)
                    points[index] = without_formula(block)
        work = self.flops * math.prod(n for i, n in points.items() if i not in self.selected)
        for index in self.grouped:
            work = quotient(work * points[index], without_formula(self.sizes[index]))
        return work


def index_text(index: str) -> str:
    """Return an index as messages write it.

    Those without a name are numbers of dimensions, behind a point if only one operand has them.
    """
    number = index.rpartition(".")[2]
    return f"dimension {number}" if number.isdigit() else f"`{index}`"


def dim_indices(x: DistType) -> tuple[str, ...]:
    """Return the numbers of the dimensions of a type as indices."""
    return tuple(map(str, range(len(x.dims))))


def sizes_of(
    name: str, operands: Sequence[DistType], indices: Sequence[Sequence[str]]
) -> dict[str, int]:
    """Return the size of every index of some operands.

    Raises:
        LayoutError: an index has two sizes.
    """
    first: dict[str, tuple[int, int]] = {}
    for number, (x, over) in enumerate(zip(operands, indices, strict=True)):
        for index, dim in zip(over, x.dims, strict=True):
            if index == REPEATED:
                continue
            owner, size = first.setdefault(index, (number, dim.size))
            if not same_size(size, dim.size):
                raise LayoutError(
                    f"{name} needs one size of {index_text(index)}: it is {size} in "
                    f"{{{owner}}} and {dim.size} in {{{number}}}",
                    operand=number,
                )
    return {index: size for index, (_, size) in first.items()}


def map_structure(
    name: str, operands: Sequence[DistType], linear: Linear = Linear.NOT, flops: int = 1
) -> Structure:
    """Return the structure of an elementwise operation, with numpy's broadcasting.

    Raises:
        LayoutError: two sizes of a dimension, neither of them 1.
    """
    rank = max(len(x.dims) for x in operands)
    largest = [
        max(x.shape[d - rank + len(x.dims)] for x in operands if d >= rank - len(x.dims))
        for d in range(rank)
    ]
    indices = [
        tuple(
            REPEATED if same_size(dim.size, 1) and largest[d] > 1 else str(d)
            for d, dim in enumerate(x.dims, rank - len(x.dims))
        )
        for x in operands
    ]
    sizes = sizes_of(name, operands, indices)
    return Structure(
        tuple(indices), tuple(map(str, range(rank))), sizes, linear=linear, flops=flops
    )


def typed(
    name: str, mesh: Mesh, structure: Structure, operands: Sequence[DistType], dtype: DType
) -> DistType:
    """Return the type of the result of an operation.

    Raises:
        LayoutError: operands do not agree on the sub-axes of an index or on their place, a blocked
            index is sharded, two indices are sharded over one sub-axis, or a partial operand does
            not pass through.
    """
    axes = _axes_of(name, mesh, structure, operands)
    for number, x in enumerate(operands):
        if x.place != operands[0].place:
            first, second = (place_text(y.place, mesh) or "everywhere" for y in (operands[0], x))
            raise LayoutError(
                f"{name} runs where its operands are: {{0}} is at {first} and {{{number}}} at "
                f"{second}: keep or send one of them first",
                operand=number,
            )
    partial, reduction = _passed(name, mesh, structure, operands, axes)
    summed = [axis for index in structure.reduced for axis in axes.get(index, ())]
    if summed and reduction not in (None, structure.reduction):
        raise LayoutError(
            f"{name} would be partial({reduction}) and partial({structure.reduction}) at once: "
            f"all_reduce an operand first"
        )
    _check_average(name, mesh, structure, axes)
    dims = tuple(
        Dim(1) if index == REPEATED else Dim(structure.sizes[index], axes.get(index, ()))
        for index in structure.result
    )
    partial |= frozenset(summed)
    kept = reduction or (structure.reduction if summed else None)
    result = DistType(dtype, dims, partial, kept, operands[0].place)
    check_type(mesh, result)
    return result


def _check_average(
    name: str, mesh: Mesh, structure: Structure, axes: Mapping[str, tuple[str, ...]]
) -> None:
    """Check that averaged blocks have one size, so that the average of their averages is the
    average of the whole.

    Raises:
        LayoutError: their sizes differ.
    """
    for index in structure.reduced if structure.reduction is Reduction.AVG else ():
        if not is_even(mesh, axes.get(index, ())):
            raise LayoutError(
                f"{{0}} has {index_text(index)} sharded over {_shown(mesh, axes[index])}, in "
                f"blocks of several sizes, whose averages do not count the same in {name}: sum it "
                "and scale the sum, or all_gather {0} first",
                operand=0,
                axes=axes[index],
            )


def _axes_of(
    name: str, mesh: Mesh, structure: Structure, operands: Sequence[DistType]
) -> dict[str, tuple[str, ...]]:
    """Return the sub-axes of every index of the operands."""
    known: dict[str, tuple[int, tuple[str, ...]]] = {}
    for number, (indices, x) in enumerate(zip(structure.operands, operands, strict=True)):
        for index, dim in zip(indices, x.dims, strict=True):
            if index == REPEATED:
                continue
            if dim.axes and index in structure.blocked:
                raise LayoutError(
                    f"{name} needs the whole of {index_text(index)} on every device, and "
                    f"{{{number}}} has it sharded over {_shown(mesh, dim.axes)}: all_gather "
                    f"{{{number}}} first",
                    operand=number,
                    axes=dim.axes,
                )
            owner, axes = known.setdefault(index, (number, dim.axes))
            if axes != dim.axes:
                raise _disagreement(mesh, index, (owner, axes), (number, dim.axes))
    taken: dict[str, tuple[int, str]] = {}
    for index, (owner, axes) in known.items():
        for axis in axes:
            earlier, before = taken.setdefault(axis, (owner, index))
            if before != index:
                raise LayoutError(
                    f"{index_text(before)} of {{{earlier}}} and {index_text(index)} of {{{owner}}} "
                    f"are both sharded over {_shown(mesh, (axis,))}: all_gather one of them first",
                    operand=owner,
                    axes=(axis,),
                )
    return {index: axes for index, (_, axes) in known.items()}


def _disagreement(
    mesh: Mesh, index: str, first: tuple[int, tuple[str, ...]], second: tuple[int, tuple[str, ...]]
) -> LayoutError:
    """Return the error that two operands have an index over different sub-axes."""
    what = index_text(index)
    if first[1] and second[1]:
        (a, axes), (b, others) = first, second
        message = (
            f"{{{a}}} has {what} sharded over {_shown(mesh, axes)} and {{{b}}} over "
            f"{_shown(mesh, others)}: redistribute one of them"
        )
    else:
        (a, axes), (b, _) = (first, second) if first[1] else (second, first)
        message = (
            f"{{{a}}} has {what} sharded over {_shown(mesh, axes)} and {{{b}}} has not: slice "
            f"{{{b}}}, or all_gather {{{a}}}"
        )
    return LayoutError(message, operand=second[0], axes=first[1] or second[1])


def _passed(
    name: str,
    mesh: Mesh,
    structure: Structure,
    operands: Sequence[DistType],
    axes: Mapping[str, tuple[str, ...]],
) -> tuple[frozenset[str], Reduction | None]:
    """Return the sub-axes over which partial operands leave the result partial, and how."""
    partial = [number for number, x in enumerate(operands) if x.partial]
    if not partial:
        return frozenset(), None
    first = operands[partial[0]]
    reduction, shown = first.reduction, _shown(mesh, mesh.ordered(first.partial))

    def error(problem: str, advice: str) -> LayoutError:
        return LayoutError(
            f"{{{partial[0]}}} is partial({reduction}) over {shown} here; {problem}: {advice}",
            operand=partial[0],
            axes=mesh.ordered(first.partial),
        )

    alone = f"all_reduce {{{partial[0]}}} first"
    monoid = len(operands) == 1 and reduction is structure.reduction and structure.reduced
    if monoid and reduction is not Reduction.SUM:
        return first.partial, reduction
    if structure.linear is Linear.NOT:
        raise error(f"{name} is not linear in it", alone)
    if structure.linear is not Linear.ALL and not structure.linear.holds(partial[0]):
        which = "{0} and {1}" if structure.linear is Linear.PAIR else "{0}"
        raise error(f"{name} is linear in {which} alone", alone)
    if not (reduction and reduction.linear):
        raise error(f"{name} is linear, and a {reduction} is not", alone)
    if structure.linear is Linear.ALL:
        deviating = next((n for n, x in enumerate(operands) if _state(x) != _state(first)), None)
        if deviating is not None:
            raise error(
                f"{name} needs {{{deviating}}} partial too", f"{alone}, or mask {{{deviating}}}"
            )
        return first.partial, reduction
    if len(partial) > 1:
        both = all(map(structure.linear.holds, partial))
        why = f"{name} multiplies them" if both else f"{name} is linear in the first alone"
        raise error(f"{{{partial[1]}}} is partial too, and {why}", alone)
    sharded = {axis for indices in axes.values() for axis in indices}
    if both := mesh.ordered(first.partial & sharded):
        raise error(f"another operand is sharded over {_shown(mesh, both)}", alone)
    return first.partial, reduction


def _state(x: DistType) -> tuple[frozenset[str], Reduction | None]:
    return x.partial, x.reduction


def _shown(mesh: Mesh, axes: Sequence[str]) -> str:
    return ", ".join(mesh.short(axes))
