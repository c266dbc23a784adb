"""Operations that run other operations: ``call`` another function, and ``repeat`` a region.

Such an operation has any number of operands and results. The program that it runs sees its block
arguments only, so it can be executed, typed, proven and costed by itself, once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

from xdsl.dialects.builtin import (
    I64,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
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
from collir.dialects.parameters import parameters_of
from collir.dialects.tensor import BindingsAttr, DistTensorType, SizeAttr, SizesAttr, dist_type
from collir.layout import DistType, LayoutError, Mesh, check_type
from collir.layout.formulas import FormulaError
from collir.layout.loops import slice_type, stack_type
from collir.layout.sizes import Size, bindings_text, default_error, formula_of, size_with
from collir.layout.steps import ArgumentKind
from collir.layout.types import Place, with_sizes


class NestedOp(IRDLOperation, ABC):
    """An operation that runs a program of its own, with any number of operands and results."""

    traits = traits_def(Pure())

    @property
    @abstractmethod
    def mnemonic(self) -> str:
        """The word by which ``.coll`` files name the operation."""

    @abstractmethod
    def program(self) -> Block | None:
        """Return the block in the operation that it runs; None if that is elsewhere."""


@irdl_op_definition
class CallOp(NestedOp):
    """The results of another function on the same mesh.

    With ``wrt``, the gradients of its first result with respect to these operands come behind them.
    With ``recompute``, gradients of the caller keep its operands alone, and run it again. With
    ``fused``, they do so too, and its steps are one kernel, as are the steps of its reverse. A
    ``task`` names it in the schedule of the loop that it is in.
    """

    name = "coll.call"

    callee = prop_def(SymbolRefAttr)
    bindings = opt_prop_def(BindingsAttr)
    wrt = opt_prop_def(SizesAttr)
    recompute = opt_prop_def(UnitAttr)
    fused = opt_prop_def(UnitAttr)
    task = opt_prop_def(StringAttr)
    inputs = var_operand_def(DistTensorType)
    outputs = var_result_def(DistTensorType)

    assembly_format = (
        "$callee (`at` $bindings^)? `(` $inputs `)` (`wrt` $wrt^)? (`recompute` $recompute^)? "
        "(`fused` $fused^)? (`task` $task^)? attr-dict `:` "
        "functional-type($inputs, $outputs)"
    )

    @staticmethod
    def of(
        mesh: Mesh,
        callee: "Signature",
        operands: Sequence[SSAValue],
        bindings: Mapping[str, int] = MappingProxyType({}),
        wrt: Sequence[int] = (),
        recompute: bool = False,
        fused: bool = False,
        task: str | None = None,
    ) -> "CallOp":
        """Return a call with the types of its results inferred.

        Args:
            mesh: the mesh of the caller.
            bindings: values of parameters of the callee, with their formulas over the parameters
                of the caller.
            wrt: the numbers of the operands with respect to which the first result is
                differentiated; their gradients come behind the results.
            recompute: whether gradients of the caller keep the operands alone.
            fused: whether the steps of the function are one kernel.
            task: its name in the schedule of the loop that it is in.

        Raises:
            LayoutError: the function does not take these operands at these values, or has no
                gradient with respect to one of them.
        """
        types = [dist_type(x) for x in operands]
        results = callee.results(mesh, types, bindings)
        results += callee.gradients(mesh, types, wrt)
        properties: dict[str, Attribute] = {"callee": SymbolRefAttr(callee.name)}
        if wrt:
            properties["wrt"] = SizesAttr(tuple(wrt))
        flags = {"recompute": recompute, "fused": fused}
        properties |= {name: UnitAttr() for name, given in flags.items() if given}
        if task is not None:
            properties["task"] = StringAttr(task)
        if bindings:
            known = [name for name, _ in callee.parameters]
            ordered = sorted(bindings.items(), key=lambda binding: known.index(binding[0]))
            properties["bindings"] = BindingsAttr(tuple(ordered))
        return CallOp.create(
            operands=operands,
            properties=properties,
            result_types=[DistTensorType(x) for x in results],
        )

    @property
    def mnemonic(self) -> str:
        return "gradient" if self.wrt else "call"

    @property
    def sought(self) -> tuple[int, ...]:
        """The numbers of the operands whose gradients the call gives; none for a plain call."""
        return self.wrt.data if self.wrt else ()

    @property
    def values(self) -> dict[str, int]:
        """The values of parameters that the call gives; other parameters keep their defaults."""
        return dict(self.bindings.data) if self.bindings else {}

    def program(self) -> None:
        """Return None: the function has other sizes than the call, which is inlined first."""
        return

    def place(self, function: FuncOp) -> Place:
        """Return where the call of a function runs, beyond the places that its types name."""
        inputs = [x.data for x in function.function_type.inputs if isinstance(x, DistTensorType)]
        return place_beyond([dist_type(x) for x in self.operands], inputs)

    @property
    def symbol(self) -> str:
        """The name of the function that is called."""
        return self.callee.string_value()

    def function(self) -> FuncOp | None:
        """Return the called function; None if the module has no such one."""
        module: Operation | None = self
        while module is not None and not isinstance(module, ModuleOp):
            module = module.parent_op()
        symbol = self.symbol
        for op in module.ops if module else ():
            if isinstance(op, FuncOp) and op.sym_name.data == symbol:
                return op
        return None

    def verify_(self) -> None:
        function, mesh = self.function(), mesh_of(self)
        if function is None:
            raise VerifyException(f"there is no function @{self.symbol}")
        types = [dist_type(operand) for operand in self.operands]
        try:
            signature = Signature.of(function)
            expected = signature.results(mesh, types, self.values)
            expected += signature.gradients(mesh, types, self.sought)
        except LayoutError as error:
            raise VerifyException(error.text([value_text(x) for x in self.operands])) from error
        if not _agree([dist_type(result) for result in self.results], expected):
            listed = ", ".join(map(str, expected))
            raise VerifyException(f"the results of @{self.symbol} are ({listed})")


@dataclass(frozen=True)
class Signature:
    """The types of a function, the name of its mesh, and its parameters with their defaults.

    Attributes:
        argument_groups, result_groups: the fields of each record among them, and None for a single
            value, where the text of calls depends on that.
    """

    name: str
    mesh: str
    inputs: tuple[DistType, ...]
    outputs: tuple[DistType, ...]
    parameters: tuple[tuple[str, int], ...] = ()
    argument_groups: tuple[tuple[str, ...] | None, ...] = field(default=(), compare=False)
    result_groups: tuple[tuple[str, ...] | None, ...] = field(default=(), compare=False)

    @staticmethod
    def of(function: FuncOp) -> "Signature":
        """Return the signature of a function on a mesh.

        Raises:
            VerifyException: the function's attribute for parameters is wrong.
        """
        mesh = function.attributes.get(MESH_ATTRIBUTE)
        types = function.function_type
        inputs, outputs = (
            tuple(x.data for x in side if isinstance(x, DistTensorType))
            for side in (types.inputs, types.outputs)
        )
        name = mesh.string_value() if isinstance(mesh, SymbolRefAttr) else ""
        parameters = tuple(parameters_of(function).items())
        return Signature(function.sym_name.data, name, inputs, outputs, parameters)

    def results(
        self, mesh: Mesh, operands: Sequence[DistType], bindings: Mapping[str, int]
    ) -> list[DistType]:
        """Return the types of the results of a call, with formulas over the caller's parameters.

        Args:
            mesh: the mesh of the caller.
            bindings: the values of parameters that the call gives.

        Raises:
            LayoutError: the function cannot be called so. It has the index of an operand or the
                name of a parameter if the error is about that.
        """
        if mesh.name != self.mesh:
            raise LayoutError(
                f"@{self.name} is on mesh @{self.mesh}, and this function is on mesh @{mesh.name}: "
                f"call `func @{self.name}_there = @{self.name} on @{mesh.name}` in its place"
            )
        if not self.outputs:
            raise LayoutError(f"@{self.name} has no results: calling it would do nothing")
        self.check_names(bindings)
        if len(operands) != len(self.inputs):
            count = len(self.inputs)
            raise LayoutError(
                f"@{self.name} takes {count} operand{'s' * (count != 1)}, not {len(operands)}"
            )
        expected = self.inputs_at(mesh, bindings)
        place = place_beyond(operands, expected)
        for index, x in enumerate(operands):
            if not x.agrees(expected[index].with_place(place)):
                declared = self.inputs[index].with_place(place)
                raise self._mismatch(mesh, index, x, declared, expected[index].with_place(place))
        values = {**dict(self.parameters), **bindings}
        outputs = [self._at(mesh, declared, values) for declared in self.outputs]
        if any(axis in x.axes for x in outputs for axis, _ in place):
            return outputs  # the error of a function called at a place
        return [x.with_place(place) for x in outputs]

    def inputs_at(self, mesh: Mesh, bindings: Mapping[str, int]) -> list[DistType]:
        """Return the types of the operands of a call that gives values to parameters.

        Raises:
            LayoutError: a type is none at these values.
        """
        values = {**dict(self.parameters), **bindings}
        return [self._at(mesh, declared, values) for declared in self.inputs]

    def gradients(
        self, mesh: Mesh, operands: Sequence[DistType], wrt: Sequence[int]
    ) -> list[DistType]:
        """Return the types of the gradients of the first result with respect to operands.

        Raises:
            LayoutError: the first result is no floating-point number, or an operand has no
                gradient. It has the index of the operand if the error is about that.
        """
        if not wrt:
            return []
        first = self.outputs[0]
        if first.dims or not first.dtype.is_float:
            raise LayoutError(
                f"@{self.name} has no gradient: its first result is {first.text(mesh)}, and only "
                "a floating-point number without dimensions can be differentiated, such as f32[]"
            )
        for index in wrt:
            x = operands[index]
            if wrt.count(index) > 1:
                raise LayoutError(f"{{{index}}} is named twice", operand=index)
            if x.partial or not x.dtype.is_float:
                advice = "all_reduce it first" if x.partial else "only floating-point numbers have"
                raise LayoutError(
                    f"@{self.name} has no gradient with respect to {{{index}}}, which is "
                    f"{x.text(mesh)}: {advice}",
                    operand=index,
                )
        return [operands[index] for index in wrt]

    def check_names(self, bindings: Mapping[str, int]) -> None:
        """Check that the function has the parameters that a call gives values to.

        Raises:
            LayoutError: it has no such parameter, or the value is none for it.
        """
        known = dict(self.parameters)
        for name, value in bindings.items():
            if name not in known:
                has = f"its parameters are {', '.join(known)}"
                has = has if known else f"call it without values, `call @{self.name}(...)`"
                raise LayoutError(f"@{self.name} has no parameter '{name}': {has}", parameter=name)
            if problem := default_error(name, int(value)):
                raise LayoutError(problem, parameter=name)

    def _at(self, mesh: Mesh, declared: DistType, values: Mapping[str, int]) -> DistType:
        """Return a type of the signature where parameters have other values."""
        if not any(isinstance(size, Size) for size in declared.shape):
            return declared
        known = frozenset[str]().union(*(formula_of(n).parameters for n in declared.shape))
        if unknown := sorted(known.difference(values)):
            raise LayoutError(f"'{unknown[0]}' is no parameter of @{self.name}")
        try:
            x = with_sizes(declared, [size_with(size, values) for size in declared.shape])
            check_type(mesh, x)
        except (FormulaError, LayoutError) as error:
            text = error.text(()) if isinstance(error, LayoutError) else str(error)
            raise LayoutError(f"with {self._listed(declared, values)}, {text}") from error
        return x

    @staticmethod
    def _listed(declared: DistType, values: Mapping[str, int]) -> str:
        """Return the values of the parameters in a type, as in ``batch = 8, hidden = 64``."""
        return bindings_text(map(formula_of, declared.shape), values)

    def _mismatch(
        self, mesh: Mesh, index: int, x: DistType, declared: DistType, expected: DistType
    ) -> LayoutError:
        """Return the error for an operand of another type than the call takes."""
        names = frozenset[str]().union(*(formula_of(n).parameters for n in declared.shape))
        here = f"{expected.text(mesh)} here"
        advice = ""
        if names and len(expected.dims) == len(x.dims) and with_sizes(expected, x.shape) == x:
            here += f" ({declared.text(mesh, formulas=True)})"
            named = [f"{name} = ..." for name, _ in self.parameters if name in names]
            advice = f": give its parameters other values, `call @{self.name}({', '.join(named)})`"
        text = f"@{self.name} takes {here}, and {{{index}}} is {x.text(mesh)}{advice}"
        return LayoutError(text, operand=index)


def place_beyond(operands: Sequence[DistType], inputs: Sequence[DistType]) -> Place:
    """Return the place of a call whose operands are at a place that its function does not name.

    This is the place of the first operand. A function that names none of its sub-axes means the
    same at every place.
    """
    if not operands or not inputs:
        return ()
    named = {axis for x in inputs for axis in x.axes}
    return tuple(item for item in operands[0].place if item[0] not in named)


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
    leading dimension at the places of the slices. With ``recompute``, gradients keep the carries of
    all iterations alone, and run each iteration again. With a ``schedule``, the iterations are
    microbatches, the body has tasks at places, and each place runs its tasks in the order that the
    schedule says, whose name or text it is; the results are the same.
    """

    name = "coll.repeat"
    WORD: ClassVar = "repeat"

    count = prop_def(IntegerAttr[I64] | SizeAttr)
    reverse = opt_prop_def(UnitAttr)
    recompute = opt_prop_def(UnitAttr)
    schedule = opt_prop_def(StringAttr)
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
        "(`reverse` $reverse^)? (`recompute` $recompute^)? (`schedule` $schedule^)? "
        "`->` `(` type($outputs) `)` attr-dict-with-keyword $body"
    )

    @staticmethod
    def of(
        mesh: Mesh,
        count: int,
        operands: Sequence[Sequence[SSAValue]],
        body: Block,
        reverse: bool = False,
        recompute: bool = False,
        schedule: str | None = None,
    ) -> "RepeatOp":
        """Return a loop with the types of its results inferred.

        Args:
            operands: the carries, the operands that are cut into slices, and the invariants.
            body: a block that ends with a ``YieldOp``.
            schedule: the name or the text of a schedule of tasks.

        Raises:
            LayoutError: a value to stack has too many dimensions or bytes.
        """
        assert isinstance(body.last_op, YieldOp)
        yielded = [dist_type(value) for value in body.last_op.operands]
        types = result_types(mesh, count, yielded, len(operands[0]))
        number = attribute_of(ArgumentKind.INTEGER, count)
        return RepeatOp.build(
            operands=list(operands),
            properties={
                "count": number,
                "reverse": UnitAttr() if reverse else None,
                "recompute": UnitAttr() if recompute else None,
                "schedule": None if schedule is None else StringAttr(schedule),
            },
            result_types=[[DistTensorType(x) for x in types]],
            regions=[Region(body)],
        )

    def rebuilt(
        self, operands: Sequence[Sequence[SSAValue]], body: Block, count: int | None = None
    ) -> "RepeatOp":
        """Return a loop with another body and other operands, in the same direction.

        Args:
            count: the number of iterations, if it is another.
        """
        count = self.times if count is None else count
        again = self.recompute is not None
        schedule = self.schedule.data if self.schedule else None
        mesh = mesh_of(self)
        loop = RepeatOp.of(mesh, count, operands, body, self.is_reverse, again, schedule)
        loop.location = self.location
        return loop

    @property
    def mnemonic(self) -> str:
        return self.WORD

    @property
    def times(self) -> int:
        """The number of iterations."""
        count = self.count
        return count.data if isinstance(count, SizeAttr) else count.value.data

    @property
    def is_reverse(self) -> bool:
        """True if the first iteration takes the last slices."""
        return self.reverse is not None

    def program(self) -> Block:
        """Return the block that each iteration runs."""
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
        if not _agree(arguments, expected):
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
        if not _agree(inferred, [dist_type(result) for result in self.results]):
            listed = ", ".join(x.text(mesh) for x in inferred)
            raise VerifyException(f"the results of this repeat are ({listed})")

    def yield_problem(self) -> tuple[str, int | None] | None:
        """Return what is wrong with the values that the body yields; see ``yield_problem``."""
        return yield_problem(mesh_of(self), self.carries, self.yielded)


def _agree(types: Sequence[DistType], others: Sequence[DistType]) -> bool:
    return len(types) == len(others) and all(map(DistType.agrees, types, others))


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
        if not dist_type(carry).agrees(dist_type(value)):
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
