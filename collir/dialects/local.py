"""The local dialect: what each rank executes, once for all ranks.

Values are buffers of the rank and tokens of what is under way. A collective has a start and a wait;
in between its operand may be read by others, and its result by nobody. Only ``copy`` moves memory
inside a device. What differs by rank is a number of its coordinates, or stands in an ``at``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import (
    Attribute,
    Block,
    Dialect,
    Operation,
    Region,
    SSAValue,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import (
    IsolatedFromAbove,
    IsTerminator,
    NoTerminator,
    SymbolOpInterface,
    SymbolTable,
)
from xdsl.utils.exceptions import VerifyException

from collir.dialects.local_types import (
    BufferType,
    RankNumberAttr,
    TokenType,
    buffer_of,
    on_one_device,
)
from collir.dialects.machine import MeshOp
from collir.dialects.operation import DistOp, arguments_of, value_text
from collir.dialects.tables import OPERATIONS, register
from collir.dialects.tensor import AxesAttr, DistTensorType, PlaceAttr, SizesAttr
from collir.layout import LayoutError, Mesh, Place, Reduction, place_at
from collir.layout.cuts import places
from collir.layout.local import (
    CoordinateTable,
    LocalBuffer,
    atoms_in,
    axes_of,
    number_at,
    rank_text,
)
from collir.layout.local import bounds as bounds_on
from collir.layout.mesh import index_over
from collir.layout.steps import ArgumentKind

STEP = "step"
"""The attribute of an operation with the text of the step whose first one it is, for readers."""

# ---------------------------------------------------------------------------------------------
# Memory
# ---------------------------------------------------------------------------------------------


@irdl_op_definition
class AllocOp(IRDLOperation):
    """Memory that nothing has written to yet.

    Attributes:
        place: the coordinates of the ranks that need it; none: all do.
        start: where it lies in the arena of the function, in bytes, once that is planned.
    """

    name = "local.alloc"

    place = opt_prop_def(PlaceAttr)
    start = opt_prop_def(IntegerAttr[I64])
    result = result_def(BufferType)

    assembly_format = "(`at` $place^)? (`from` $start^)? attr-dict `:` type($result)"

    @staticmethod
    def of(x: LocalBuffer, place: Place = ()) -> "AllocOp":
        """Return an allocation."""
        properties: dict[str, Attribute] = {"place": PlaceAttr(place)} if place else {}
        return AllocOp.create(properties=properties, result_types=[BufferType(x)])

    def verify_(self) -> None:
        x = buffer_of(self.result)
        if not x.is_contiguous:
            raise VerifyException("memory is contiguous: a view has strides")
        check_numbers(x.numbers, mesh_at(self))


@irdl_op_definition
class FreeOp(IRDLOperation):
    """The end of the life of memory."""

    name = "local.free"

    memory = operand_def(BufferType)

    assembly_format = "$memory attr-dict `:` type($memory)"

    def verify_(self) -> None:
        if not isinstance(self.memory.owner, AllocOp):
            raise VerifyException("only what an alloc made is freed")


@irdl_op_definition
class ViewOp(IRDLOperation):
    """A part of a buffer, or all of it in another shape; nothing moves.

    Attributes:
        offset: where it begins, in elements.
        place: the coordinates of the ranks that have it; none: all do.
    """

    name = "local.view"

    offset = prop_def(RankNumberAttr)
    place = opt_prop_def(PlaceAttr)
    whole = operand_def(BufferType)
    result = result_def(BufferType)

    assembly_format = (
        "$whole (`at` $place^)? `from` $offset attr-dict `:` type($whole) `to` type($result)"
    )

    @staticmethod
    def of(whole: SSAValue, x: LocalBuffer, offset: int = 0, place: Place = ()) -> "ViewOp":
        """Return a view of a contiguous buffer."""
        properties: dict[str, Attribute] = {"offset": RankNumberAttr(offset)}
        return ViewOp.create(
            operands=[whole],
            properties=properties | ({"place": PlaceAttr(place)} if place else {}),
            result_types=[BufferType(x)],
        )

    def verify_(self) -> None:
        whole, part, mesh = buffer_of(self.whole), buffer_of(self.result), mesh_at(self)
        if not whole.is_contiguous:
            raise VerifyException("a view is of a contiguous buffer")
        if whole.dtype is not part.dtype:
            raise VerifyException(f"a view of {whole.dtype} has no elements of {part.dtype}")
        check_numbers(part.numbers, mesh)
        start, end = self.offset.data, self.offset.data + part.span
        at = self.place.data if self.place else ()
        low, high = bounds(start, mesh, at)[0], bounds(end, mesh, at)[1]
        if low < 0 or bounds(end - whole.elements, mesh, at)[1] > 0:
            size = rank_text(whole.elements)
            raise VerifyException(f"elements {low} to {high} are not all among the {size}")


@irdl_op_definition
class CopyOp(IRDLOperation):
    """The elements of a buffer in another one: of any strides, to any strides."""

    name = "local.copy"

    source = operand_def(BufferType)
    target = operand_def(BufferType)

    @staticmethod
    def of(source: SSAValue, target: SSAValue) -> "CopyOp":
        """Return a copy."""
        return CopyOp.create(operands=[source, target])

    assembly_format = "$source `to` $target attr-dict `:` type($source) `to` type($target)"

    def verify_(self) -> None:
        source, target = buffer_of(self.source), buffer_of(self.target)
        if source.dtype is not target.dtype or not _same(self, source.shape, target.shape):
            raise VerifyException(f"{source} has other elements than {target}")
        if self.source is self.target:
            raise VerifyException("a copy to itself does nothing")
        _check_target(target)


def _same(op: Operation, sizes: Sequence[int], others: Sequence[int]) -> bool:
    """Return whether sizes are the same on all ranks that run an operation."""
    if len(sizes) != len(others):
        return False
    if sizes == others:
        return True
    mesh, place = mesh_at(op), place_around(op)
    pairs = zip(sizes, others, strict=True)
    return all(bounds(size - other, mesh, place) == (0, 0) for size, other in pairs)


def _check_target(x: LocalBuffer) -> None:
    if x.repeats:
        raise VerifyException(f"elements of {x} share memory: nothing is written to them")


# ---------------------------------------------------------------------------------------------
# Collectives
# ---------------------------------------------------------------------------------------------


@irdl_op_definition
class StartOp(IRDLOperation):
    """The start of a collective; its blocks lie one behind the other, in the order of the group.

    Attributes:
        kind: the name of the collective.
        axes: the sub-axes of its groups, in order.
        reduction: of one that reduces, how.
        algorithm: the one that was asked for.
        root: the number in the group of the rank that holds the operand of a broadcast or a
            scatter, or the result of a reduce or a gather.
        sender, receiver: of a send, the numbers of these ranks in the group.
        distance, open: of a shift, the distance, and whether it is along a line.
        before, after: of a permute, the layouts; else it is over the axes.
        sends, receives: of one whose blocks differ in size, the elements of the blocks that leave
            for each rank of the group, and of those that come from each.
    """

    name = "local.start"

    kind = prop_def(StringAttr)
    axes = prop_def(AxesAttr)
    reduction = opt_prop_def(StringAttr)
    algorithm = opt_prop_def(StringAttr)
    root = opt_prop_def(IntegerAttr[I64])
    sender = opt_prop_def(IntegerAttr[I64])
    receiver = opt_prop_def(IntegerAttr[I64])
    distance = opt_prop_def(IntegerAttr[I64])
    open = opt_prop_def(UnitAttr)
    before = opt_prop_def(DistTensorType)
    after = opt_prop_def(DistTensorType)
    sends = opt_prop_def(ArrayAttr[RankNumberAttr])
    receives = opt_prop_def(ArrayAttr[RankNumberAttr])
    source = operand_def(BufferType)
    target = operand_def(BufferType)
    token = result_def(TokenType)

    @staticmethod
    def of(
        kind: str,
        axes: Sequence[str],
        source: SSAValue,
        target: SSAValue,
        properties: Mapping[str, Attribute],
    ) -> "StartOp":
        """Return the start of a collective."""
        named = {"kind": StringAttr(kind), "axes": AxesAttr(tuple(axes))}
        return StartOp.create(
            operands=[source, target],
            properties={**named, **properties},
            result_types=[TokenType()],
        )

    @property
    def called(self) -> str:
        """The name of the collective."""
        return self.kind.data

    @property
    def operation(self) -> Reduction | None:
        """The reduction; None if it does not reduce."""
        return Reduction(self.reduction.data) if self.reduction else None

    def number(self, name: str) -> int:
        """Return a number among its properties; 0 if it has none of that name."""
        value = self.properties.get(name)
        return value.value.data if isinstance(value, IntegerAttr) else 0

    @property
    def counts(self) -> tuple[Sequence[int], Sequence[int]]:
        """The elements of the blocks that leave for each rank, and that come from each; nothing
        where all of them are equal."""
        leave, come = ([x.data for x in side or ()] for side in (self.sends, self.receives))
        return leave, come

    def verify_(self) -> None:
        mesh, name = mesh_at(self), self.kind.data
        operation = OPERATIONS.get(name)
        if operation is None or not operation.KIND.sends:
            raise VerifyException(f"there is no collective {name}")
        kind = operation.KIND
        if unknown := [axis for axis in self.axes.data if axis not in mesh.by_name]:
            raise VerifyException(f"@{mesh.name} has no sub-axis {unknown[0]}")
        if self.algorithm and self.algorithm.data not in kind.algorithms:
            known = ", ".join(kind.algorithms) or "none"
            raise VerifyException(f"{name} has no algorithm '{self.algorithm.data}': use {known}")
        if kind.reduces is (self.reduction is None):
            raise VerifyException(f"{name} {'has no' if kind.reduces else 'takes no'} reduction")
        source, target = buffer_of(self.source), buffer_of(self.target)
        if source.dtype is not target.dtype:
            raise VerifyException(f"{name} does not make {target.dtype} of {source.dtype}")
        if not (source.is_contiguous and target.is_contiguous):
            raise VerifyException(f"{name} takes contiguous buffers: copy into one")
        count = mesh.group_size(self.axes.data)
        if self.sends is not None or self.receives is not None:
            self._check_counts(mesh, count)
        elif self.before is None:
            held = source.elements * (count if kind.gathers else 1)
            left = target.elements * (count if kind.shards else 1)
            if not _same(self, [held], [left]):
                message = f"{name} of {count} ranks does not make {target} of {source}"
                raise VerifyException(message)
        for word in ("root", "sender", "receiver"):
            if not 0 <= self.number(word) < max(1, count):
                raise VerifyException(f"a group of {count} ranks has no {word} {self.number(word)}")
        if kind.exchanges and self.sends is None and source.elements % count:
            raise VerifyException(f"{source} has no {count} equal blocks")
        if len(list(self.token.uses)) != 1:
            raise VerifyException(f"this {name} has no wait, or several")

    def _check_counts(self, mesh: Mesh, count: int) -> None:
        """Check that blocks that differ in size are those of the buffers."""
        name, kind, axes = self.called, OPERATIONS[self.called].KIND, self.axes.data
        sides = zip(
            ("sends", "receives"),
            (kind.shards or kind.exchanges, kind.gathers or kind.exchanges),
            self.counts,
            map(buffer_of, (self.source, self.target)),
            map(buffer_of, (self.target, self.source)),
            strict=True,
        )
        for word, has, blocks, whole, other in sides:
            if not has and blocks:
                raise VerifyException(f"{name} has no blocks of sizes that `{word}` gives")
            if not has:
                continue
            if len(blocks) != count:
                raise VerifyException(f"`{word}` gives a size for each of {count} ranks")
            check_numbers(blocks, mesh)
            if bounds(sum(blocks) - whole.elements, mesh) != (0, 0):
                raise VerifyException(f"the blocks of `{word}` are not all of {whole}")
            named = (x for atom in atoms_in([*blocks, other.elements]) for x in axes_of(atom))
            for at in places(mesh, list(dict.fromkeys([*axes, *named]))):
                own = number_at(blocks[index_over(mesh, axes, at)], mesh, at)
                if not kind.exchanges and own != number_at(other.elements, mesh, at):
                    raise VerifyException(f"`{word}` gives {own} for the block of {other}")


@irdl_op_definition
class WaitOp(IRDLOperation):
    """The end of what is under way."""

    name = "local.wait"

    token = operand_def(TokenType)

    assembly_format = "$token attr-dict"


# ---------------------------------------------------------------------------------------------
# Computations
# ---------------------------------------------------------------------------------------------

MASK = "mask"
"""The kernel that keeps a value at index 0, and writes the neutral element elsewhere."""


@irdl_op_definition
class ComputeOp(IRDLOperation):
    """An operation of the tables on the blocks of a rank.

    Attributes:
        kernel: the name of the operation.
        arguments: its properties, without the type of the result, which is that of its buffer.
        starts: where the block that it reads or writes begins in the whole, for each dimension, if
            it depends on that.
        whole: the shape of the whole, of a result that depends on it.
    """

    name = "local.compute"

    kernel = prop_def(StringAttr)
    arguments = prop_def(DictionaryAttr)
    starts = opt_prop_def(ArrayAttr[RankNumberAttr])
    whole = opt_prop_def(SizesAttr)
    inputs = var_operand_def(BufferType)
    outputs = var_operand_def(BufferType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def of(
        kernel: str,
        arguments: Mapping[str, Attribute],
        inputs: Sequence[SSAValue],
        outputs: Sequence[SSAValue],
        starts: Sequence[int] = (),
        whole: Sequence[int] = (),
    ) -> "ComputeOp":
        """Return a computation."""
        properties: dict[str, Attribute] = {
            "kernel": StringAttr(kernel),
            "arguments": DictionaryAttr(dict(arguments)),
        }
        if starts:
            properties["starts"] = ArrayAttr(map(RankNumberAttr, starts))
        if whole:
            properties["whole"] = SizesAttr(tuple(whole))
        return ComputeOp.build(operands=[inputs, outputs], properties=properties)

    def step(
        self, sizes: Callable[[LocalBuffer], LocalBuffer] | None = None, place: Place = ()
    ) -> DistOp:
        """Return the operation on tensors of a single device.

        Args:
            sizes: a function to buffers with other sizes, as those of one rank.
            place: the place of the tensors, for who asks which devices have them.
        """
        buffers = [[buffer_of(x) for x in values] for values in (self.inputs, self.outputs)]
        if sizes is not None:
            buffers = [list(map(sizes, values)) for values in buffers]
        types, results = (
            [DistTensorType(replace(on_one_device(x), place=place)) for x in values]
            for values in buffers
        )
        operation = OPERATIONS[self.kernel.data]
        made = dict.fromkeys(type_parameters(operation), (results or types)[0])
        return operation.create(
            operands=Block(arg_types=types).args,
            properties={**self.arguments.data, **made},
            result_types=results or types[:1],
        )

    def verify_(self) -> None:
        name = self.kernel.data
        operation = OPERATIONS.get(name)
        if operation is None or not operation.KIND.local:
            raise VerifyException(f"there is no operation {name} that sends nothing")
        for value in self.outputs:
            _check_target(buffer_of(value))
        check_numbers([start.data for start in self.starts or ()], mesh_at(self))
        if given := [x for x in type_parameters(operation) if x in self.arguments.data]:
            raise VerifyException(f"{name} takes no {given[0]}: its buffer has the type")
        inputs = [on_one_device(buffer_of(x)) for x in self.inputs]
        outputs = [on_one_device(buffer_of(x)) for x in self.outputs]
        if name == MASK:
            starts = [] if self.starts is None else [*self.starts]
            if not len(inputs) == len(starts) == 1 or inputs != outputs:
                raise VerifyException("mask has one operand, a result like it, and one start")
            if not isinstance(self.arguments.data.get("reduction"), StringAttr):
                raise VerifyException("mask says for which reduction it is")
            return
        if (count := operation.KIND.operands) not in (None, len(inputs)):
            plural = "s" * (count != 1)
            raise VerifyException(f"{name} takes {count} operand{plural}, not {len(inputs)}")
        try:
            step = self.step()
            step.get_irdl_definition().verify(step)
        except VerifyException as error:
            raise VerifyException(f"{name}: {str(error).partition(chr(10))[0]}") from error
        if operation.KIND.computes:
            return
        try:
            arguments = arguments_of(operation.KIND, step.properties)
            made = operation.KIND.result_type(mesh_at(self), inputs, arguments)
        except LayoutError as error:
            names = [value_text(value, "the operand") for value in self.inputs]
            raise VerifyException(f"{name}: {error.text(names)}") from error
        if [made] != outputs:
            written = ", ".join(map(str, outputs)) or "nothing"
            raise VerifyException(f"{name} makes {made}, not {written}")


# ---------------------------------------------------------------------------------------------
# Control
# ---------------------------------------------------------------------------------------------


@irdl_op_definition
class LocalYieldOp(IRDLOperation):
    """The end of an ``at``, with the tokens of what is under way behind it."""

    name = "local.yield"

    tokens = var_operand_def(TokenType)

    traits = traits_def(IsTerminator())

    assembly_format = "$tokens attr-dict (`:` type($tokens)^)?"


@irdl_op_definition
class AtOp(IRDLOperation):
    """Operations of the ranks at a place; others have nothing to wait for."""

    name = "local.at"

    place = prop_def(PlaceAttr)
    body = region_def("single_block")
    tokens = var_result_def(TokenType)

    @staticmethod
    def of(place: Place, body: Block, tokens: int = 0) -> "AtOp":
        """Return an ``at`` with a body that ends in a yield."""
        return AtOp.create(
            properties={"place": PlaceAttr(place)},
            regions=[Region(body)],
            result_types=[TokenType()] * tokens,
        )

    @property
    def yielded(self) -> Sequence[SSAValue]:
        """The tokens of the body that are its results."""
        last = self.body.block.last_op
        return last.operands if isinstance(last, LocalYieldOp) else ()

    def verify_(self) -> None:
        mesh = mesh_at(self)
        if not self.place.data:
            raise VerifyException("an at is for some of the ranks: name a coordinate of theirs")
        for axis, at in self.place.data:
            if axis not in mesh.by_name or not 0 <= at < mesh.by_name[axis].size:
                raise VerifyException(f"@{mesh.name} has no coordinate {at} on {axis}")
        if len(self.yielded) != len(self.tokens):
            raise VerifyException("an at yields as many tokens as it has results")
        if any(len(list(token.uses)) != 1 for token in self.tokens):
            raise VerifyException("what this at has begun has no wait, or several")


@irdl_op_definition
class LocalRepeatOp(IRDLOperation):
    """Iterations, one after the other.

    The body takes, for each carry, the buffer of its value and the one of the next; and a slice of
    each stack. The value begins in ``begins``; iterations write to ``ends`` and ``spares`` in
    turns, and the last one to ``ends``.
    """

    name = "local.repeat"

    times = prop_def(IntegerAttr[I64])
    reverse = opt_prop_def(UnitAttr)
    begins = var_operand_def(BufferType)
    ends = var_operand_def(BufferType)
    spares = var_operand_def(BufferType)
    stacks = var_operand_def(BufferType)
    body = region_def("single_block")

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    traits = traits_def(NoTerminator())

    @property
    def count(self) -> int:
        """The number of iterations."""
        return self.times.value.data

    def verify_(self) -> None:
        carries = [*self.begins]
        if not len(carries) == len(self.ends) == len(self.spares):
            raise VerifyException("a carry has a begin, an end, and a spare buffer")
        expected = [buffer_of(x) for x in carries for _ in range(2)]
        for stack in map(buffer_of, self.stacks):
            if not stack.is_contiguous or stack.shape[:1] != (self.count,):
                raise VerifyException(f"{stack} is no stack of {self.count} slices")
            expected.append(LocalBuffer(stack.dtype, stack.shape[1:]))
        if [buffer_of(x) for x in self.body.block.args] != expected:
            raise VerifyException("the body takes other buffers")
        for begin, end, spare in zip(carries, self.ends, self.spares, strict=True):
            if not begin.type == end.type == spare.type:
                raise VerifyException("the buffers of a carry are alike")
            if self.count > 1 and end is spare:
                raise VerifyException("a carry of several iterations needs two buffers")


@irdl_op_definition
class LocalCallOp(IRDLOperation):
    """The program of another function, on its buffers.

    Attributes:
        start: where the arena of the other function lies in that of this one, in bytes, once that
            is planned.
    """

    name = "local.call"

    callee = prop_def(SymbolRefAttr)
    start = opt_prop_def(IntegerAttr[I64])
    inputs = var_operand_def(BufferType)
    outputs = var_operand_def(BufferType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @staticmethod
    def of(callee: str, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> "LocalCallOp":
        """Return a call."""
        properties = {"callee": SymbolRefAttr(callee)}
        return LocalCallOp.build(operands=[inputs, outputs], properties=properties)

    def function(self) -> "LocalFuncOp":
        """Return the function that it calls.

        Raises:
            VerifyException: there is none.
        """
        found = SymbolTable.lookup_symbol(self, self.callee)
        if not isinstance(found, LocalFuncOp):
            raise VerifyException(f"there is no local function {self.callee}")
        return found

    def verify_(self) -> None:
        function = self.function()
        if function.mesh != enclosing(self).mesh:
            raise VerifyException(f"{self.callee} is on another mesh")
        for own, other in ((self.inputs, function.inputs), (self.outputs, function.outputs)):
            if [x.type for x in own] != [x.type for x in other]:
                raise VerifyException(f"{self.callee} takes other buffers")
        if self.start is not None and function.arena is None:
            raise VerifyException(f"{self.callee} has no arena that lies in this one")


@irdl_op_definition
class LocalFuncOp(IRDLOperation):
    """The program of each rank. Its last arguments are the buffers of its results.

    Attributes:
        places: of each argument, the coordinates of the ranks that hold it.
        returned: the number of results.
        arena: the bytes of memory that it needs beside its arguments, once that is planned.
    """

    name = "local.func"

    sym_name = prop_def(SymbolNameConstraint())
    mesh = prop_def(SymbolRefAttr)
    places = prop_def(ArrayAttr[PlaceAttr])
    returned = prop_def(IntegerAttr[I64])
    arena = opt_prop_def(IntegerAttr[I64])
    body = region_def("single_block")

    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove(), NoTerminator())

    @property
    def inputs(self) -> Sequence[SSAValue]:
        """The arguments that it reads."""
        return self.body.block.args[: len(self.body.block.args) - self.returned.value.data]

    @property
    def outputs(self) -> Sequence[SSAValue]:
        """The arguments that it writes."""
        return self.body.block.args[len(self.inputs) :]

    def verify_(self) -> None:
        args = self.body.block.args
        if len(self.places) != len(args) or not 0 <= self.returned.value.data <= len(args):
            raise VerifyException("every argument has a place, and results are among them")
        mesh = mesh_at(self)
        for arg in args:
            if not buffer_of(arg).is_contiguous:
                raise VerifyException("arguments are contiguous")
            check_numbers(buffer_of(arg).numbers, mesh)


def type_parameters(operation: type[DistOp]) -> list[str]:
    """Return the properties of an operation that are the type of its result."""
    return [x.name for x in operation.KIND.parameters if x.kind is ArgumentKind.TYPE]


def number(value: int) -> IntegerAttr[I64]:
    """Return an integer as an attribute."""
    return IntegerAttr(value, i64)


def enclosing(op: Operation) -> LocalFuncOp:
    """Return the local function that an operation is in, or is.

    Raises:
        VerifyException: there is none.
    """
    function: Operation | None = op
    while function is not None and not isinstance(function, LocalFuncOp):
        function = function.parent_op()
    if function is None:
        raise VerifyException("the operation is not in a local function, so it has no mesh")
    return function


def place_around(op: Operation) -> Place:
    """Return the place of the ranks that run an operation: that of the ``at`` it is in."""
    place: dict[str, int] = {}
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, AtOp):
            place |= dict(parent.place.data)
        parent = parent.parent_op()
    return place_at(place)


def mesh_at(op: Operation) -> Mesh:
    """Return the mesh of the local function that an operation is in, or is.

    Raises:
        VerifyException: there is none.
    """
    function = enclosing(op)
    mesh = SymbolTable.lookup_symbol(function, function.mesh)
    if not isinstance(mesh, MeshOp):
        raise VerifyException(f"there is no mesh {function.mesh}")
    return mesh.value()


def bounds(x: int, mesh: Mesh, place: Place = ()) -> tuple[int, int]:
    """Return the least and the largest number of all ranks of a mesh at a place.

    Raises:
        VerifyException: it is of sub-axes that the mesh does not have.
    """
    check_numbers([x], mesh)
    return bounds_on(x, mesh, place)


def check_numbers(numbers: Iterable[int], mesh: Mesh) -> None:
    """Check that numbers are of coordinates of a mesh.

    Raises:
        VerifyException: they are of sub-axes that it does not have, or a table has other numbers.
    """
    for atom in atoms_in(numbers):
        for axis in axes_of(atom):
            if axis not in mesh.by_name:
                raise VerifyException(f"@{mesh.name} has no sub-axis {axis}")
        if isinstance(atom, CoordinateTable):
            count = mesh.group_size(atom.axes)
            if len(atom.values) != count:
                raise VerifyException(f"{atom} has {len(atom.values)} numbers, and not {count}")


def local_functions(module: Operation) -> Iterator[LocalFuncOp]:
    """Yield the local functions of a module."""
    for region in module.regions:
        for block in region.blocks:
            yield from (op for op in block.ops if isinstance(op, LocalFuncOp))


Local = Dialect(
    "local",
    [
        AllocOp,
        FreeOp,
        ViewOp,
        CopyOp,
        StartOp,
        WaitOp,
        ComputeOp,
        LocalYieldOp,
        AtOp,
        LocalRepeatOp,
        LocalCallOp,
        LocalFuncOp,
    ],
    [BufferType, TokenType, RankNumberAttr],
)

register(Local)
