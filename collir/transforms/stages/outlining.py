"""Tasks as functions: the steps of each task of a microbatch, and a loop that calls them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from collir.dialects.machine import MESH_ATTRIBUTE
from collir.dialects.nested import CallOp, Signature, YieldOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.names import set_name
from collir.ir.parameters import bindings_to_equal, keep_used_parameters
from collir.ir.roles import Role, role_of, set_role
from collir.ir.steps import step_op
from collir.layout import Mesh, Place
from collir.layout.coll import SEND
from collir.layout.mesh import digits_over
from collir.layout.pipelines.tasks import KINDS, Part, part_name
from collir.layout.types import place_at
from collir.transforms.stages.assignment import Assignment
from collir.transforms.stages.chunks import Flat


def _order(part: Part) -> tuple[int, int]:
    """Return the place of a task among those of a microbatch, one after the other."""
    kind, chunk = part
    return KINDS.index(kind), chunk if kind == "F" else -chunk


_STEMS = {"F": "forward", "B": "backward", "W": "weights"}


@dataclass(frozen=True)
class PipelineAxis:
    """The axis of a pipeline.

    Attributes:
        subs: its sub-axes, major to minor.
    """

    mesh: Mesh
    subs: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of places."""
        return self.mesh.group_size(self.subs)

    def at(self, number: int) -> Place:
        """Return the place with a number, as coordinates of the sub-axes."""
        return place_at(digits_over(self.mesh, self.subs, number))

    def send(self, value: SSAValue, sender: int, receiver: int) -> Operation:
        """Return the step that sends a value from a place to another."""
        ends = {"sender": sender, "receiver": receiver}
        return step_op(self.mesh, SEND, [value], axes=self.subs, **ends)


@dataclass(frozen=True, eq=False)
class Outlined:
    """The body of a loop with a schedule, and the origins of its arguments.

    Attributes:
        block: the tasks and sends, with a yield at the end.
        sources: for each argument of the block, the number of a flat argument, and its place.
        yielded: for each carry, the place of the task that yields it.
        functions: the functions of the tasks.
    """

    block: Block
    sources: list[tuple[int, int]]
    yielded: list[int]
    functions: list[FuncOp] = field(default_factory=list[FuncOp])


