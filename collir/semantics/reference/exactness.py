"""A check that a function computes without rounding on the inputs that ``buffers`` generates.

Generated inputs are small numbers. Two numbers are tracked for every value: its elements, and
their reductions over any part of the devices, are multiples of ``unit`` and at most ``largest`` in
magnitude. As long as ``largest / unit`` fits the mantissa of the dtype, every order of computing
gives the same bits, and results may be compared bit by bit.
"""

import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.roles import Role, argument_roles
from collir.layout import DistType, DType, Mesh, Reduction
from collir.layout.operation_table import OperationTable
from collir.layout.structure import Linear
from collir.semantics.reference.buffers import NUMPY, PARAMETER
from collir.semantics.reference.steps import Effect, meaning_of
from collir.transforms.inlining import function_without_calls


@dataclass(frozen=True)
class _Grid:
    """The multiples of ``unit`` up to ``largest``; ``exact`` if no value has been rounded yet."""

    largest: Fraction
    unit: Fraction
    exact: bool = True

    def within(self, dtype: DType) -> "_Grid":
        """Return the grid, marked inexact if the dtype does not hold it; integers wrap exactly."""
        fits = not dtype.is_float or (
            self.largest / self.unit <= 2**dtype.mantissa and dtype.represents(float(self.largest))
        )
        return _Grid(self.largest, self.unit, self.exact and fits)

    def with_constant(self, value: Fraction, times: int = 1) -> "_Grid":
        """Return a grid that also holds up to ``times`` times a constant."""
        unit = Fraction(1, value.denominator)
        return _Grid(max(self.largest, abs(value) * times), min(self.unit, unit), self.exact)


def _constant(value: float, dtype: DType) -> Fraction:
    """Return a constant as the dtype holds it; 0 for an infinite one, which no step rounds."""
    if math.isinf(value):
        return Fraction(0)
    return Fraction(float(NUMPY[dtype].type(value))) if dtype.is_float else Fraction(int(value))


