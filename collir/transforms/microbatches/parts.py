"""The function of a microbatch.

It is the function of the whole batch, with two exceptions: numbers read from the size of the batch
mean the whole batch, and values that need the whole batch are arguments.
"""

from dataclasses import dataclass, replace

from xdsl.dialects.builtin import DenseArrayBase, i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.irdl import AttrSizedOperandSegments

from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp, value_text
from collir.dialects.tensor import BindingsAttr, DistTensorType, SizesAttr, dist_type
from collir.ir.calls import calls_in, inline_call
from collir.ir.names import set_name
from collir.ir.parameters import (
    attributes_of,
    bindings_to_equal,
    parameters_of,
    set_parameters,
    sizes_in,
    with_sizes_changed,
)
from collir.ir.remarks import remark
from collir.ir.renaming import set_type
from collir.ir.retyping import retype
from collir.ir.steps import step_op
from collir.layout import Dim, DistType, DType
from collir.layout.coll import REDISTRIBUTE, RESHAPE, SCALE
from collir.layout.formulas import Formula
from collir.layout.nn import CONSTANT, IOTA
from collir.layout.nn_selections import TAKE
from collir.layout.sizes import formula_of
from collir.layout.steps import TO, Argument, StepKind
from collir.layout.structure import Linear
from collir.transforms.gradients.differentiation import erase_unused
from collir.transforms.microbatches.callees import add_argument, keep_results, own_copy
from collir.transforms.microbatches.following import Following, OperandUse
from collir.transforms.microbatches.rows import Rows
from collir.transforms.smaller import SHAPES


@dataclass(frozen=True)
class Extra:
    """An argument that the function of a microbatch has in addition.

    Attributes:
        source: its value in the function of the whole batch: an argument, or a value computed in
            front of the microbatches. None: it holds the numbers of rows.
        rows: the rows of the batch in it; None if each microbatch takes all of it.
        axes: the sub-axes that divide the numbers of rows.
    """

    source: SSAValue | None
    rows: Rows | None
    axes: tuple[str, ...] = ()


