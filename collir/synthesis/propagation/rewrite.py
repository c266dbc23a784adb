"""The program of a function in the layouts that were found: steps on the moved blocks of their
operands, and the layout changes that types demand in between."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, SSAValue

from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.names import set_name
from collir.ir.remarks import remark
from collir.ir.roles import Role, pass_role, role_of
from collir.layout import DistType, LayoutError, Mesh
from collir.layout.steps import TO
from collir.layout.types import Dim
from collir.synthesis.propagation.choice import (
    LayoutChoice,
    layout_with,
    properties_in,
    with_layout,
)
from collir.synthesis.propagation.disagreement import disagreements
from collir.synthesis.propagation.graph import Layout, Relation, Tensor, TensorGraph
from collir.synthesis.propagation.ways import bring
from collir.transforms.expansion import expanded, expansion_on
from collir.transforms.terms import BlockSteps

Chosen = Callable[[Relation], Sequence[LayoutChoice]]
"""A function from a step to the layouts in which it may run, the best first."""


def _block_like(block: Block, types: Sequence[DistType]) -> tuple[Block, dict[SSAValue, SSAValue]]:
    """Return an empty block whose arguments have other types, and each argument's new value."""
    new = Block(arg_types=[DistTensorType(x) for x in types])
    for before, after in zip(block.args, new.args, strict=True):
        set_name(after, before.name_hint)
        after.location = before.location
    return new, dict(zip(block.args, new.args, strict=True))


def rewrite(
    function: FuncOp, graph: TensorGraph, layouts: Sequence[Layout], chosen: Chosen
) -> None:
    """Give the values of a function the layouts that were found for them, in place.

    Args:
        graph: the graph of the function.
        layouts: the layouts of its tensors, by their numbers.
        chosen: the layouts in which its steps may run.

    Raises:
        DiagnosticError: a step cannot run in any of these layouts.
    """
    old = function.body.block
    types = {x: with_layout(x.type, layouts[x.number]) for x in graph.tensors}
    arguments = [_argument_type(argument, graph, types) for argument in function.args]
    new, known = _block_like(old, arguments)
    steps_of = {r.op: r for r in graph.relations if r.op is not None}
    writer = _Writer(graph, types, layouts, steps_of, chosen)
    body = _Body(BlockSteps(graph.mesh, new), known)
    writer.block(old, body)
    last = old.last_op
    assert isinstance(last, ReturnOp)
    body.steps.location = last.location
    returned = [
        writer.laid_out(body, value, types[tensor])
        for value, tensor in zip(last.operands, graph.returned, strict=True)
    ]
    _ = body.steps.add(ReturnOp(*returned))
    outputs = [value.type for value in returned]
    inputs = [DistTensorType(x) for x in arguments]
    function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
    function.body.detach_block(old)
    function.body.add_block(new)
    old.drop_all_references()


def _argument_type(
    argument: SSAValue, graph: TensorGraph, types: Mapping[Tensor, DistType]
) -> DistType:
    """Return the type of an argument: the written one, if that names sub-axes."""
    x = dist_type(argument)
    return x if x.axes else types[graph.of[argument]]


@dataclass
class _Body:
    """A block that is being written.

    Attributes:
        known: the values of the new block by those of the old one.
        moved: values in other layouts, by the value and the type.
    """

    steps: BlockSteps
    known: dict[SSAValue, SSAValue]
    moved: dict[tuple[SSAValue, DistType], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, DistType], SSAValue]
    )