def _input(mesh: Mesh, x: DistType, role: Role | None) -> _Grid:
    """Return the grid of the buffers that ``distribute`` makes of a ``random_tensor``."""
    parts = mesh.group_size(x.partial)
    largest = {
        None: 3,
        Reduction.SUM: 3 + 2 * parts * max(1, min(3, 48 // parts)),
        Reduction.PROD: 3,
        Reduction.MAX: 6,
        Reduction.MIN: 6,
        Reduction.AVG: 5 * parts,
    }[x.reduction]
    unit = PARAMETER if role is Role.PARAMETER and x.dtype.is_float else 1
    return _Grid(Fraction(largest), Fraction(unit)).within(x.dtype)


_ROUNDED = _Grid(Fraction(1), Fraction(1), exact=False)
"""The grid of all values behind a rounding: their numbers would have ever more digits, to no
purpose."""


def exact(function: FuncOp) -> bool:
    """Return whether no result of a function is rounded on generated inputs, in any order of
    reducing."""
    return all(exact_results(function))


def exact_results(function: FuncOp, given: Container[SSAValue] = ()) -> list[bool]:
    """Return for each result of a function whether it depends on no step that rounds, in any order.

    Args:
        given: the arguments that may be any numbers; ``buffers`` generates the others.
    """
    mesh, roles = mesh_of(function), argument_roles(function)
    inputs = [
        _any_input(dist_type(x)) if x in given else _input(mesh, dist_type(x), role)
        for x, role in zip(function.args, roles, strict=True)
    ]
    function = function_without_calls(function)
    results = _Tracking(mesh).run(function.body.ops, zip(function.args, inputs, strict=True))
    return [grid.exact for grid in results]


def _any_input(x: DistType) -> _Grid:
    return _ROUNDED if x.dtype.is_float else _Grid(Fraction(2 ** (8 * x.dtype.bytes)), Fraction(1))


@dataclass(frozen=True)
class _Tracking:
    """The grids of the values of a program and its callees."""

    mesh: Mesh

    def run(
        self, ops: Iterable[Operation], arguments: Iterable[tuple[SSAValue, _Grid]]
    ) -> list[_Grid]:
        """Return the grids of what a program returns."""
        grids = dict(arguments)
        for op in ops:
            operands = [grids[operand] for operand in op.operands]
            if isinstance(op, DistOp):
                grids[op.result] = self._step(op, operands)
            elif isinstance(op, RepeatOp):
                grids.update(zip(op.results, self._loop(op, operands), strict=True))
            else:
                return operands
        return []

    def _step(self, op: DistOp, operands: list[_Grid]) -> _Grid:
        if not all(grid.exact for grid in operands):
            return _ROUNDED
        grid = _after(op, self.mesh, operands).within(dist_type(op.result).dtype)
        return grid if grid.exact else _ROUNDED

    def _loop(self, op: RepeatOp, operands: list[_Grid]) -> list[_Grid]:
        """Return the grids of the results of a loop: of the last carries, and of all iterations."""
        carries, args = len(op.carried), op.body.block.args
        carried, rest = operands[:carries], operands[carries:]
        stacks: list[list[_Grid]] = []
        for _ in range(op.times):
            yielded = self.run(op.body.block.ops, zip(args, [*carried, *rest], strict=True))
            stacks.append(yielded[carries:])
            if yielded[:carries] == carried:
                break  # all later iterations are like this one
            carried = yielded[:carries]
        return [*carried, *(_united(grids) for grids in zip(*stacks, strict=True))]


def _united(grids: Sequence[_Grid]) -> _Grid:
    """Return a grid that holds the values of several."""
    largest = max(grid.largest for grid in grids)
    return _Grid(largest, min(grid.unit for grid in grids), all(grid.exact for grid in grids))


def _after(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    if meaning_of(op.mnemonic).effect is not Effect.VALUES:
        return operands[0]
    return GRIDS[op.mnemonic](op, mesh, operands)


def _parts(op: DistOp, mesh: Mesh) -> int:
    """Return the largest number of parts that a partial operand has."""
    return max(mesh.group_size(dist_type(operand).partial) for operand in op.operands)


def _added(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    # A replicated value that is added to a partial value is counted once for each part.
    partial = [bool(dist_type(operand).partial) for operand in op.operands]
    times = [1 if own else _parts(op, mesh) for own in partial]
    total = sum((g.largest * n for g, n in zip(operands, times, strict=True)), Fraction(0))
    return _Grid(total, min(grid.unit for grid in operands), all(grid.exact for grid in operands))


def _joined(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    return _united(operands)


def _scaled(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    factor = _constant(op.number("factor"), dist_type(op.input).dtype)
    twos = factor.numerator & -factor.numerator or 1  # the largest power of two that divides it
    unit = operands[0].unit * Fraction(twos, factor.denominator)
    return _Grid(operands[0].largest * abs(factor), unit, operands[0].exact)


def _padded(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    if op.integer("low") <= 0 and op.integer("high") <= 0:
        return operands[0]
    value = _constant(op.number("value"), dist_type(op.input).dtype)
    return operands[0].with_constant(value, _parts(op, mesh))


def _cast(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    (grid,) = operands
    if DType(op.word("dtype")).is_float:
        return grid
    return _Grid(max(grid.largest, Fraction(1)), max(grid.unit, Fraction(1)), grid.exact)


def _multiplied(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    """Return the grid of a sum of products: of as many as the indices that the result lacks say."""
    largest, unit = Fraction(1), Fraction(1)
    structure = op.structure
    chosen = 1 if structure and structure.linear is Linear.PAIR else 0  # the last operand
    for grid in operands[: len(operands) - chosen]:
        largest, unit = largest * grid.largest, unit * grid.unit
    reduced = structure.reduced if structure else ()
    selected = structure.selected if structure else ()
    terms = (
        math.prod(int(structure.sizes[i]) for i in reduced if i not in selected) if structure else 1
    )
    return _Grid(largest * terms, unit, all(grid.exact for grid in operands))


def _truth(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    return _Grid(Fraction(1), Fraction(1), all(grid.exact for grid in operands))


def _chosen(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    return replace(_united(operands[1:]), exact=all(grid.exact for grid in operands))


def _inexact(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    return replace(_united(operands), exact=False)


def _same_everywhere(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    value = _constant(op.number("value"), dist_type(op.result).dtype)
    return _Grid(abs(value), Fraction(1, value.denominator))


def _accumulated(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    (grid,), terms = operands, dist_type(op.input).shape[op.integer("dim")]
    return _Grid(grid.largest * int(terms), grid.unit, grid.exact)


def _taken(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    return replace(operands[0], exact=all(grid.exact for grid in operands))


def _added_up(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    grid, terms = operands[0], dist_type(op.operands[1]).elements
    return _Grid(grid.largest * terms, grid.unit, all(grid.exact for grid in operands))


def _windowed(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    terms = math.prod(op.sizes("window"))
    grid = operands[0]
    return _Grid(grid.largest * terms, grid.unit, all(grid.exact for grid in operands))


def _position(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    last = dist_type(op.input).shape[op.integer("dim")] - 1
    return _Grid(Fraction(int(last)), Fraction(1), operands[0].exact)


def _counted(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    return _Grid(Fraction(dist_type(op.result).shape[op.integer("dim")] - 1), Fraction(1))


def _drawn(op: DistOp, mesh: Mesh, operands: list[_Grid]) -> _Grid:
    return _Grid(Fraction(1), Fraction(1, 2**32))


GRIDS: OperationTable[Callable[[DistOp, Mesh, list[_Grid]], _Grid]] = OperationTable(
    "GRIDS",
    __name__,
    {
        "add": _added,
        "concat": _joined,
        "assemble": _joined,
        "scale": _scaled,
        "pad": _padded,
        "cast": _cast,
        "einsum": _multiplied,
        "mul": _multiplied,
        "sum": _multiplied,
        "sub": _added,
        "neg": _joined,
        "stop_gradient": _joined,
        "relu": _joined,
        "max": _joined,
        "maximum": _joined,
        "minimum": _joined,
        "min": _joined,
        "where": _chosen,
        **dict.fromkeys(
            ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal"), _truth
        ),
        **dict.fromkeys(
            (
                "div",
                "exp",
                "log",
                "sqrt",
                "rsqrt",
                "tanh",
                "erf",
                "sigmoid",
                "sin",
                "cos",
                "silu",
                "gelu",
            ),
            _inexact,
        ),
        **dict.fromkeys(("softmax", "log_softmax", "cross_entropy"), _inexact),
        **dict.fromkeys(("mean", "layer_norm", "rms_norm"), _inexact),
        **dict.fromkeys(("avg_pool", "avg_pool_transpose"), _inexact),
        **dict.fromkeys(("argmax", "top_k_indices"), _position),
        "cumsum": _accumulated,
        "linear_scan": _inexact,
        "top_k": _joined,
        "take": _taken,
        "take_transpose": _added_up,
        "take_along_dim": _taken,
        "take_along_dim_transpose": _added_up,
        "grouped_matmul": _multiplied,
        "grouped_matmul_transpose": _multiplied,
        "one_hot": _truth,
        **dict.fromkeys(("conv", "conv_transpose", "conv_filter"), _multiplied),
        "max_pool_transpose": _windowed,
        "max_pool": _joined,
        "constant": _same_everywhere,
        "iota": _counted,
        "uniform": _drawn,
        "broadcast_to": _joined,
        "reinterpret": _joined,
    },
    row="a function that says whether its results on small integers are exact",
)
"""The grid of the result of every step that computes values, by the name of the step."""


def roundings(function: FuncOp) -> int:
    """Return an upper bound of the roundings behind an element of a result, for comparisons."""
    return 2 + _roundings(function_without_calls(function).body.ops, mesh_of(function))


def _roundings(ops: Iterable[Operation], mesh: Mesh) -> int:
    """Return an upper bound of the roundings of steps, with those in loops."""
    count = 0
    for op in ops:
        count += 1
        if isinstance(op, RepeatOp):
            count += op.times * _roundings(op.body.ops, mesh)
        elif isinstance(op, DistOp) and op.operands:
            reduced = dist_type(op.input).partial - dist_type(op.result).partial
            if reduced or op.mnemonic == "redistribute":
                count += mesh.group_size(reduced)
    return count
