"""The response of runs: the operations whose changes would show in the results.

Each operation of a function is changed by 1 % in turn, on one device: every element by a random
share of it (0 by so much of 1), and some integers and truth values to others. If no result of any
run moves further than rounding may move it, then the runs say nothing about that operation.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.machine import meshes_remembered
from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp, value_text
from collir.ir.diagnostics import Position
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.meaning import meaning
from collir.semantics.reference.steps import meaning_of

CHANGE = 0.01
"""The relative change of an operation."""

_MOST_STEPS = 20_000
"""The most steps that are run to find out."""

_MOST_NAMED = 6
"""The most operations that a text names."""


@dataclass(frozen=True)
class EqualRun:
    """A run on which two functions were equal.

    Attributes:
        inputs: the tensors of the arguments.
        tolerances: how far rounding may move the elements of each result.
    """

    inputs: Sequence[Array]
    tolerances: Sequence[Array]


@dataclass(frozen=True)
class Response:
    """The operations that the results of runs responded to.

    Attributes:
        operations: the number of operations that results depend on.
        tried: the number of operations that were changed.
        silent: the number of changed operations to which no result responded.
        blind: the names of the silent operations, each once.
    """

    operations: int = 0
    tried: int = 0
    silent: int = 0
    blind: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        """True if results responded to none of the changes."""
        return 0 < self.tried == self.silent

    @property
    def text(self) -> str:
        """The words for it, such as "a change of 1 % in any operation would have shown"."""
        if not self.tried:
            return ""
        some = "any operation"
        if self.tried < self.operations:
            some = f"any of {self.tried} of its {self.operations} operations"
        if self.blind:
            named = ", ".join(self.blind[:_MOST_NAMED])
            more = len(self.blind) - _MOST_NAMED
            some += f" but {named}" + (f" and {more} others" if more > 0 else "")
        return f"a change of 1 % in {some} would have shown"

    @staticmethod
    def of(function: FuncOp, trials: Sequence[EqualRun]) -> "Response":
        """Return the response of a function in some runs."""
        _, alone = meaning(function)
        last = alone.body.block.last_op
        assert last is not None
        live, _ = _live(alone.body.block, range(len(last.operands)))
        with np.errstate(all="ignore"), meshes_remembered():
            return _response(alone, live, trials)


def _response(alone: FuncOp, live: Sequence[DistOp], trials: Sequence[EqualRun]) -> Response:
    """Return the response of a function on one device to changes of some operations."""
    rng = np.random.default_rng(0)
    order: list[DistOp] = [live[int(n)] for n in rng.permutation(len(live))]
    silent, tried, steps = set[DistOp](order), set[DistOp](), 0
    for trial in trials:
        run = _Run(alone, trial)
        for op in order:
            if op in silent and (steps < _MOST_STEPS or not tried):
                steps -= run.steps
                if run.responds_to(op, rng):
                    silent.discard(op)
                steps += run.steps
                tried.add(op)
    blind = [op for op in live if op in silent and op in tried]
    return Response(len(live), len(tried), len(blind), tuple(dict.fromkeys(map(_name, blind))))


def _name(op: DistOp) -> str:
    """Return the name of the value that an operation makes, or the operation and its line."""
    position = Position.of(op)
    where = f" of {Path(position.file).name}:{position.line}" if position else ""
    return value_text(op.result, f"the {op.mnemonic}{where}")


def _live(block: Block, wanted: Iterable[int]) -> tuple[list[DistOp], set[SSAValue]]:
    """Return the operations that some final values of a block depend on, and all values that they
    need.

    Operations are in order, and include the operations in loops.

    Args:
        wanted: the numbers of the values.
    """
    last = block.last_op
    assert last is not None
    live: list[DistOp] = []
    needed = {last.operands[number] for number in wanted}
    for op in reversed(list(block.ops)):
        if not any(result in needed for result in op.results):
            continue
        if isinstance(op, RepeatOp):
            inner, used = _live_in_loop(op, {x.index for x in op.results if x in needed})
            live += reversed(inner)
            pairs = zip(op.operands, op.body.block.args, strict=True)
            needed |= {operand for operand, arg in pairs if arg in used}
        elif isinstance(op, DistOp):
            live.append(op)
            needed |= {*op.operands}
    return live[::-1], needed


def _live_in_loop(op: RepeatOp, wanted: set[int]) -> tuple[list[DistOp], set[SSAValue]]:
    """Return the operations and values that some results of a loop need, also by carries."""
    while True:
        live, needed = _live(op.body.block, wanted)
        carried = {number for number, carry in enumerate(op.carries) if carry in needed}
        if carried <= wanted or op.times == 1:
            return live, needed | {op.body.block.args[n] for n in wanted if n < len(op.carries)}
        wanted = wanted | carried


Values = dict[SSAValue, Array]


class _Run:
    """A run of a function on one device that keeps all values, to run parts of it again.

    Attributes:
        steps: the number of steps that were run.
        tolerances: how far rounding may move results.
        changed: the operation whose results are changed, if any.
    """

    def __init__(self, function: FuncOp, trial: EqualRun):
        self.block = function.body.block
        self.steps = 0
        self.changed: DistOp | None = None
        self.rng = np.random.default_rng(0)
        self.values: Values = dict(zip(self.block.args, trial.inputs, strict=True))
        _ = self._run(self.block, self.values)
        self.tolerances: dict[SSAValue, list[Array]] = {}
        last = self.block.last_op
        assert last is not None
        for value, tolerance in zip(last.operands, trial.tolerances, strict=True):
            self.tolerances.setdefault(value, []).append(tolerance)

    def responds_to(self, op: DistOp, rng: np.random.Generator) -> bool:
        """Return whether a result moves further than by rounding if an operation is changed."""
        self.changed, self.rng = op, rng
        top: Operation = op
        while top.parent_block() is not self.block:
            parent = top.parent_op()
            assert parent is not None
            top = parent
        moved: Values = {}
        values = ChainMap(moved, self.values)
        for step in self._behind(top):
            if step is not top and not any(x in moved for x in step.operands):
                continue
            for value, new in zip(step.results, self._step(step, values), strict=True):
                if not _same(new, self.values[value]):
                    moved[value] = new
                    if self._shows(value, new):
                        return True
        return False

    def _shows(self, value: SSAValue, new: Array) -> bool:
        """Return whether a value is a result, and further from what it was than rounding moves."""
        new, old = new.astype(np.float64), self.values[value].astype(np.float64)
        return any(
            bool(((np.abs(new - old) > tolerance) | (np.isfinite(old) & ~np.isfinite(new))).any())
            for tolerance in self.tolerances.get(value, ())
        )

    def _behind(self, top: Operation) -> Iterator[Operation]:
        """Yield an operation of the function and those behind it, but for its end."""
        step: Operation | None = top
        while step is not None and step is not self.block.last_op:
            yield step
            step = step.next_op

    def _run(self, block: Block, values: Values) -> list[Array]:
        """Run the steps of a block, add their results to the values, and return what it returns."""
        for op in block.ops:
            if isinstance(op, ReturnOp | YieldOp):
                return [values[x] for x in op.operands]
            values.update(zip(op.results, self._step(op, values), strict=True))
        return []

    def _step(self, op: Operation, values: Mapping[SSAValue, Array]) -> list[Array]:
        operands = [values[x] for x in op.operands]
        if isinstance(op, RepeatOp):
            return self._loop(op, operands)
        assert isinstance(op, DistOp)
        self.steps += 1
        [result] = meaning_of(op.mnemonic).run(op, tuple([x] for x in operands))
        assert result is not None
        return [self._other(result) if op is self.changed else result]

    def _loop(self, op: RepeatOp, operands: Sequence[Array]) -> list[Array]:
        carries, slices = len(op.carried), len(op.sliced)
        carried, rows = list(operands[:carries]), dict[int, list[Array]]()
        for number in op.order:
            sliced = [x[number, ...] for x in operands[carries : carries + slices]]
            inputs = [*carried, *sliced, *operands[carries + slices :]]
            body = dict[SSAValue, Array](zip(op.body.block.args, inputs, strict=True))
            yielded = self._run(op.body.block, body)
            carried, rows[number] = yielded[:carries], yielded[carries:]
        stacks = zip(*(rows[number] for number in sorted(rows)), strict=True)
        return [*carried, *(np.stack(parts) for parts in stacks)]

    def _other(self, x: Array) -> Array:
        """Return an array with other elements."""
        some = self.rng.random(x.shape) < 0.25
        if not some.any():
            some = np.ones(x.shape, bool)
        if x.dtype.kind == "b":
            return x ^ some
        if x.dtype.kind == "i":
            return x + some * self.rng.choice([-1, 1], x.shape)
        share = CHANGE * self.rng.choice([-1, 1], x.shape) * self.rng.uniform(0.5, 1, x.shape)
        return x + share * (x if x.any() else 1.0)


def _same(x: Array, y: Array) -> bool:
    return np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
