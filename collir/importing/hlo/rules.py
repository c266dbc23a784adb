"""The layouts of the results of XLA's instructions on the devices, given those of the operands."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collir.importing.hlo.groups import Digit, GroupsError, permuted_digits
from collir.importing.hlo.mesh import MeshPieces
from collir.importing.hlo.states import (
    Along,
    NotTyped,
    Table,
    ValueState,
    added,
    as_stack,
    divided,
    joined,
    of_table,
    reshaped,
    stack_of,
    uniform,
    whole,
)
from collir.importing.hlo.text import HloComputation, HloInstruction

REDUCERS = {
    "add": "sum", "maximum": "max", "minimum": "min", "multiply": "prod", "and": "and", "or": "or",
}  # fmt: skip
"""The reductions of computations with a single operation on two parameters."""

_LINEAR = frozenset({"negate", "copy", "convert", "bitcast", "transpose", "reshape", "broadcast"})
"""Operations that go through a sum over devices."""

MAPS = frozenset({
    "abs", "add", "and", "atan2", "bitcast-convert", "cbrt", "ceil", "clamp", "compare", "complex",
    "convert", "copy", "cosine", "count-leading-zeros", "divide", "erf", "exponential",
    "exponential-minus-one", "floor", "imag", "is-finite", "log", "log-plus-one", "logistic",
    "maximum", "minimum",
    "multiply", "negate", "not", "or", "popcnt", "power", "real", "reduce-precision", "remainder",
    "round-nearest-afz", "round-nearest-even", "rsqrt", "select", "shift-left",
    "shift-right-arithmetic", "shift-right-logical", "sign", "sine", "sqrt", "stochastic-convert",
    "subtract", "tan", "tanh", "xor",
})  # fmt: skip
"""Functions of elements."""

_DEEP = 8
"""The most calls that a reduction is inside of."""

_MOST = 2**20
"""The most numbers of all devices that are computed."""


@dataclass(frozen=True)
class HloRules:
    """The rules, on a mesh.

    Attributes:
        computations: the computations that instructions name, by their names.
    """

    pieces: MeshPieces
    devices: int
    computations: dict[str, HloComputation]

    def size_of(self, piece: int) -> int:
        """Return the size of a piece."""
        return self.pieces.pieces[piece].digit.size

    def coordinates(self, pieces: Sequence[int]) -> Table:
        """Return the number of each device on pieces, the first the most significant."""
        ids, made = np.arange(self.devices), np.zeros(self.devices, dtype=np.int64)
        for n in pieces:
            digit = self.pieces.pieces[n].digit
            made = made * digit.size + ids // digit.stride % digit.size
        return made

    def varying(self, table: Table) -> frozenset[int]:
        """Return the pieces that numbers of devices depend on."""
        varying_digits: set[int] = set()
        flat = table.reshape(self.devices, -1)
        for n, piece in enumerate(self.pieces.pieces):
            digit = piece.digit
            shape = (self.devices // digit.end, digit.size, digit.stride, flat.shape[1])
            cube = flat.reshape(shape)
            if not (cube == cube[:, :1]).all():
                varying_digits.add(n)
        return frozenset(varying_digits)

    def digits_in(self, table: Table, step: int) -> tuple[int, ...]:
        """Return the pieces that number blocks: those whose coordinate times a step a table is.

        Raises:
            NotTyped: it is no such table.
        """
        varying = self.varying(table)
        flat = table.reshape(self.devices)
        weights: list[tuple[int, int]] = []
        for n in varying:
            digit = self.pieces.pieces[n].digit
            weights.append((int(flat[digit.stride] - flat[0]), n))
        order = tuple(n for _, n in sorted(weights, reverse=True))
        if not np.array_equal(flat, self.coordinates(order) * step):
            raise NotTyped("where a part begins is no multiple of a number of the device")
        return order

    def check_begins(self, table: Table, varying: frozenset[int]) -> None:
        """Check that numbers looked up by the number of a device count blocks.

        Raises:
            NotTyped: they are no sums of multiples of coordinates.
        """
        flat = table.reshape(self.devices, -1)
        sums = np.zeros_like(flat)
        for n in varying:
            digit = self.pieces.pieces[n].digit
            sums += self.coordinates([n])[:, None] * (flat[digit.stride] - flat[0])
        if not np.array_equal(flat, sums + flat[0]) or (flat < flat[0]).any():
            raise NotTyped("numbers of the devices are no places of blocks")

    def reducer(self, name: str) -> str:
        """Return how a computation reduces two numbers.

        Raises:
            NotTyped: it is no known reduction.
        """
        steps = [*self._steps(name.strip("%"))]
        if len(steps) != 1 or steps[0] not in REDUCERS:
            raise NotTyped(f"{name} is no known reduction")
        return REDUCERS[steps[0]]

    def _steps(self, name: str, depth: int = 0) -> Iterator[str]:
        """Yield the operations of a computation, but for conversions."""
        own = self.computations.get(name)
        for x in own.instructions if own is not None and depth < _DEEP else []:
            if inner := x.attributes.get("calls") or x.attributes.get("to_apply"):
                yield from self._steps(inner.strip("%"), depth + 1)
            elif x.opcode not in ("parameter", "convert", "bitcast", "copy", "reduce-precision"):
                yield x.opcode

    def result(self, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
        """Return how the result of an instruction lies.

        Raises:
            NotTyped: that is not known.
        """
        if (table := _known(x, operands)) is not None:
            made = of_table(table, x.shape.sizes, self.varying(table))
            if x.opcode == "dynamic-slice" and made.stacked:
                self.check_begins(table, made.stacked)
            return made
        if x.opcode == "map":
            [*steps] = self._steps(x.attributes.get("to_apply", "").strip("%"))
            x = replace(x, opcode=steps[0] if len(steps) == 1 else "map")
        rule = _RULES.get(x.opcode)
        if rule is None:
            raise NotTyped(f"there is no rule for {x.opcode}")
        made = rule(self, x, operands)
        if made.sizes != x.shape.sizes:
            raise NotTyped(f"its blocks would be {[*made.sizes]}, not {[*x.shape.sizes]}")
        return made


Rule = Callable[[HloRules, HloInstruction, Sequence[ValueState]], ValueState]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return add


# --- integers that are known on each device -------------------------------------------------------

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.logical_not, "convert": np.array, "copy": np.array, "negate": np.negative,
    "select": np.where, "remainder": np.fmod,
}  # fmt: skip
_COMPARISONS = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
    "GE": np.greater_equal,
}  # fmt: skip


def _known(x: HloInstruction, operands: Sequence[ValueState]) -> Table | None:
    """Return the integers that an instruction gives on each device, if its operands are known."""
    kind = x.shape.dtype
    if x.shape.parts is not None or not (kind == "pred" or kind[0] in "su") or not operands:
        return None
    tables = [y.table for y in operands]
    if any(t is None for t in tables) or x.shape.elements * len(tables[0]) > _MOST:  # pyright: ignore
        return None
    given: list[Table] = [t for t in tables if t is not None]
    devices = len(given[0])
    if x.opcode == "compare" and (how := x.attributes.get("direction")) in _COMPARISONS:
        return _COMPARISONS[how](*given)
    if x.opcode == "divide":
        quotient = np.where(given[1] == 0, 0, np.trunc(given[0] / np.where(given[1], given[1], 1)))
        return quotient.astype(np.int64)
    if x.opcode == "clamp":
        return np.minimum(np.maximum(given[1], given[0]), given[2])
    if x.opcode in _ARITHMETIC:
        return _ARITHMETIC[x.opcode](*given)
    if x.opcode in ("reshape", "bitcast"):
        return given[0].reshape(devices, *x.shape.sizes)
    if x.opcode == "broadcast":
        places = x.numbers("dimensions")
        sizes = [1] * len(x.shape.sizes)
        for place, size in zip(places, given[0].shape[1:], strict=True):
            sizes[place] = size
        return np.broadcast_to(given[0].reshape(devices, *sizes), (devices, *x.shape.sizes))
    if x.opcode == "dynamic-slice":
        source, starts = given[0], given[1:]
        cut = x.numbers("dynamic_slice_sizes")
        rows = [
            source[n][tuple(
                slice(at := int(np.clip(start[n], 0, room - size)), at + size)
                for start, size, room in zip(starts, cut, source.shape[1:], strict=True)
            )]
            for n in range(devices)
        ]  # fmt: skip
        return np.stack(rows)
    return None


# --- elements -------------------------------------------------------------------------------------


@_rule(*MAPS)
def _map(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    wide = [y if y.dims or not x.shape.sizes else replace(y, dims=uniform(x.shape.sizes).dims)
            for y in operands]  # fmt: skip
    made = joined(_of_places(x, wide))
    partial = [y for y in operands if y.partial]
    if not partial:
        chosen = operands[1:] if x.opcode == "select" else operands
        same = {y.number for y in chosen} if x.opcode in ("copy", "convert", "select") else {None}
        number = same.pop() if len(same) == 1 else None
        hidden = any(y.is_hidden and not any(a.axes == () and b.axes for a, b in
                     zip(y.dims, made.dims, strict=False)) for y in wide)  # fmt: skip
        return replace(made, number=number, shift=_shift(x, operands), is_hidden=hidden)
    first = partial[0]
    same = all(y.partial == first.partial and y.kind == first.kind for y in partial)
    others = [y for y in wide if not y.partial]
    kept = (
        x.opcode in _LINEAR
        or (x.opcode in ("add", "subtract") and first.kind == "sum" and not others)
        or (x.opcode in ("add", "subtract") and first.kind == "sum"
            and all(y.number == 0 for y in others))
        or (x.opcode == "multiply" and len(partial) == 1 and first.kind == "sum")
        or (x.opcode == "divide" and wide[0].partial and len(partial) == 1 and first.kind == "sum")
        or (x.opcode == "select" and not wide[0].partial and first.kind == "sum"
            and all(y.number == 0 for y in wide[1:] if not y.partial))
    )  # fmt: skip
    if not same or not kept or (x.opcode == "convert" and not _floats(x)):
        raise NotTyped(f"{x.opcode} takes a value that is partial over {_shown(rules, first)}")
    return added(made, first.partial, first.kind)


def _shift(x: HloInstruction, operands: Sequence[ValueState]) -> tuple[int, ...]:
    """Return the number of each device that is subtracted from places."""
    if x.opcode == "subtract" and (table := operands[1].table) is not None:
        if not operands[1].stacked:
            return ()
        flat = table.reshape(len(table), -1)
        return tuple(int(n) for n in flat[:, 0]) if (flat == flat[:, :1]).all() else ()
    shifts = {y.shift for y in operands if y.shift}
    kept = ("clamp", "maximum", "minimum", "convert", "copy", "select")
    return shifts.pop() if x.opcode in kept and len(shifts) == 1 else ()


def _of_places(x: HloInstruction, operands: Sequence[ValueState]) -> Sequence[ValueState]:
    """Return the operands of a computation of places; where one of them counts from the beginning
    of each block, all are stacks of blocks."""
    return _of_blocks(operands) if x.shape.dtype[0] in "sup" else operands


def _of_blocks(operands: Sequence[ValueState]) -> Sequence[ValueState]:
    """Return operands as stacks of blocks where one of them is divided and another is not."""
    for d in range(len(operands[0].dims)):
        axes = {y.dims[d].axes for y in operands} - {None}
        if len(axes) > 1 and () in axes:
            operands = [_undivided(y, [d]) for y in operands]
    return operands


def _floats(x: HloInstruction) -> bool:
    return x.shape.dtype[0] in "fb"


def _shown(rules: HloRules, x: ValueState) -> str:
    return rules.pieces.listed(sorted(x.partial))


@_rule("broadcast")
def _broadcast(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    [own], places = operands, x.numbers("dimensions")
    dims = list(uniform(x.shape.sizes).dims)
    for place, dim in zip(places, own.dims, strict=True):
        dims[place] = dim
    return own.with_dims(dims)


@_rule("reshape", "bitcast")
def _reshape(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    return reshaped(operands[0], x.shape.sizes)


@_rule("transpose")
def _transpose(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    [own] = operands
    return own.with_dims([own.dims[d] for d in x.numbers("dimensions")])


@_rule("iota")
def _iota(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    [along] = x.numbers("iota_dimension")
    sizes = x.shape.sizes
    return ValueState(tuple(Along(n, () if d == along else None) for d, n in enumerate(sizes)))


@_rule("opt-barrier", "optimization-barrier", "domain", "all-gather-done", "all-reduce-done")
def _same(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    return operands[0]


# --- parts and joins ------------------------------------------------------------------------------


def _undivided(state: ValueState, dims: Sequence[int]) -> ValueState:
    """Return it as a stack of the blocks that devices have of some dimensions."""
    return as_stack(state, [n for d in dims for n in state.dims[d].pieces])


@_rule("slice", "pad")
def _slice(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    own = operands[0]
    changed = [d for d, n in enumerate(x.shape.sizes) if n != own.dims[d].size]
    if x.opcode == "pad" and changed and operands[1].number != 0 and own.partial:
        raise NotTyped("it pads a value that is partial")
    if x.opcode == "slice" and not changed:
        return own
    config = x.attributes.get("padding", "")
    if x.opcode == "pad":
        parts = config.split("x")
        changed = [d for d, part in enumerate(parts) if any(int(n) for n in part.split("_"))]
    own = _undivided(own, changed)
    kept = x.opcode == "slice"
    dims = [Along(n, (own.dims[d].axes if kept else ()) if d in changed else own.dims[d].axes)
            for d, n in enumerate(x.shape.sizes)]  # fmt: skip
    return own.with_dims(dims)


@_rule("reverse", "concatenate")
def _along(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    dims = x.numbers("dimensions")
    operands = [_undivided(own, dims) for own in operands]
    sized = [
        replace(own, dims=tuple(Along(x.shape.sizes[d], ()) if d in dims else dim
                                for d, dim in enumerate(own.dims)))
        for own in operands
    ]  # fmt: skip
    partial = {own.partial for own in operands}
    if len(partial) > 1:
        raise NotTyped("its operands are partial in different ways")
    shifts = {own.shift for own in operands if own.shift}
    made = replace(joined(_of_places(x, sized)), shift=shifts.pop() if len(shifts) == 1 else ())
    return added(made, partial.pop(), operands[0].kind)


@_rule("dynamic-slice")
def _dynamic_slice(
    rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]
) -> ValueState:
    own, *starts = operands
    if own.is_hidden or (len(own.dims) == 1 and starts[0].is_hidden):
        return replace(whole(x.shape.sizes), is_hidden=True)
    flat_start = starts[0] if len(starts) == 1 and len(own.dims) > 1 else None
    begins = starts if flat_start is None else [flat_start] * len(own.dims)
    own = _undivided(own, [d for d, n in enumerate(x.shape.sizes)
                           if n != own.dims[d].size
                           and not begins[d].stacked and not begins[d].is_hidden])  # fmt: skip
    dims: list[Along] = []
    stacked = own.stacked
    for d, (dim, size) in enumerate(zip(own.dims, x.shape.sizes, strict=True)):
        if size == dim.size:
            dims.append(dim)
            continue
        start = begins[d]
        table = start.table
        if start.is_hidden:
            dims.append(Along(size, (*dim.pieces, *_fitting(rules, own, dim.size // size))))
            continue
        if table is None or not start.stacked:
            stacked |= start.stacked | frozenset(dim.pieces if start.stacked else ())
            dims.append(Along(size, () if start.stacked else dim.axes))
            continue
        try:
            pieces = rules.digits_in(table, size)
            if math.prod(map(rules.size_of, pieces)) * size != dim.size:
                raise NotTyped("the parts of the devices are not all of the array")
        except NotTyped:
            if x.shape.dtype[0] not in "su":
                raise
            stacked, pieces = stacked | start.stacked | frozenset(dim.pieces), ()
            dim = Along(dim.size)
        dims.append(Along(size, (*dim.pieces, *pieces)))
    return replace(own, stacked=stacked).with_dims(dims)


def _fitting(rules: HloRules, own: ValueState, count: int) -> tuple[int, ...]:
    """Return the only pieces of one axis that number the parts of a value.

    Raises:
        NotTyped: there are several, or none.
    """
    used = own.axes | own.partial | own.stacked
    free = [n for n in range(len(rules.pieces.pieces)) if n not in used]
    fitting = [n for n in free if rules.size_of(n) == count]
    if math.prod(map(rules.size_of, free)) == count:
        return tuple(free)
    if len(fitting) != 1:
        raise NotTyped("where parts begin is left out of the text (--xla_dump_large_constants)")
    return (fitting[0],)


@_rule("dynamic-update-slice")
def _dynamic_update(
    rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]
) -> ValueState:
    own, part, *starts = operands
    changed = [d for d, dim in enumerate(part.dims) if dim.size != own.dims[d].size]
    own, part = (_undivided(state, changed) for state in (own, part))
    stacked = frozenset[int]().union(*(s.stacked for s in starts))
    sized = tuple(Along(own.dims[d].size, ()) if d in changed else dim
                  for d, dim in enumerate(part.dims))  # fmt: skip
    base = replace(own, dims=tuple(Along(dim.size, ()) if d in changed else dim
                                   for d, dim in enumerate(own.dims)))  # fmt: skip
    made = joined(
        [replace(base, partial=frozenset()), replace(part, dims=sized, partial=frozenset())]
    )
    made = replace(made, stacked=made.stacked | stacked).with_dims(made.dims)
    if own.partial != part.partial and own.number != 0:
        raise NotTyped("a part is partial, and what it is written to is not")
    return added(made, part.partial, part.kind)


def _check_places(rules: HloRules, dims: Sequence[Along], places: ValueState) -> None:
    """Check that places in a divided dimension count from the beginning of each block.

    Raises:
        NotTyped: they count from elsewhere.
    """
    divided = [dim for dim in dims if dim.pieces]
    begins = [rules.coordinates(dim.pieces) * dim.size for dim in divided]
    if begins and places.shift and not any(np.array_equal(x, places.shift) for x in begins):
        raise NotTyped("its places count from where no block begins")


@_rule("gather")
def _gather(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    """Whole rows at places; of a dimension that is divided, each device takes rows of its block."""
    own, places = operands
    offset, collapsed = x.numbers("offset_dims"), x.numbers("collapsed_slice_dims")
    named, sizes = x.numbers("start_index_map"), x.numbers("slice_sizes")
    stacked = x.numbers("operand_batching_dims")
    beside = x.numbers("start_indices_batching_dims")
    last = int(x.attributes.get("index_vector_dim", len(places.dims)))
    kept = [d for d in range(len(own.dims)) if d not in collapsed and d not in stacked]
    single = [d for d in kept if d in named and sizes[d] == 1]
    if any(sizes[d] != own.dims[d].size for d in kept if d not in single):
        raise NotTyped("it takes parts of dimensions")
    _check_places(rules, [own.dims[d] for d in named], places)
    own = as_stack(own, [n for d in named for n in own.dims[d].pieces])
    along = own.stacked | places.stacked
    made = ValueState(partial=own.partial, kind=own.kind, stacked=along)
    if places.partial:
        raise NotTyped("its places are partial")
    outer = [dim for d, dim in enumerate(places.dims) if d != last]
    numbers = [d for d in range(len(places.dims)) if d != last]
    for d, e in zip(stacked, beside, strict=True):
        joined_dim = joined([ValueState((own.dims[d],)), ValueState((places.dims[e],))]).dims[0]
        outer[numbers.index(e)] = joined_dim
    inner = iter(Along(1) if d in single else own.dims[d] for d in kept)
    rest = iter(outer)
    dims = [next(inner) if d in offset else next(rest) for d in range(len(x.shape.sizes))]
    return made.with_dims([Along(dim.size, dim.pieces) for dim in dims])


@_rule("scatter")
def _scatter(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    """Add rows at places; their sum over the devices is that of all rows."""
    if len(operands) != 3:
        raise NotTyped("it scatters several arrays")
    own, places, updates = operands
    windows, inserted = x.numbers("update_window_dims"), x.numbers("inserted_window_dims")
    named, stacked = x.numbers("scatter_dims_to_operand_dims"), x.numbers("input_batching_dims")
    beside = x.numbers("scatter_indices_batching_dims")
    last = int(x.attributes.get("index_vector_dim", len(places.dims)))
    if rules.reducer(x.attributes.get("to_apply", "")) != "sum":
        raise NotTyped("it does not add rows")
    kept = [d for d in range(len(own.dims)) if d not in inserted and d not in stacked]
    inner = dict(zip(kept, (updates.dims[d] for d in windows), strict=True))
    for d in [d for d in inner if d in named and inner[d].size == 1]:
        del inner[d]
    kept = [*inner]
    if any(inner[d].size != own.dims[d].size for d in kept):
        raise NotTyped("it writes parts of dimensions")
    free = [d for d in range(len(updates.dims)) if d not in windows]
    outer = [d for d in range(len(places.dims)) if d != last]
    local = [
        d for d, e in zip(free, outer, strict=True)
        if places.dims[e].axes == () and places.stacked.issuperset(updates.dims[d].pieces)
    ]  # fmt: skip
    updates = _undivided(updates, local)
    pairs = {e: joined([ValueState((updates.dims[d],)), ValueState((places.dims[e],))]).dims[0]
             for d, e in zip(free, outer, strict=True)}  # fmt: skip
    over = frozenset(n for e, dim in pairs.items() if e not in beside for n in dim.pieces)
    dims: list[Along] = []
    for d, dim in enumerate(own.dims):
        if d in inner:
            dims.append(inner[d])
        elif d in stacked:
            dims.append(pairs[beside[stacked.index(d)]])
        else:
            dims.append(Along(dim.size, ()))
    along = updates.stacked | places.stacked
    if places.stacked and len(named) == 1:  # each device writes rows of its block
        pieces = tuple(sorted(places.stacked))
        _check_places(rules, [Along(own.dims[named[0]].size, pieces)], places)
        dims[named[0]] = Along(own.dims[named[0]].size, pieces)
        along -= places.stacked
    made = ValueState(stacked=along, is_hidden=places.is_hidden).with_dims(dims)
    made = added(added(made, over, "sum"), updates.partial, updates.kind)
    if own.number == 0:
        return made
    if not own.stacked.issuperset(made.partial) or own.partial:
        raise NotTyped("it adds rows of all devices to what each of them has")
    stack = replace(made, partial=frozenset(), stacked=made.stacked | made.partial)
    return joined([own, stack])


@_rule("custom-call")
def _call_of_library(
    rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]
) -> ValueState:
    """A product of cuBLAS, or the largest elements, as the name of what is called says."""
    target = x.attributes.get("custom_call_target", "").strip('"')
    if "gemm" in target or "matmul" in target:
        return _product_of_library(x, operands)
    if target == "TopK":
        return _top(rules, x, operands)
    raise NotTyped(f"there is no rule for a call of {target or 'a library'}")


@_rule("topk")
def _top(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    """The largest elements along the last dimension."""
    own = _undivided(operands[0], [len(operands[0].dims) - 1])
    if own.partial:
        raise NotTyped("it sorts what is partial")
    return own.with_dims([*own.dims[:-1], Along(x.shape.sizes[-1])])


@_rule("sort")
def _sort(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    dims = x.numbers("dimensions")
    if any(own.partial for own in operands):
        raise NotTyped("it sorts what is partial")
    return joined([_undivided(own, dims) for own in operands])


# --- sums and products ----------------------------------------------------------------------------


@_rule("reduce")
def _reduce(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    over = x.numbers("dimensions")
    if len(operands) != 2:
        return _reduced_together(operands, over)
    own, kind = operands[0], rules.reducer(x.attributes.get("to_apply", ""))
    if own.partial and own.kind != kind:
        raise NotTyped(f"it reduces what is partial over {_shown(rules, own)}")
    pieces = frozenset(n for d in over for n in own.dims[d].pieces)
    kept = [dim for d, dim in enumerate(own.dims) if d not in over]
    return added(own.with_dims(kept), pieces, kind)


def _reduced_together(operands: Sequence[ValueState], over: Sequence[int]) -> ValueState:
    """Return a reduction of several arrays by a function of its own, such as the place of the
    largest element; what is divided along its dimensions is one for each block."""
    own = joined(_of_blocks(operands[: len(operands) // 2]))
    if any(x.partial for x in operands):
        raise NotTyped("it reduces several arrays that are partial")
    own = _undivided(own, over)
    return own.with_dims([dim for d, dim in enumerate(own.dims) if d not in over])


@_rule("dot")
def _dot(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    left, right = operands
    sums = x.numbers("lhs_contracting_dims"), x.numbers("rhs_contracting_dims")
    batch = x.numbers("lhs_batch_dims"), x.numbers("rhs_batch_dims")
    return product(left, right, sums, batch)


def _product_of_library(x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    """Return how the product of a call of cuBLAS lies; its workspace is one of each device."""
    text = x.attributes.get("backend_config", "")
    dims = [[int(n) for n in re.findall(r"\d+", match[1])] if match else [] for match in (
        re.search(rf'{name}_dimensions"?:\s*\[([^\]]*)\]', text)
        for name in ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch"))]  # fmt: skip
    if x.shape.dtype == "s8" and len(x.shape.sizes) == 1:
        return whole(x.shape.sizes)
    if len(operands) != 2 or not dims[0]:
        raise NotTyped("it is a product with more operands")
    return product(operands[0], operands[1], dims[:2], dims[2:])


def product(
    left: ValueState,
    right: ValueState,
    sums: Sequence[Sequence[int]],
    batch: Sequence[Sequence[int]],
) -> ValueState:
    """Return how a product lies.

    Raises:
        NotTyped: it sums over dimensions that lie in different ways.
    """
    if left.partial and right.partial:
        raise NotTyped("it multiplies what is partial")
    over: set[int] = set()
    pairs = [*zip(sums[0], sums[1], strict=True)], [*zip(batch[0], batch[1], strict=True)]
    for a, b in (*pairs[1], *pairs[0]):
        left, right = divided(left, a, right.dims[b]), divided(right, b, left.dims[a])
    for a, b in pairs[0]:
        over.update(
            joined([ValueState((left.dims[a],)), ValueState((right.dims[b],))]).dims[0].pieces
        )
    dims = [joined([ValueState((left.dims[a],)), ValueState((right.dims[b],))]).dims[0]
            for a, b in pairs[1]]  # fmt: skip
    for state, own, shared in ((left, sums[0], batch[0]), (right, sums[1], batch[1])):
        dims += [dim for d, dim in enumerate(state.dims) if d not in own and d not in shared]
    made = ValueState(stacked=left.stacked | right.stacked).with_dims(dims)
    for state in (left, right):
        if state.partial and state.kind != "sum":
            raise NotTyped("it multiplies what is partial")
        made = added(made, state.partial, "sum")
    return added(made, frozenset(over), "sum")


@_rule("convolution")
def _convolution(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    """Images may be divided in their batch, and channels and features too."""
    image, filters = operands
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", x.attributes.get("dim_labels", ""))
    if labels is None or (image.partial and filters.partial):
        raise NotTyped("its dimensions are not known")
    if any(int(x.attributes.get(name, "1")) != 1 for name in
           ("feature_group_count", "batch_group_count")):  # fmt: skip
        raise NotTyped("it has groups")
    first, second, last = ({c: d for d, c in enumerate(text)} for text in labels.groups())
    image, filters = (
        _undivided(state, [d for c, d in names.items() if c.isdigit()])
        for state, names in ((image, first), (filters, second))
    )
    f, i = first["f"], second["i"]
    image, filters = (
        divided(image, f, filters.dims[i]),
        divided(filters, i, image.dims[f]),
    )
    pair = ValueState((image.dims[first["f"]],)), ValueState((filters.dims[second["i"]],))
    over = joined(pair).dims[0].pieces
    dims = [Along(n) for n in x.shape.sizes]
    dims[last["b"]], dims[last["f"]] = image.dims[first["b"]], filters.dims[second["o"]]
    stacked = image.stacked | filters.stacked
    made = added(ValueState(stacked=stacked).with_dims(dims), frozenset(over), "sum")
    for state in (image, filters):
        made = added(made, state.partial, "sum")
    return made


@_rule("reduce-window", "select-and-scatter")
def _window(rules: HloRules, x: HloInstruction, operands: Sequence[ValueState]) -> ValueState:
    """Windows along dimensions that are not divided, or one window of a whole block."""
    arrays = operands[: len(operands) // 2] if x.opcode == "reduce-window" else operands[:1]
    own = joined(_of_blocks(arrays)) if len(arrays) > 1 else arrays[0]
    window = re.search(r"size=([\dx]+)", x.attributes.get("window", ""))
    sizes = [int(n) for n in window[1].split("x")] if window else []
    moved = [d for d, n in enumerate(sizes) if n != 1]
    all_of = [d for d in moved if sizes[d] == own.dims[d].size and x.shape.sizes[d] == 1]
    is_one = x.opcode == "reduce-window" and len(arrays) == 1
    kind = rules.reducer(x.attributes["to_apply"]) if is_one else ""
    if any(y.partial for y in arrays) and own.kind != kind:
        raise NotTyped("windows are of what is partial")
    own = _undivided(own, [d for d in moved if d not in all_of or not kind])
    over = frozenset(n for d in all_of for n in own.dims[d].pieces)
    dims = [Along(n, () if d in all_of else own.dims[d].pieces)
            for d, n in enumerate(x.shape.sizes)]  # fmt: skip
    return added(own.with_dims(dims), over, kind)


# --- collectives ----------------------------------------------------------------------------------


def sent_by_hand(
    rules: HloRules, x: HloInstruction, own: ValueState, over: Sequence[int]
) -> ValueState:
    """Return the result of a collective of a ``shard_map``, by the blocks that devices receive."""
    own = replace(stack_of(own), number=None)
    count = math.prod(map(rules.size_of, over))
    dims, stacked = list(own.dims), own.stacked
    if x.base in ("all-reduce", "all-gather"):
        stacked -= set(over)
    elif x.base in ("reduce-scatter", "all-to-all"):
        stacked |= set(over)
    if x.base in ("all-gather", "reduce-scatter"):
        [d] = x.numbers("dimensions")
        size = dims[d].size * count if x.base == "all-gather" else dims[d].size // count
        dims[d] = Along(size)
    return replace(own, stacked=stacked).with_dims(dims)


def all_reduced(rules: HloRules, own: ValueState, over: Sequence[int], kind: str) -> ValueState:
    """Return the result of an all-reduce.

    Raises:
        NotTyped: its operand is not partial over the pieces, and no stack along them.
    """
    summed = own.partial.intersection(over)
    is_known = own.is_hidden or (own.partial | own.stacked).issuperset(over)
    if not is_known or (summed and own.kind != kind):
        missing = rules.pieces.listed(sorted(set(over) - own.partial - own.stacked)) or kind
        raise NotTyped(f"its operand is not partial over {missing}")
    made = replace(own, partial=own.partial - set(over), stacked=own.stacked - set(over))
    return replace(made, number=None, table=None, is_hidden=False)


def all_gathered(rules: HloRules, own: ValueState, over: Sequence[int], dim: int) -> ValueState:
    """Return the result of an all-gather.

    Raises:
        NotTyped: the dimension is not divided over the pieces, the least significant ones.
    """
    axes = own.dims[dim].axes
    count = math.prod(map(rules.size_of, over))
    if axes is not None and axes[len(axes) - len(over) :] != tuple(over):
        own = divided(own, dim, Along(1, tuple(over)))
        axes = own.dims[dim].axes
    dims = list(own.dims)
    if not axes and own.stacked.issuperset(over):
        dims[dim] = Along(own.dims[dim].size * count)
        return replace(own, stacked=own.stacked - set(over)).with_dims(dims)
    axes = tuple(over) if axes is None else axes
    if axes[len(axes) - len(over) :] != tuple(over):
        shown = rules.pieces.listed(axes) or "nothing"
        raise NotTyped(f"dimension {dim} of its operand is divided over {shown}")
    dims[dim] = Along(own.dims[dim].size * count, axes[: len(axes) - len(over)])
    return own.with_dims(dims)


def reduce_scattered(
    rules: HloRules, own: ValueState, over: Sequence[int], dim: int, kind: str
) -> ValueState:
    """Return the result of a reduce-scatter.

    Raises:
        NotTyped: its operand is not partial over the pieces.
    """
    made = all_reduced(rules, own, over, kind)
    count = math.prod(map(rules.size_of, over))
    dims = list(made.dims)
    dims[dim] = Along(own.dims[dim].size // count, (*own.dims[dim].pieces, *over))
    return made.with_dims(dims)


def exchanged(rules: HloRules, own: ValueState, over: Sequence[int], dim: int | None) -> ValueState:
    """Return the result of an all-to-all, in which each device has a stack of the received parts.

    Args:
        dim: the dimension that is exchanged. Where it is as large as the group, it was the outer
            part of the next one, which is divided then.

    Raises:
        NotTyped: its operand is partial.
    """
    if own.partial.intersection(over):
        raise NotTyped("its operand is partial")
    made = as_stack(own, over)
    for d, (before, after) in enumerate(zip(own.dims, made.dims, strict=True)):
        front = made.dims[d - 1] if d else before
        if after.pieces and after != before and front.size == 1 and not front.pieces:
            both = Along(1, after.pieces), Along(after.size)
            made = replace(made, dims=(*made.dims[: d - 1], *both, *made.dims[d + 1 :]))
    count = math.prod(map(rules.size_of, over))
    if dim is not None and made.dims[dim].size == count and dim + 1 < len(made.dims):
        outer, inner = made.dims[dim], made.dims[dim + 1]
        both = Along(count), Along(inner.size, (*outer.pieces, *inner.pieces, *over))
        dims = (*made.dims[:dim], *both)
        stacked = made.stacked - set(over)
        return replace(made, stacked=stacked, number=None).with_dims((*dims, *made.dims[dim + 2 :]))
    return replace(made, stacked=made.stacked | set(over), number=None).with_dims(made.dims)


def _renamed(
    rules: HloRules, own: ValueState, digits: Mapping[Digit, Digit]
) -> tuple[ValueState, list[int]]:
    """Return a value behind an exchange of digits of the devices, and the pieces that change."""
    to: dict[int, int] = {}
    for before, after in digits.items():
        try:
            pair = [*zip(rules.pieces.of((before,)), rules.pieces.of((after,)), strict=True)]
        except (GroupsError, ValueError) as error:
            raise NotTyped("it exchanges parts of axes") from error
        if any(rules.size_of(a) != rules.size_of(b) for a, b in pair):
            raise NotTyped("it exchanges parts of axes")
        to.update(pair)
    dims = tuple(Along(dim.size, dim.axes and tuple(to[n] for n in dim.axes)) for dim in own.dims)
    partial, stacked = (frozenset(to[n] for n in set_) for set_ in (own.partial, own.stacked))
    made = replace(own, dims=dims, partial=partial, stacked=stacked, number=None, table=None)
    return made, [a for a, b in to.items() if a != b]


def permuted(
    rules: HloRules, own: ValueState, pairs: Sequence[tuple[int, int]]
) -> tuple[ValueState, list[int]]:
    """Return the result of a collective-permute, and the pieces that blocks move along: pieces are
    exchanged, or blocks move along some of them.

    Raises:
        NotTyped: it moves blocks in different ways in different places.
    """
    if digits := permuted_digits(pairs, rules.devices):
        return _renamed(rules, own, digits)
    source, target = (np.array(ids) for ids in zip(*pairs, strict=True))
    where = {n: (rules.coordinates([n])[source], rules.coordinates([n])[target])
             for n in range(len(rules.pieces.pieces))}  # fmt: skip
    moved = [n for n, (a, b) in where.items() if not np.array_equal(a, b)]
    before, after = (rules.coordinates(moved)[ids] for ids in (source, target))
    if len({(int(a), int(b)) for a, b in zip(before, after, strict=True)}) > len(set(before)):
        raise NotTyped("it moves blocks in different ways in different places")
    count = math.prod(map(rules.size_of, moved))
    is_open = len(set(after.tolist())) < count
    if own.partial.intersection(moved) and is_open:
        raise NotTyped("it moves what is partial to some devices")
    if is_open and not own.axes.intersection(moved):
        own = replace(own, stacked=own.stacked | set(moved))
    return replace(own, number=None, table=None).with_dims(own.dims), moved
