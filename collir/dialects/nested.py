"""Operations that run other operations: ``call`` another function, and ``repeat`` a region.

Such an operation has any number of operands and results. The program that it runs sees its block
arguments only, so it can be executed, typed, proven and costed by itself, once.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import I64, IntegerAttr, ModuleOp, SymbolRefAttr, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    lazy_traits_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import HasParent, IsolatedFromAbove, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from collir.dialects.machine import MESH_ATTRIBUTE, mesh_of
from collir.dialects.operation import IntegerDirective, attribute_of, value_text
from collir.dialects.tensor import DistTensorType, SizeAttr, dist_type
from collir.layout import DistType, LayoutError, Mesh
from collir.layout.loops import slice_type, stack_type
from collir.layout.steps import ArgumentKind


class NestedOp(IRDLOperation, ABC):
    """An operation that runs a program of its own, with any number of operands and results."""

    traits = traits_def(Pure())

    @property
    @abstractmethod
    def mnemonic(self) -> str:
        """The word by which ``.coll`` files name the operation."""

    @property
    @abstractmethod
    def times(self) -> int:
        """How often the program runs."""

    @abstractmethod
    def program(self) -> Block | None:
        """Return the block that runs; None if there is none, which the verifier refuses."""


@irdl_op_definition
class CallOp(NestedOp):
    """The results of another function on the same mesh."""

    name = "coll.call"

    callee = prop_def(SymbolRefAttr)
    inputs = var_operand_def(DistTensorType)
    outputs = var_result_def(DistTensorType)

    assembly_format = "$callee `(` $inputs `)` attr-dict `:` functional-type($inputs, $outputs)"

    @staticmethod
    def of(callee: str, operands: Sequence[SSAValue], results: Sequence[DistType]) -> "CallOp":
        """Return a call of a function whose results have the given types."""
        return CallOp.create(
            operands=operands,
            properties={"callee": SymbolRefAttr(callee)},
            result_types=[DistTensorType(x) for x in results],
        )

    @property
    def mnemonic(self) -> str:
        return "call"

    @property
    def times(self) -> int:
        return 1

    @property
    def symbol(self) -> str:
        """The name of the function that is called."""
        return self.callee.string_value()

    def function(self) -> FuncOp | None:
        """Return the function that is called; None if the module has none of that name."""
        module: Operation | None = self
        while module is not None and not isinstance(module, ModuleOp):
            module = module.parent_op()
        for op in module.ops if module else ():
            if isinstance(op, FuncOp) and op.sym_name.data == self.symbol:
                return op
        return None

    def program(self) -> Block | None:
        function = self.function()
        return None if function is None or function.is_declaration else function.body.block

    def verify_(self) -> None:
        function, mesh = self.function(), mesh_of(self)
        if function is None:
            raise VerifyException(f"there is no function @{self.symbol}")
        signature = Signature.of(function)
        problem = signature.problem(mesh, [dist_type(operand) for operand in self.operands])
        if problem is not None:
            raise VerifyException(problem.text([value_text(x) for x in self.operands]))
        outputs = [dist_type(result) for result in self.results]
        if outputs != list(signature.outputs):
            listed = ", ".join(map(str, signature.outputs))
            raise VerifyException(f"the results of @{self.symbol} are ({listed})")


@dataclass(frozen=True)
class Signature:
    """The types of a function, and the name of its mesh."""

    name: str
    mesh: str
    inputs: tuple[DistType, ...]
    outputs: tuple[DistType, ...]

    @staticmethod
    def of(function: FuncOp) -> "Signature":
        """Return the signature of a function on a mesh."""
        mesh = function.attributes.get(MESH_ATTRIBUTE)
        types = function.function_type
        inputs, outputs = (
            tuple(x.data for x in side if isinstance(x, DistTensorType))
            for side in (types.inputs, types.outputs)
        )
        name = mesh.string_value() if isinstance(mesh, SymbolRefAttr) else ""
        return Signature(function.sym_name.data, name, inputs, outputs)

    def problem(self, mesh: Mesh, operands: Sequence[DistType]) -> LayoutError | None:
        """Return why a function on ``mesh`` cannot call this one with operands, or None."""
        if mesh.name != self.mesh:
            return LayoutError(
                f"@{self.name} is on mesh @{self.mesh}, and this function is on mesh @{mesh.name}"
            )
        if not self.outputs:
            return LayoutError(f"@{self.name} has no results: calling it would do nothing")
        if len(operands) != len(self.inputs):
            count = len(self.inputs)
            return LayoutError(
                f"@{self.name} takes {count} operand{'s' * (count != 1)}, not {len(operands)}"
            )
        for index, (x, y) in enumerate(zip(operands, self.inputs, strict=True)):
            if x != y:
                text = f"@{self.name} takes {y.text(mesh)} here, and {{{index}}} is {x.text(mesh)}"
                return LayoutError(text, operand=index)
        return None


@irdl_op_definition
class YieldOp(IRDLOperation):
    """The end of an iteration: the carries of the next one, then the values to stack."""

    name = "coll.yield"

    arguments = var_operand_def(DistTensorType)

    traits = lazy_traits_def(lambda: (IsTerminator(), HasParent(RepeatOp)))

    assembly_format = "attr-dict ($arguments^ `:` type($arguments))?"


@irdl_op_definition
class RepeatOp(NestedOp):
    """A loop whose body sees only its block arguments: carries, slices and invariants.

    Iteration i of n gets the carries that the one before yields, slice i along the leading
    dimension of each sliced operand (slice n - 1 - i in ``reverse``), and the invariants. The
    results are the last carries, and the other values that all iterations yield, stacked along a
    leading dimension at the places of the slices.
    """

    name = "coll.repeat"
    WORD: ClassVar = "repeat"

    count = prop_def(IntegerAttr[I64] | SizeAttr)
    reverse = opt_prop_def(UnitAttr)
    carried = var_operand_def(DistTensorType)
    sliced = var_operand_def(DistTensorType)
    invariant = var_operand_def(DistTensorType)
    outputs = var_result_def(DistTensorType)
    body = region_def("single_block")

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(IsolatedFromAbove())

    custom_directives = (IntegerDirective,)
    assembly_format = (
        "custom<IntegerDirective>($count) (`carry` `(` $carried^ `:` type($carried) `)`)? "
        "(`slice` `(` $sliced^ `:` type($sliced) `)`)? "
        "(`with` `(` $invariant^ `:` type($invariant) `)`)? "
        "(`reverse` $reverse^)? `->` `(` type($outputs) `)` attr-dict-with-keyword $body"
    )

    @staticmethod
    def of(
        mesh: Mesh,
        count: int,
        operands: Sequence[Sequence[SSAValue]],
        body: Block,
        reverse: bool = False,
    ) -> "RepeatOp":
        """Return a loop with the types of its results inferred.

        Args:
            operands: the carries, the operands that are cut into slices, and the invariants.
            body: a block that ends with a ``YieldOp``.

        Raises:
            LayoutError: a value to stack has too many dimensions or bytes.
        """
        assert isinstance(body.last_op, YieldOp)
        yielded = [dist_type(value) for value in body.last_op.operands]
        types = result_types(mesh, count, yielded, len(operands[0]))
        number = attribute_of(ArgumentKind.INTEGER, count)
        return RepeatOp.build(
            operands=list(operands),
            properties={"count": number, "reverse": UnitAttr() if reverse else None},
            result_types=[[DistTensorType(x) for x in types]],
            regions=[Region(body)],
        )

    @property
    def mnemonic(self) -> str:
        return self.WORD

    @property
    def times(self) -> int:
        count = self.count
        return count.data if isinstance(count, SizeAttr) else count.value.data

    @property
    def is_reverse(self) -> bool:
        """True if the first iteration takes the last slices."""
        return self.reverse is not None

    def program(self) -> Block:
        return self.body.block

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The values that an iteration yields."""
        last = self.body.block.last_op
        return tuple(last.operands) if isinstance(last, YieldOp) else ()

    @property
    def carries(self) -> tuple[BlockArgument, ...]:
        """The block arguments that are carries."""
        return tuple(self.body.block.args[: len(self.carried)])

    @property
    def order(self) -> Sequence[int]:
        """The number of the slice that each iteration takes."""
        numbers = range(self.times)
        return numbers[::-1] if self.is_reverse else numbers

    def verify_(self) -> None:
        mesh = mesh_of(self)
        types = [dist_type(operand) for operand in self.operands]
        try:
            expected = argument_types(mesh, self.times, types, len(self.carried), len(self.sliced))
        except LayoutError as error:
            names = [value_text(operand) for operand in self.operands]
            raise VerifyException(error.text(names)) from error
        arguments = [dist_type(arg) for arg in self.body.block.args]
        if arguments != expected:
            listed = ", ".join(x.text(mesh) for x in expected)
            raise VerifyException(f"the arguments of the body are ({listed})")
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException("the body of a repeat ends with a yield")
        if self.yield_problem() is not None:
            return  # reported at the yield
        try:
            yielded = [dist_type(value) for value in self.yielded]
            inferred = result_types(mesh, self.times, yielded, len(self.carried))
        except LayoutError as error:
            raise VerifyException(error.text([])) from error
        if inferred != [dist_type(result) for result in self.results]:
            listed = ", ".join(x.text(mesh) for x in inferred)
            raise VerifyException(f"the results of this repeat are ({listed})")

    def yield_problem(self) -> tuple[str, int | None] | None:
        """Return what is wrong with the values that the body yields; see ``yield_problem``."""
        return yield_problem(mesh_of(self), self.carries, self.yielded)