class Outlining:
    """The functions of tasks, and the body that calls them."""

    def __init__(
        self,
        flat: Flat,
        tasks: Assignment,
        places: Sequence[int],
        axis: PipelineAxis,
        parameters: Mapping[str, int],
    ):
        """Prepare the body; a function has the parameters that it uses."""
        self.flat, self.tasks, self.places, self.axis = flat, tasks, places, axis
        self.parameters = parameters
        self.mesh = axis.mesh
        self.groups: dict[Part, list[Operation]] = {}
        for op in flat.ops:
            if op in tasks.task:
                self.groups.setdefault(tasks.task[op], []).append(op)
        self.block = Block()
        self.arguments: dict[tuple[int, int], SSAValue] = {}
        self.values: dict[tuple[SSAValue, int], SSAValue] = {}
        self.functions: list[FuncOp] = []

    def run(self) -> Outlined:
        """Return the body with its functions."""
        self._add_arguments()
        for part in sorted(self.groups, key=_order):
            self._call(part)
        yielded = [self._home(value) for value in self.flat.last.operands]
        last = YieldOp.create(operands=[self.values[key] for key in yielded])
        self.block.add_op(last)
        sources = sorted(self.arguments, key=self._rank)
        carried = [place for _, place in yielded]
        return Outlined(self.block, sources, carried, self.functions)

    # --- values at places ---------------------------------------------------------------------

    def _home(self, value: SSAValue) -> tuple[SSAValue, int]:
        """Return a yielded value, with the place where it is computed."""
        assert isinstance(value.owner, Operation)
        return value, self.places[self.tasks.task[value.owner][1]]

    def _rank(self, key: tuple[int, int]) -> tuple[int, int, int]:
        """Return the order of an argument: carries, slices, then the others."""
        number, place = key
        ends = self.flat.carries, self.flat.carries + self.flat.slices
        return sum(number >= end for end in ends), number, place

    def _inputs(self, part: Part) -> list[SSAValue]:
        """Return the values that a task takes, in order of use."""
        inside = set(self.groups[part])
        inputs: dict[SSAValue, None] = {}
        left = [operand for op in self.groups[part] for operand in op.operands]
        for value in left:  # grows meanwhile
            if value.owner in self.tasks.everywhere:
                left += value.owner.operands if isinstance(value.owner, Operation) else ()
            elif value.owner not in inside:
                inputs[value] = None
        return list(inputs)

    def _outputs(self, part: Part) -> list[SSAValue]:
        """Return the values of a task that other tasks take, or that are yielded."""
        inside = set(self.groups[part])
        return [
            result
            for op in self.groups[part]
            for result in op.results
            if any(use.operation not in inside for use in result.uses)
        ]

    def _add_arguments(self) -> None:
        """Add the arguments of the block, each at the places of the tasks that take it."""
        needed = {
            (value.index, self.places[part[1]])
            for part in self.groups
            for value in self._inputs(part)
            if isinstance(value, BlockArgument) and value.index >= self.flat.carries
        }
        needed |= {(number, self._place_of_carry(number)) for number in range(self.flat.carries)}
        for number, place in sorted(needed, key=self._rank):
            old = self.flat.block.args[number]
            x = dist_type(old).with_place(self.axis.at(place))
            value = self.block.insert_arg(DistTensorType(x), len(self.block.args))
            set_name(value, old.name_hint)
            self.arguments[number, place] = value
            self.values[old, place] = value

    def _place_of_carry(self, number: int) -> int:
        """Return the place of the task that yields a carry.

        Raises:
            DiagnosticError: another task reads it.
        """
        maker = self.flat.last.operands[number].owner
        assert isinstance(maker, Operation)
        own = self.tasks.task[maker]
        chunk = self.flat.sources[number].chunk
        own_chunk = own[1] % (len(self.places) // self.flat.directions)
        for use in self.flat.block.args[number].uses:
            part = self.tasks.task.get(use.operation)
            if part is not None and part != own:
                raise DiagnosticError.at(
                    use.operation,
                    f"{part_name(part)} reads a sum over microbatches that {part_name(own)} adds "
                    "to: in a pipeline, one task reads and yields a carry, so do this behind the "
                    "loop over microbatches",
                )
        if chunk not in (None, own_chunk):
            raise DiagnosticError.at(
                maker,
                "this needs all layers at once in each microbatch, and a pipeline has them at "
                "several places: do it behind the loop over microbatches",
            )
        return self.places[own[1]]

    def _at(self, value: SSAValue, place: int) -> SSAValue:
        """Return a value at a place; a step sends it there if it is computed elsewhere."""
        if (value, place) not in self.values:
            _, home = self._home(value)
            send = self.axis.send(self.values[value, home], home, place)
            self.block.add_op(send)
            set_name(send.results[0], value.name_hint)
            self.values[value, place] = send.results[0]
        return self.values[value, place]

    # --- functions ----------------------------------------------------------------------------

    def _call(self, part: Part) -> None:
        """Add a call of the function of a task, and the function unless an equal one exists."""
        inputs, outputs = self._inputs(part), self._outputs(part)
        place = self.places[part[1]]
        function = self._shared(self._function(part, inputs, outputs))
        operands = [self._at(value, place) for value in inputs]
        signature = Signature.of(function)
        values = bindings_to_equal(function)
        call = CallOp.of(self.mesh, signature, operands, values, task=part_name(part))
        call.location = self.groups[part][0].location
        self.block.add_op(call)
        for old, new in zip(outputs, call.results, strict=True):
            set_name(new, old.name_hint)
            if role := role_of(old):
                set_role(new, role)
            elif any(self._is_backward(use.operation) for use in old.uses) and part[0] == "F":
                set_role(new, Role.ACTIVATION)
            self.values[old, place] = new

    def _is_backward(self, op: Operation) -> bool:
        return op in self.tasks.task and self.tasks.task[op][0] != "F"

    def _function(
        self, part: Part, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]
    ) -> FuncOp:
        block = Block(arg_types=[value.type for value in inputs])
        values: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
        for value, argument in zip(inputs, block.args, strict=True):
            set_name(argument, value.name_hint)
        inside = self._with_everywhere(part)
        for op in (op for op in self.flat.ops if op in inside):
            block.add_op(op.clone(values))
        block.add_op(ReturnOp(*(values[value] for value in outputs)))
        types = [arg.type for arg in block.args], [value.type for value in outputs]
        name = f"{_STEMS[part[0]]}_{part[1]}"
        function = FuncOp(name, types, Region(block))
        function.attributes[MESH_ATTRIBUTE] = SymbolRefAttr(self.mesh.name)
        keep_used_parameters(function, self.parameters)
        return function

    def _with_everywhere(self, part: Part) -> set[Operation]:
        """Return the operations of a task, with those that it repeats."""
        inside = set(self.groups[part])
        left = [x.owner for op in inside for x in op.operands]
        while left:
            op = left.pop()
            if isinstance(op, Operation) and op in self.tasks.everywhere and op not in inside:
                inside.add(op)
                left += [x.owner for x in op.operands]
        return inside

    def _shared(self, function: FuncOp) -> FuncOp:
        """Return an existing function equal to a new one, or add the new one."""
        for other in self.functions:
            same = other.function_type == function.function_type
            if same and other.body.is_structurally_equivalent(function.body):
                return other
        self.functions.append(function)
        return function


__all__ = ["Outlined", "Outlining", "PipelineAxis"]
