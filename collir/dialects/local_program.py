"""The programs of ranks in the local dialect: functions, calls, loops, and places."""

from collections.abc import Iterable, Iterator, Sequence

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    IntegerAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import (
    Block,
    Operation,
    Region,
    SSAValue,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
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
)
from collir.dialects.machine import MeshOp
from collir.dialects.parameters import parameters_of
from collir.dialects.tensor import PlaceAttr
from collir.layout import Mesh, Place, place_at
from collir.layout.local import (
    CoordinateTable,
    LocalBuffer,
    Ranks,
    atoms_in,
    axes_of,
)

STEP = "step"
"""The attribute of an operation with the text of the step whose first one it is, for readers."""


@irdl_op_definition
class LocalYieldOp(IRDLOperation):
    """The end of an ``at``, with the tokens of what is under way behind it."""

    name = "local.yield"

    tokens = var_operand_def(TokenType)

    traits = traits_def(IsTerminator())

    assembly_format = "$tokens attr-dict (`:` type($tokens)^)?"


@irdl_op_definition
class AtOp(IRDLOperation):
    """Operations of the ranks at a place; other ranks skip them."""

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
    turns, and the last one to ``ends``. If all three are one buffer, the value is updated in place.
    """

    name = "local.repeat"

    times = prop_def(RankNumberAttr)
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
        return self.times.data

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
            if self.count > 1 and end is spare is not begin:
                raise VerifyException("a carry of several iterations needs two buffers")


@irdl_op_definition
class LocalCallOp(IRDLOperation):
    """The program of another function, on its buffers.

    Attributes:
        start: the offset of the other function's arena in this function's arena, in bytes, once it
            is planned.
    """

    name = "local.call"

    callee = prop_def(SymbolRefAttr)
    start = opt_prop_def(RankNumberAttr)
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
        symbol = SymbolTable.lookup_symbol(self, self.callee)
        if not isinstance(symbol, LocalFuncOp):
            raise VerifyException(f"there is no local function {self.callee}")
        return symbol

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
    arena = opt_prop_def(RankNumberAttr)
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
        ranks = ranks_at(self)
        for arg in args:
            if not buffer_of(arg).is_contiguous:
                raise VerifyException("arguments are contiguous")
            check_numbers(buffer_of(arg).numbers, ranks)


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


def ranks_at(op: Operation) -> Ranks:
    """Return the ranks that run the local function of an operation.

    Raises:
        VerifyException: there is none, or it has no mesh.
    """
    return Ranks(mesh_at(op), parameters_of(enclosing(op)))


def bounds(x: int, ranks: Ranks, place: Place = ()) -> tuple[int, int]:
    """Return the least and the largest value of a number on all ranks at a place.

    Raises:
        VerifyException: it depends on sub-axes that the mesh does not have.
    """
    check_numbers([x], ranks)
    return ranks.bounds(x, place)


def check_numbers(numbers: Iterable[int], ranks: Ranks) -> None:
    """Check that numbers depend only on size parameters and on coordinates of a mesh.

    Raises:
        VerifyException: they depend on unknown sub-axes, or a table has other numbers.
    """
    mesh = ranks.mesh
    for atom in atoms_in(numbers):
        if atom in ranks.values:
            continue
        for axis in axes_of(atom):
            if axis not in mesh.by_name:
                raise VerifyException(f"@{mesh.name} has no sub-axis {axis}")
        if isinstance(atom, CoordinateTable):
            count = mesh.group_size(atom.axes)
            if len(atom.values) != count:
                raise VerifyException(f"{atom} has {len(atom.values)} numbers, and not {count}")


def same_numbers(op: Operation, sizes: Sequence[int], others: Sequence[int]) -> bool:
    """Return whether sizes are the same on all ranks that run an operation."""
    if len(sizes) != len(others):
        return False
    if sizes == others:
        return True
    ranks, place = ranks_at(op), place_around(op)
    pairs = zip(sizes, others, strict=True)
    return all(bounds(size - other, ranks, place) == (0, 0) for size, other in pairs)


def local_functions(module: Operation) -> Iterator[LocalFuncOp]:
    """Yield the local functions of a module."""
    for region in module.regions:
        for block in region.blocks:
            yield from (op for op in block.ops if isinstance(op, LocalFuncOp))