class PartOfBatch:
    """The function of a microbatch.

    Attributes:
        function: the function.
        whole: the function that is run once, on the whole batch; None if there is none.
        operands: the numbers of the arguments of the function of the batch that ``whole`` takes.
        results: the numbers of the results of ``whole``, by their values.
        arguments: the additional arguments, with their meanings.
        changed: whether it differs from the function of the whole batch.
    """

    def __init__(self, following: Following, name: str, count: int):
        """Change a function into that of a microbatch.

        Args:
            name: the name of the function of the batch.
            count: the number of microbatches.

        Raises:
            DiagnosticError, LayoutError: a step does not fit a microbatch.
        """
        self.following, self.function = following, following.function
        self.name, self.count = name, count
        self.size, self.mesh = following.size, mesh_of(following.function)
        self.arguments: dict[Extra, BlockArgument] = {}
        self._threaded: dict[tuple[SSAValue, Block], SSAValue] = {}
        self.results: dict[SSAValue, int] = {}
        self.operands: list[int] = []
        self.whole = self._of_whole_batch()
        for function in (self.function, *following.callers):
            self._read_whole(function.body.block)
        for use, rows in following.rows.items():
            self._take_rows(use, rows)
        for use in following.shared:
            self._share(use)
        for value in following.whole:
            if value.uses.get_length():
                value.replace_all_uses_with(self._argument(Extra(value, None)))
        for function in self.functions:
            erase_unused(function.body.block)
        self.changed = bool(self.arguments or following.shared) or self._reads_whole()
        if self.changed:
            self._finish()

    @property
    def functions(self) -> tuple[FuncOp, ...]:
        """The functions, each behind the functions that it calls."""
        return (*self.following.callers, self.function)

    # --- of the whole batch -------------------------------------------------------------------

    def _of_whole_batch(self) -> FuncOp | None:
        """Return the function of the values computed once, from the whole batch."""
        cut = (self._in_front(use, rows) for use, rows in self.following.rows.items())
        values = dict.fromkeys((*self.following.whole, *(x for x in cut if x is not None)))
        made = [value for value in values if isinstance(value, OpResult)]
        if not made:
            return None
        self.results = {value: number for number, value in enumerate(made)}
        copies: dict[SSAValue, SSAValue] = {}
        copy = own_copy(self.function, f"{self.name}_whole", copies)
        self.operands = keep_results(copy, [copies[value] for value in made])
        while calls := list(calls_in(copy)):
            for call in calls:
                _ = inline_call(call, copy)
        return copy

    def _in_front(self, use: OperandUse, rows: Rows) -> SSAValue | None:
        """Return the value in front of the microbatches from which a use takes rows, if any."""
        value = self.following.origin(use.value)
        if value is None or not self.following.precedes(value) or _repeats(value, rows.dim):
            return None
        return value

    # --- sizes --------------------------------------------------------------------------------

    def _read_whole(self, block: Block) -> None:
        """Let sizes that count no rows refer to the whole batch."""
        for argument in block.args:
            state = self.following.states.get(argument)
            new = DistTensorType(self.size.type(dist_type(argument), state))
            set_type(argument, new)
        for op in block.ops:
            state = self.following.states.get(op.results[0]) if op.results else None
            rows = state if isinstance(op, DistOp) and isinstance(state, Rows) else None
            for name, attribute in op.properties.items():
                if rows and name in SHAPES and isinstance(attribute, SizesAttr):
                    new = self._shape(op, attribute, rows)
                elif isinstance(attribute, DistTensorType):
                    new = DistTensorType(self.size.type(attribute.data, rows))
                else:
                    new = with_sizes_changed(attribute, self.size.of_whole)
                op.properties[name] = new
            if isinstance(op, RepeatOp):
                self._read_whole(op.body.block)

    def _shape(self, op: Operation, sizes: SizesAttr, rows: Rows) -> SizesAttr:
        """Return the sizes of dimensions of a result with rows."""
        assert isinstance(op, DistOp)
        shape = self.size.sizes(dist_type(op.result).shape, rows)
        first = op.integer("dim") if "dim" in op.properties else 0
        return SizesAttr(tuple(shape[first : first + len(sizes.data)]))

    # --- operands -----------------------------------------------------------------------------

    def _argument(self, extra: Extra) -> BlockArgument:
        """Return an additional argument."""
        if extra not in self.arguments:
            if extra.source is None:
                part = self.size.sized(Formula.parameter(self.size.part))
                x, name = DistType(DType.I32, (Dim(part, extra.axes),)), "rows"
            else:
                x = self.size.type(dist_type(extra.source), extra.rows)
                name = extra.source.name_hint
            self.arguments[extra] = add_argument(self.function, x, name)
        return self.arguments[extra]

    def _take_rows(self, use: OperandUse, rows: Rows) -> None:
        """Replace an operand by its rows of a microbatch."""
        origin, block = self.following.origin(use.value), use.op.parent
        assert block is not None
        if (value := self._in_front(use, rows)) is not None:
            new = self._threaded_to(block, self._argument(Extra(value, rows)))
        elif origin is not None and _repeats(origin, rows.dim):
            new = self._threaded_to(block, self._repeated(origin, rows))
        elif _repeats(use.value, rows.dim):
            new = self._repeated(use.value, rows)
        else:
            new = self._selected(use, rows)
        use.op.operands[use.number] = new

    def _repeated(self, value: SSAValue, rows: Rows) -> SSAValue:
        """Return fewer rows of a value whose rows are alike."""
        assert isinstance(value, OpResult)
        copy = value.op.clone()
        to = copy.properties[TO.name]
        assert isinstance(to, DistTensorType)
        copy.properties[TO.name] = new = DistTensorType(self.size.type(dist_type(value), rows))
        set_type(copy.results[0], new)
        assert value.op.parent is not None
        value.op.parent.insert_op_after(copy, value.op)
        return copy.results[0]

    def _selected(self, use: OperandUse, rows: Rows) -> SSAValue:
        """Return the rows of a microbatch, taken out of all rows by their numbers."""
        x, block = dist_type(use.value), use.op.parent
        assert block is not None
        shown = value_text(use.value, "an operand")
        text = f"each microbatch takes its rows of {shown}, which has those of the whole batch"
        remark(use.op, text)
        axes, value = x.dims[rows.dim].axes, use.value
        numbers = self._threaded_to(block, self._argument(Extra(None, Rows(0), axes)))
        if axes:
            dims = (replace(d, axes=() if n == rows.dim else d.axes) for n, d in enumerate(x.dims))
            value = self._before(use.op, REDISTRIBUTE, value, to=replace(x, dims=tuple(dims)))
        if rows == Rows(rows.dim):
            return self._before(use.op, TAKE, value, numbers, dim=rows.dim)
        before, behind = x.shape[: rows.dim], x.shape[rows.dim + 1 :]
        whole = Formula.parameter(self.size.whole)
        apart = map(self.size.sized, (rows.outer, whole, rows.inner))
        shape = tuple(map(self.size.of_whole, (*before, *apart, *behind)))
        value = self._before(use.op, RESHAPE, value, shape=shape)
        value = self._before(use.op, TAKE, value, numbers, dim=rows.dim + 1)
        return self._before(use.op, RESHAPE, value, shape=tuple(self.size.sizes(x.shape, rows)))

    def _share(self, use: OperandUse) -> None:
        """Replace an operand by its share of a microbatch."""
        new = self._before(use.op, SCALE, use.value, factor=1 / self.count)
        use.op.operands[use.number] = new

    def _before(
        self, op: Operation, kind: StepKind, *operands: SSAValue, **arguments: Argument
    ) -> SSAValue:
        """Return the result of a step that is added in front of an operation."""
        step = step_op(self.mesh, kind, operands, **arguments)
        step.location = op.location
        assert op.parent is not None
        op.parent.insert_op_before(step, op)
        return step.result

    def _threaded_to(self, block: Block, value: SSAValue) -> SSAValue:
        """Return a value in a block: loops and callees around the block take it as an operand."""
        if block is self.function.body.block:
            return value
        key = (value, block)
        if key not in self._threaded:
            parent = block.parent_op()
            op = self.following.callers[parent] if isinstance(parent, FuncOp) else parent
            assert isinstance(op, CallOp | RepeatOp) and op.parent is not None
            outside = self._threaded_to(op.parent, value)
            if isinstance(parent, FuncOp):
                inside = add_argument(parent, dist_type(value), value.name_hint)
            else:
                inside = block.insert_arg(value.type, len(block.args))
                set_name(inside, value.name_hint)
            _add_operand(op, outside)
            self._threaded[key] = inside
        return self._threaded[key]

    # --- the end ------------------------------------------------------------------------------

    def _reads_whole(self) -> bool:
        """Return whether a size is a formula of the size of the whole batch."""
        return any(
            self.size.whole in formula_of(size).parameters
            for function in self.functions
            for op in function.walk()
            for attribute in attributes_of(op)
            for size in sizes_in(attribute)
        )

    def _finish(self) -> None:
        """Type the function of a microbatch, and those that it calls."""
        whole = {self.size.whole: self.size.values[self.size.part]}
        for function in self.functions:
            set_parameters(function, {**parameters_of(function), **whole})
            if (call := self.following.callers.get(function)) is not None:
                bindings = tuple(bindings_to_equal(function).items())
                call.properties["bindings"] = BindingsAttr(bindings)
            function.update_function_type()
            retype(function, lambda size: size)
            function.update_function_type()


def _add_operand(op: CallOp | RepeatOp, value: SSAValue) -> None:
    """Add an operand to a call, or an invariant to a loop."""
    op.operands = (*op.operands, value)
    if isinstance(op, RepeatOp):
        segments = [len(op.carried), len(op.sliced)]
        segments.append(len(op.operands) - sum(segments))
        name = AttrSizedOperandSegments.attribute_name
        op.properties[name] = DenseArrayBase.from_list(i32, segments)


def _repeats(value: SSAValue, dim: int) -> bool:
    """Return whether a step makes a value that is the same at all positions of a dimension, for any
    number of them."""
    op = value.owner
    if not isinstance(op, DistOp) or TO.name not in op.properties:
        return False
    if op.kind is CONSTANT or (op.kind is IOTA and op.integer("dim") != dim):
        return True
    structure = op.structure
    if structure is None or structure.linear is not Linear.ALL:
        return False
    index = structure.result[dim]
    return all(index not in over for over in structure.operands)
