"""The places of the rows of a batch in the values of a function.

If the results of a function are sums or means over a batch, the function of the batch is the sum or
mean over its parts, and so is its gradient. The index structures of steps show this: the index of
the batch is passed through until one reduction, and only linear steps follow. Values that do not
depend on the differentiated operands, such as the number of tokens, may need the whole batch; they
are computed once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from collir.dialects.nested import CallOp, RepeatOp, YieldOp
from collir.dialects.operation import DistOp, value_text
from collir.dialects.tensor import dist_type
from collir.layout.coll import CAST, PAD
from collir.layout.dtypes import Reduction
from collir.layout.nn import CONSTANT
from collir.layout.structure import REPEATED, Linear, Structure
from collir.transforms.microbatches.rows import BatchSize, Over, Rows, State


class NotSeparableError(Exception):
    """A step does not treat the parts of a batch apart.

    Attributes:
        op: the step.
    """

    def __init__(self, op: Operation, text: str):
        super().__init__(text)
        self.op = op


class _OfWholeBatchError(Exception):
    """Values that must be computed of the whole batch, and depend on nothing that is
    differentiated."""

    def __init__(self, values: Iterable[SSAValue]):
        super().__init__()
        self.values = list(values)


@dataclass(frozen=True)
class OperandUse:
    """An operand of an operation."""

    op: Operation
    number: int

    @property
    def value(self) -> SSAValue:
        """The value that is used."""
        return self.op.operands[self.number]


class Following:
    """The states of the values of a function.

    Attributes:
        arguments: the arguments of the function.
        results: the states of its results.
        states: the states of values that have one.
        whole: the values computed from the whole batch, in front of the microbatches.
        rows: the operands, otherwise equal for all microbatches, of which each takes its rows.
        shared: the operands equal for all microbatches that are added to a sum over the batch; each
            microbatch adds its share of them.
    """

    def __init__(
        self,
        function: FuncOp,
        callers: Mapping[FuncOp, CallOp],
        size: BatchSize,
        batched: Mapping[int, Rows],
        sought: Iterable[int],
    ):
        """Follow the batch through a function.

        Args:
            callers: the one call of each function that the function calls.
            batched: the arguments with rows of the batch.
            sought: the arguments that the function is differentiated by.

        Raises:
            NotSeparableError: a step does not treat the parts of the batch apart.
        """
        self.function, self.callers, self.size = function, callers, size
        self.arguments: list[SSAValue] = [*function.args]
        self._differentiated = _depending(function, sought)
        self.whole: dict[SSAValue, None] = {}
        while True:
            self.states: dict[SSAValue, State] = {}
            self.states |= {function.args[n]: rows for n, rows in batched.items()}
            self.rows: dict[OperandUse, Rows] = {}
            self.shared: dict[OperandUse, None] = {}
            try:
                self._block(function.body.block)
                break
            except _OfWholeBatchError as error:
                self.whole |= dict.fromkeys(error.values)
        last = function.body.block.last_op
        assert isinstance(last, ReturnOp)
        self.results = [*map(self.states.get, last.operands)]

    # --- origins ------------------------------------------------------------------------------

    def origin(self, value: SSAValue) -> SSAValue | None:
        """Return the value outside of all loops and callees that a value stands for; None if it is
        computed inside."""
        top = self.function.body.block
        while isinstance(value, BlockArgument) and value.block is not top:
            parent = value.block.parent_op()
            if isinstance(parent, RepeatOp):
                if value.index < len(parent.carried) + len(parent.sliced):
                    return None
                value = parent.operands[value.index]
            else:
                assert isinstance(parent, FuncOp)
                value = self.callers[parent].operands[value.index]
        block = value.block if isinstance(value, BlockArgument) else value.owner.parent_block()
        return value if block is top else None

    def precedes(self, value: SSAValue) -> bool:
        """Return whether a value may be computed in front of the microbatches."""
        return value not in self._differentiated

    def _outermost(self, op: Operation) -> Operation:
        """Return the outermost operation around an operation, outside of all loops and callees."""
        while op.parent_block() is not self.function.body.block:
            parent = op.parent_op()
            assert parent is not None
            op = self.callers[parent] if isinstance(parent, FuncOp) else parent
        return op

    def _fail(self, op: Operation, text: str) -> NotSeparableError:
        """Return the error for a step that needs more than a part of the batch.

        Raises:
            _OfWholeBatchError: it, or one of its operands, can be computed of the whole batch.
        """
        for operand in op.operands:
            if isinstance(self.states.get(operand), Over):
                value = self.origin(operand)
                if value is not None and self.precedes(value):
                    raise _OfWholeBatchError([value])
        results = self._outermost(op).results
        if results and all(map(self.precedes, results)):
            raise _OfWholeBatchError(results)
        return NotSeparableError(op, text)

    # --- nested operations --------------------------------------------------------------------

    def _block(self, block: Block) -> None:
        """Find the states of the values of a block."""
        for op in block.ops:
            if op.results and all(result in self.whole for result in op.results):
                continue
            if isinstance(op, RepeatOp):
                self._loop(op)
            elif isinstance(op, CallOp):
                self._call(op)
            elif isinstance(op, DistOp) and any(x in self.states for x in op.operands):
                self.states[op.result] = self._result(op)
            for result in op.results:
                if result in self.whole:
                    self.states.pop(result, None)

    def _call(self, op: CallOp) -> None:
        function = op.function()
        assert function is not None
        self._enter(function.args, map(self.states.get, op.operands))
        self._block(function.body.block)
        last = function.body.block.last_op
        assert isinstance(last, ReturnOp)
        self._enter(op.results, map(self.states.get, last.operands))

    def _enter(self, values: Iterable[SSAValue], states: Iterable[State]) -> None:
        for value, state in zip(values, states, strict=True):
            if state is not None:
                self.states[value] = state
            else:
                self.states.pop(value, None)

    def _loop(self, op: RepeatOp) -> None:
        """Find the states of the values of a loop.

        A carry that starts without rows of the batch gets the state that the first iteration
        yields.
        """
        carries, slices = len(op.carried), len(op.sliced)
        states = [*map(self.states.get, op.operands)]
        for number in range(carries, carries + slices):
            state = states[number]
            if isinstance(state, Rows):
                if not state.dim:
                    text = "a loop runs over the rows of the batch: write it as steps on all rows"
                    raise self._fail(op, text)
                states[number] = state.at(state.dim - 1)
        starts = states[:carries]
        rows, shared = dict(self.rows), dict(self.shared)
        while True:
            self.rows, self.shared = dict(rows), dict(shared)
            self._enter(op.body.block.args, states)
            self._block(op.body.block)
            yielded = [self.states.get(value) for value in op.yielded]
            changed = [n for n in range(carries) if states[n] is None and yielded[n] is not None]
            if not changed:
                break
            for number in changed:
                states[number] = yielded[number]
        last = op.body.block.last_op
        assert isinstance(last, YieldOp)
        for number in range(carries):
            if starts[number] is None and states[number] is not None:
                self._bring(OperandUse(op, number), states[number])
            if yielded[number] is None and states[number] is not None:
                self._bring(OperandUse(last, number), states[number])
            elif yielded[number] != states[number]:
                text = "a carry depends on the batch in another way at the end"
                raise self._fail(op, text)
        stacked = (s.at(s.dim + 1) if isinstance(s, Rows) else s for s in yielded[carries:])
        self._enter(op.results, [*states[:carries], *stacked])

    def _bring(self, use: OperandUse, state: State) -> None:
        """Give a state to an operand that is equal for all microbatches."""
        x = dist_type(use.value)
        if isinstance(state, Rows):
            if not self.size.fits(x, state):
                shown, fixed = value_text(use.value, "an operand"), int(x.shape[state.dim])
                text = (
                    f"{_name(use.op)} takes rows of the batch, and {shown} has {fixed} however "
                    f"many these are: write that size as a formula of {self.size.part}"
                )
                raise self._fail(use.op, text)
            self.rows[use] = state
        elif state is Over.SUM and not _is_zero(use.value):
            if not x.dtype.is_float:
                text = f"{_name(use.op)} adds {value_text(use.value)} once to a sum over the batch"
                raise self._fail(use.op, text)
            self.shared[use] = None

    # --- steps --------------------------------------------------------------------------------

    def _result(self, op: DistOp) -> State:
        """Return the state of the result of a step.

        Raises:
            NotSeparableError: the step does not treat the parts of the batch apart.
        """
        states = [self.states.get(x) for x in op.operands]
        if any(isinstance(state, Over) for state in states):
            return self._of_reduced(op, states)
        rows = [state for state in states if isinstance(state, Rows)]
        if op.kind.packs and rows[0].dim == op.integer("dim"):
            return self._joined(op, rows)
        if (structure := op.indices) is None:
            raise self._fail(op, f"{op.mnemonic} may join rows of the batch")
        return self._through(op, states, structure)

    def _through(self, op: DistOp, states: Sequence[State], structure: Structure) -> State:
        """Return the state of the result of a step with a structure, for operands with rows."""
        name = op.mnemonic
        batched: tuple[str, Rows] | None = None
        for state, over in zip(states, structure.operands, strict=True):
            if not isinstance(state, Rows):
                continue
            own = (over[state.dim], state.at(0))
            if batched not in (None, own):
                raise self._fail(op, f"{name} takes rows of the batch in two orders")
            batched = own
        assert batched is not None
        index, rows = batched
        if index == REPEATED:
            raise self._fail(op, f"{name} repeats the batch")
        if index in structure.regrouped:
            return self._regrouped(op, rows.at(structure.operands[0].index(index)))
        if index in structure.blocked:
            raise self._fail(op, f"{name} needs the whole batch")
        if index in structure.selected:
            text = f"{name} picks rows of the batch by their position: pick them in the data"
            raise self._fail(op, text)
        for number, (state, over) in enumerate(zip(states, structure.operands, strict=True)):
            if state is None and index in over:
                self._bring(OperandUse(op, number), rows.at(over.index(index)))
        if index in structure.result:
            return rows.at(structure.result.index(index))
        if structure.reduction is Reduction.AVG:
            return Over.MEAN
        if structure.reduction is Reduction.SUM and structure.linear is not Linear.NOT:
            return Over.SUM
        raise self._fail(op, f"{name} reduces over the batch, and is neither sum nor mean")

    def _regrouped(self, op: DistOp, rows: Rows) -> Rows:
        """Return the rows behind a step that splits or merges their dimension."""
        new = self.size.reshaped(dist_type(op.input), dist_type(op.result), rows)
        if new is None:
            text = f"{op.mnemonic} divides the batch, or joins it with what is no formula of it"
            raise self._fail(op, text)
        return new

    def _joined(self, op: DistOp, rows: Sequence[Rows]) -> Rows:
        """Return the rows of a concatenation of rows."""
        first = rows[0]
        alike = all(replace(row, outer=first.outer) == first for row in rows)
        if len(rows) < len(op.operands) or not alike:
            raise self._fail(op, "concat puts other rows behind those of the batch")
        return replace(first, outer=sum((row.outer for row in rows[1:]), start=first.outer))

    def _of_reduced(self, op: DistOp, states: Sequence[State]) -> State:
        """Return the state of the result of a step on values reduced over the batch.

        A mean stays a mean when a value that does not depend on the batch is added.
        """
        known = [state for state in states if state is not None]
        if any(isinstance(state, Rows) for state in known):
            raise self._fail(
                op, f"{op.mnemonic} takes rows of the batch with what is reduced over it"
            )
        error = f"{op.mnemonic} is not linear in what is reduced over the batch"
        linear = _linearity(op)
        if linear is Linear.ALL:
            if all(state is Over.MEAN for state in known):
                return Over.MEAN
            for number, state in enumerate(states):
                if state is not Over.SUM:
                    self._bring(OperandUse(op, number), Over.SUM)
            if op.kind is PAD and op.number("value"):
                raise self._fail(op, error)
            return Over.SUM
        places = [number for number, state in enumerate(states) if state is not None]
        if len(known) == 1 and linear.holds(places[0]):
            return known[0]
        raise self._fail(op, error)


def _linearity(op: DistOp) -> Linear:
    """Return the operands in which a step is linear."""
    if op.kind is CAST:
        return Linear.ALL if dist_type(op.result).dtype.is_float else Linear.NOT
    return op.indices.linear if op.indices else Linear.NOT


def _is_zero(value: SSAValue) -> bool:
    owner = value.owner
    return isinstance(owner, DistOp) and owner.kind is CONSTANT and owner.number("value") == 0


def _name(op: Operation) -> str:
    return op.mnemonic if isinstance(op, DistOp) else "this loop"


@dataclass
class _Depending:
    """Values, with the values that depend on them."""

    values: set[SSAValue] = field(default_factory=set[SSAValue])

    def block(self, block: Block) -> None:
        """Add the values of a block that depend on the others."""
        for op in block.ops:
            if isinstance(op, RepeatOp):
                self._loop(op)
            elif isinstance(op, CallOp):
                function = op.function()
                assert function is not None
                self._pass(op.operands, function.args)
                self.block(function.body.block)
                last = function.body.block.last_op
                assert last is not None
                self._pass(last.operands, op.results)
            elif any(x in self.values for x in op.operands):
                self.values.update(op.results)

    def _pass(self, old: Sequence[SSAValue], new: Sequence[SSAValue]) -> None:
        self.values.update(y for x, y in zip(old, new, strict=False) if x in self.values)

    def _loop(self, op: RepeatOp) -> None:
        before = -1
        self._pass(op.operands, op.body.block.args)
        while before != len(self.values):
            before = len(self.values)
            self.block(op.body.block)
            self._pass(op.yielded, op.carries)
        self._pass(op.yielded, op.results)


def _depending(function: FuncOp, arguments: Iterable[int]) -> set[SSAValue]:
    """Return the values of a function that depend on some of its arguments."""
    depending = _Depending({function.args[number] for number in arguments})
    depending.block(function.body.block)
    return depending.values