def yield_problem(
    mesh: Mesh, carries: Sequence[SSAValue], yielded: Sequence[SSAValue]
) -> tuple[str, int | None] | None:
    """Return what is wrong with the values that the body of a loop yields, or None.

    It comes with the number of the carry that it is about, or None if it is about all values.
    """
    if len(yielded) < len(carries):
        count = len(carries)
        return (
            f"this repeat has {count} carr{'ies' if count > 1 else 'y'}, and its body yields "
            f"{len(yielded)} value{'s' * (len(yielded) != 1)}: the carries come first, then the "
            "values to stack",
            None,
        )
    if not yielded:
        return "the body yields nothing, so this repeat has no results", None
    for number, (carry, value) in enumerate(zip(carries, yielded, strict=False)):
        if carry.type != value.type:
            name, new = value_text(carry, "the carry"), value_text(value, "the value")
            return (
                f"the body yields {new}, which is {dist_type(value).text(mesh)}, for the carry "
                f"{name}, which is {dist_type(carry).text(mesh)}: a carry has one type in all "
                "iterations",
                number,
            )
    return None


def argument_types(
    mesh: Mesh, count: int, operands: Sequence[DistType], carries: int, slices: int
) -> list[DistType]:
    """Return the types of the block arguments of a loop.

    Args:
        carries, slices: the numbers of operands that are carries, and that are cut into slices.

    Raises:
        LayoutError: there are no iterations, or an operand cannot be cut into slices.
    """
    if count < 1:
        raise LayoutError(f"a repeat has 1 iteration or more, not {count}", parameter="count")
    types = list(operands)
    for index in range(carries, carries + slices):
        try:
            types[index] = slice_type(mesh, operands[index], count)
        except LayoutError as error:
            text = str(error).replace("{0}", f"{{{index}}}")
            raise LayoutError(text, operand=index, axes=error.axes) from error
    return types


def result_types(
    mesh: Mesh, count: int, yielded: Sequence[DistType], carries: int
) -> list[DistType]:
    """Return the types of the results of a loop.

    Raises:
        LayoutError: a value to stack has too many dimensions or bytes.
    """
    return [
        *yielded[:carries],
        *(stack_type(mesh, x, count) for x in yielded[carries:]),
    ]