class _Writer:
    """The writer of the blocks of a function."""

    def __init__(
        self,
        graph: TensorGraph,
        types: Mapping[Tensor, DistType],
        layouts: Sequence[Layout],
        steps_of: Mapping[DistOp, Relation],
        chosen: Chosen,
    ):
        self.graph, self.types, self.layouts = graph, types, layouts
        self.steps_of, self.chosen = steps_of, chosen
        self.mesh: Mesh = graph.mesh
        self.explained: set[tuple[object, str]] = set()

    def block(self, old: Block, body: _Body) -> None:
        """Write the steps of a block, without its end."""
        for op in old.ops:
            body.steps.location = op.location
            if isinstance(op, RepeatOp):
                self._loop(op, body)
            elif isinstance(op, DistOp) and op.kind.layout_only:
                moved = self.laid_out(body, op.input, self._type(op.result))
                body.known[op.result] = moved
                if role_of(op.result) is Role.GRADIENT:
                    pass_role(op.result, moved)
            elif isinstance(op, DistOp):
                self._step(op, body)

    def _type(self, value: SSAValue) -> DistType:
        return self.types[self.graph.of[value]]

    def laid_out(self, body: _Body, value: SSAValue, to: DistType) -> SSAValue:
        """Return a value of the old block in a layout."""
        return self._moved(body, body.known[value], to)

    def _moved(self, body: _Body, value: SSAValue, to: DistType) -> SSAValue:
        """Return a value of the new block in a layout."""
        if dist_type(value).agrees(to):
            return value
        key = (value, to)
        if key not in body.moved:
            made = value.owner
            if isinstance(made, DistOp) and not made.operands and TO.name in made.properties:
                properties = {**made.properties, TO.name: DistTensorType(to)}
                body.moved[key] = body.steps.add(made.make(self.mesh, **properties)).results[0]
            else:
                body.moved[key] = bring(body.steps, value, to)
        return body.moved[key]

    def _step(self, op: DistOp, body: _Body) -> None:
        """Write a step in the first layout in which it is well typed."""
        relation = self.steps_of[op]
        problem: LayoutError | None = None
        for choice in self.chosen(relation):
            needed = [layout_with(over, choice.axes) for over in relation.indices]
            summed = choice.summed(relation)
            whole = [
                with_layout(dist_type(x), own) for x, own in zip(op.operands, needed, strict=False)
            ]
            for types in self._with_partial(op, whole, body):
                properties = properties_in(op, needed[-1], types, summed)
                try:
                    _ = op.result_type(self.mesh, types, properties)
                except LayoutError as error:
                    problem = problem or error
                    continue
                for name, text in disagreements(self.mesh, relation, self.layouts, choice):
                    if (op.location, name) not in self.explained:
                        remark(op, text)
                    self.explained.add((op.location, name))
                self._write(op, types, properties, body)
                return
            if op.kind.expansion is not None and self._expand(op, whole, body):
                return
        assert problem is not None
        raise DiagnosticError.at(op, problem.text(op.operand_names()))

    def _with_partial(
        self, op: DistOp, whole: Sequence[DistType], body: _Body
    ) -> Iterator[Sequence[DistType]]:
        """Yield the operand types that a step may take: partial ones, if that sends no more, and
        reduced ones."""
        types = [dist_type(body.known[x]) for x in op.operands]
        sent = sum(x.local_bytes(self.mesh) for x in types if x.partial)
        if sent:
            types = [x if x.partial else to for x, to in zip(types, whole, strict=True)]
            if self._is_smaller(op, types, sent):
                yield types
        yield whole

    def _is_smaller(self, op: DistOp, types: Sequence[DistType], sent: int) -> bool:
        """Return whether a step's result is partial and no larger than its partial operands."""
        try:
            result = op.result_type(self.mesh, types, op.properties)
        except LayoutError:
            return False
        return bool(result.partial) and result.local_bytes(self.mesh) <= sent

    def _write(
        self,
        op: DistOp,
        types: Sequence[DistType],
        properties: Mapping[str, Attribute],
        body: _Body,
    ) -> None:
        """Write a step on operands of some types. A partial result with one user is reduced by that
        step, and one without users is not."""
        operands = [self.laid_out(body, x, to) for x, to in zip(op.operands, types, strict=True)]
        made = op.make(self.mesh, *operands, **properties)
        made.attributes |= op.attributes
        result = body.steps.add(made).results[0]
        set_name(result, op.result.name_hint)
        if dist_type(result).partial and (_is_for_a_step(op) or not op.result.first_use):
            body.known[op.result] = result
            return
        moved = self._moved(body, result, self._type(op.result))
        if moved is not result:
            set_name(moved, op.result.name_hint)
            pass_role(result, moved)
        body.known[op.result] = moved

    def _expand(self, op: DistOp, types: Sequence[DistType], body: _Body) -> bool:
        """Write the steps of a composite step, and return whether they are well typed on operands
        of some types."""
        try:
            _ = expansion_on(op, self.mesh, types)
        except LayoutError:
            return False
        operands = [self.laid_out(body, x, to) for x, to in zip(op.operands, types, strict=True)]
        result = expanded(op, body.steps, operands)
        set_name(result, op.result.name_hint)
        body.known[op.result] = self._moved(body, result, self._type(op.result))
        return True

    def _loop(self, loop: RepeatOp, body: _Body) -> None:
        """Write a loop."""
        block = loop.body.block
        carries, slices = len(loop.carried), len(loop.sliced)
        inner_types = [self._type(argument) for argument in block.args]
        inner, known = _block_like(block, inner_types)
        inside = _Body(BlockSteps(self.mesh, inner), known)
        self.block(block, inside)
        last = block.last_op
        assert isinstance(last, YieldOp)
        inside.steps.location = last.location
        yielded: list[SSAValue] = []
        for number, (value, result) in enumerate(zip(last.operands, loop.results, strict=True)):
            to = self._type(result)
            if number >= carries:
                to = replace(to, dims=to.dims[1:])
            yielded.append(self.laid_out(inside, value, to))
        inside.steps.add(YieldOp.create(operands=yielded))
        operands: list[list[SSAValue]] = [[], [], []]
        for number, (operand, x) in enumerate(zip(loop.operands, inner_types, strict=True)):
            group = (number >= carries) + (number >= carries + slices)
            if group == 1:
                x = replace(x, dims=(Dim(dist_type(operand).shape[0]), *x.dims))
            operands[group].append(self.laid_out(body, operand, x))
        body.steps.location = loop.location
        made = loop.rebuilt(operands, inner)
        made.attributes |= loop.attributes
        body.steps.add(made)
        for before, after in zip(loop.results, made.results, strict=True):
            set_name(after, before.name_hint)
            body.known[before] = after


def _is_for_a_step(op: DistOp) -> bool:
    """Return whether a single step of the same block uses the result of another one."""
    users = [use.operation for use in op.result.uses]
    if len(users) != 1 or not isinstance(users[0], DistOp):
        return False
    return not users[0].kind.layout_only and users[0].parent is op.parent
