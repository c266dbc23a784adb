"""The interface of operations on distributed tensors, for all code above the dialects.

The row of an operation in a table of steps (``collir.layout.steps``) has the type of its result,
its written form, the bytes it moves, the place of its result, and whether it sends. Code above does
not need to know which operations exist.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeGuard

from xdsl.dialects.builtin import I64, IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.interfaces import HasFolderInterface
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, Pure
from xdsl.utils.exceptions import VerifyException

from collir.dialects.algorithms import AlgorithmAttr
from collir.dialects.machine import NumberAttr, mesh_of
from collir.dialects.tensor import (
    AxesAttr,
    DistTensorType,
    PlaceAttr,
    SizeAttr,
    SizesAttr,
    dist_type,
    parse_optional_formula,
    size_text,
)
from collir.layout import DistType, LayoutError, Mesh, MeshError, Place, check_type
from collir.layout.algorithm_names import AlgorithmName
from collir.layout.coll import ADD
from collir.layout.operation_table import OperationTable
from collir.layout.sizes import Size, as_number, same_size, without_formula
from collir.layout.steps import AHEAD, ASYNC, Argument, ArgumentKind, Arguments, StepKind
from collir.layout.structure import Structure
from collir.machine import MachineError

Properties = Mapping[str, Attribute]


class MakesNewValues(MemoryEffect):
    """The results are values of their own: unused ones may go, but equal operations stay apart."""

    @classmethod
    def get_effects(cls, op: Operation) -> set[EffectInstance]:
        return {EffectInstance(MemoryEffectKind.ALLOC, result) for result in op.results}


class DistOp(IRDLOperation, HasFolderInterface, ABC):
    """An operation on distributed tensors, with one result whose type follows from its row.

    Operations are ``Pure``: in an SPMD program every device runs the same operations, so an unused
    operation is removed, and equal operations are merged, on all devices alike. Operations whose
    row is ``fixed`` are not merged.
    """

    KIND: ClassVar[StepKind]

    result = result_def(DistTensorType)

    traits = traits_def(Pure())

    # --- the type rule ------------------------------------------------------------------------

    @classmethod
    def make(cls, mesh: Mesh, *operands: SSAValue, **properties: Attribute) -> Self:
        """Return an operation with its result type inferred.

        Raises:
            LayoutError: the step is not well typed.
            TypeError: a property is missing that the step needs.
        """
        try:
            result = cls.result_type(mesh, [dist_type(operand) for operand in operands], properties)
        except LayoutError as error:
            error.args = (error.text([value_text(operand) for operand in operands]),)
            raise
        except KeyError as error:
            needed = [p.name for p in cls.KIND.parameters if p.required]
            if not (missing := [name for name in needed if name not in properties]):
                raise
            given = ", ".join(properties) or "none"
            message = f"{cls.KIND.name} needs the property {missing[0]} (given: {given})"
            raise TypeError(message) from error
        return cls.create(
            operands=operands, properties=properties, result_types=[DistTensorType(result)]
        )

    @classmethod
    def result_type(
        cls, mesh: Mesh, operands: Sequence[DistType], properties: Properties
    ) -> DistType:
        """Return the type of the result.

        Raises:
            LayoutError: the step is not well typed, or its algorithm does not exist.
        """
        return cls.KIND.result_type(mesh, operands, arguments_of(cls.KIND, properties))

    def infer(self) -> DistType:
        """Return the type of the result that the typing rule infers.

        Raises:
            LayoutError: the step is not well typed.
            VerifyException: there is no mesh, or an operand is no distributed tensor.
        """
        mesh = mesh_of(self)
        types = [dist_type(operand) for operand in self.operands]
        for operand, x in zip(self.operands, types, strict=True):
            if type(operand) is BlockArgument:
                check_type(mesh, x)
        return self.result_type(mesh, types, self.properties)

    def verify_(self) -> None:
        try:
            inferred = self.infer()
        except LayoutError as error:
            raise VerifyException(error.text(self.operand_names())) from error
        except (MachineError, MeshError) as error:
            raise VerifyException(str(error)) from error
        if not inferred.agrees(dist_type(self.result)):
            raise VerifyException(f"the result is {inferred}, not {dist_type(self.result)}")

    # --- operands, arguments and result -------------------------------------------------------

    @property
    def kind(self) -> StepKind:
        """The row of the operation in the table of steps."""
        return self.KIND

    @property
    def input(self) -> SSAValue:
        """The first operand."""
        return self.operands[0]

    @property
    def arguments(self) -> dict[str, Argument]:
        """The arguments by the names of their parameters; sizes have their formulas."""
        return arguments_of(self.kind, self.properties)

    def integer(self, name: str) -> int:
        """Return an argument that is an integer, without its formula unless it is open."""
        value = self.properties[name]
        if isinstance(value, SizeAttr):
            return without_formula(value.data)
        assert isinstance(value, IntegerAttr)
        return value.value.data

    def place(self, name: str) -> Place:
        """Return an argument that is a place."""
        value = self.properties[name]
        assert isinstance(value, PlaceAttr)
        return value.data

    def number(self, name: str) -> float:
        """Return an argument that is a number; an open size stays."""
        value = self.properties[name]
        assert isinstance(value, NumberAttr | SizeAttr)
        return as_number(value.data)

    def word(self, name: str) -> str:
        """Return an argument that is a name."""
        value = self.properties[name]
        assert isinstance(value, StringAttr)
        return value.data

    def sizes(self, name: str) -> tuple[int, ...]:
        """Return an argument that is a list of sizes, without their formulas unless they are
        open."""
        value = self.properties[name]
        assert isinstance(value, SizesAttr)
        return tuple(map(without_formula, value.data))

    def layout(self, name: str) -> DistType:
        """Return an argument that is a type."""
        value = self.properties[name]
        assert isinstance(value, DistTensorType)
        return value.data

    @property
    def over(self) -> tuple[str, ...]:
        """The sub-axes that the operation names, in order; may be empty."""
        axes = self.properties.get("axes")
        return axes.data if isinstance(axes, AxesAttr) else ()

    @property
    def is_async(self) -> bool:
        """True if the program marks the operation as asynchronous."""
        return "async" in self.properties

    @property
    def timing(self) -> dict[str, Attribute]:
        """The properties that say when it starts and is waited for."""
        words = (ASYNC.name, AHEAD.name)
        return {word: self.properties[word] for word in words if word in self.properties}

    def operand_names(self) -> list[str]:
        """Return the operands' names in the program (``the operand`` where one has none)."""
        return [value_text(operand) for operand in self.operands]

    # --- meaning ------------------------------------------------------------------------------

    @property
    def mnemonic(self) -> str:
        """The name without the dialect, as written in ``.coll``."""
        return self.kind.name

    @property
    def flops(self) -> float:
        """Floating-point operations of each device."""
        if structure := self.structure:
            types = [dist_type(operand) for operand in self.operands]
            return as_number(structure.local_flops(mesh_of(self), types, dist_type(self.result)))
        return self.number("flops") if self.kind.computes else 0.0

    @property
    def structure(self) -> Structure | None:
        """The index structure, if the rule of the operation follows from one."""
        return self.indices if self.kind.structure else None

    @property
    def indices(self) -> Structure | None:
        """The index structure, also if the rule is its own; None if it depends on the layout."""
        types = tuple(map(dist_type, self.operands))
        return _indices(self.kind, types, tuple(self.properties.items()))

    def place_in_operand(self, mesh: Mesh) -> int | None:
        """Return the start of the result in the memory of the first operand, in elements.

        It is None if the result has memory of its own.
        """
        if self.kind.place is None:  # then neither type nor arguments matter
            return 0 if self.kind.is_view else None
        return self.kind.place_in_operand(mesh, dist_type(self.input), self.arguments)

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        """Return the operand if the step changes nothing, else None."""
        if self.kind.identity is None:
            return None
        x, y = dist_type(self.input), dist_type(self.result)
        return (self.input,) if self.kind.identity(x, y, self.arguments) else None


@lru_cache(maxsize=2**14)
def _indices(
    kind: StepKind, types: tuple[DistType, ...], properties: tuple[tuple[str, Attribute], ...]
) -> Structure | None:
    """Return the index structure of steps with operands of these types and these properties."""
    return kind.indices(types, arguments_of(kind, dict(properties)))


def value_text(value: SSAValue, unnamed: str = "the operand") -> str:
    """Return the name of a value as a message writes it, or ``unnamed`` if the value has none."""
    return f"%{value.name_hint}" if value.name_hint else unnamed


def repeats_operands(op: DistOp) -> bool:
    """Return whether an ``add`` repeats operands along dimensions, as in numpy's broadcasting."""
    shape = dist_type(op.result).shape
    return op.kind is ADD and any(not same_size(dist_type(x).shape, shape) for x in op.operands)


def is_of_model(op: DistOp) -> bool:
    """Return whether it is an operation of models, or an addition with numpy's broadcasting."""
    return op.kind.structure is not None or repeats_operands(op)


def is_collective(op: object) -> TypeGuard[DistOp]:
    """Return whether an operation sends."""
    return isinstance(op, DistOp) and op.kind.sends


def is_placeholder(op: object) -> TypeGuard[DistOp]:
    """Return whether an operation is a placeholder for steps that ``decompose`` finds."""
    return isinstance(op, DistOp) and op.kind.placeholder


# ---------------------------------------------------------------------------------------------
# Arguments as attributes
# ---------------------------------------------------------------------------------------------

_ATTRIBUTES: dict[ArgumentKind, Any] = {
    ArgumentKind.AXES: AxesAttr,
    ArgumentKind.PLACE: PlaceAttr,
    ArgumentKind.INTEGER: IntegerAttr[I64] | SizeAttr,
    ArgumentKind.COORDINATE: IntegerAttr[I64],
    ArgumentKind.SIZES: SizesAttr,
    ArgumentKind.NUMBER: NumberAttr | SizeAttr,
    ArgumentKind.NAME: StringAttr | AlgorithmAttr,
    ArgumentKind.FLAG: UnitAttr,
    ArgumentKind.TYPE: DistTensorType,
    ArgumentKind.TEXT: StringAttr,
}
"""The class of the attribute for each kind of argument; of a number with a formula, SizeAttr."""


class _NumberDirective(CustomDirective, ABC):
    """A directive for a number that may have a formula: ``8``, or ``{4 * hidden = 8}``."""

    attribute: AttributeVariable

    @staticmethod
    @abstractmethod
    def parse_plain(parser: Parser) -> Attribute:
        """Return the attribute of a number without a formula."""

    @staticmethod
    @abstractmethod
    def print_plain(printer: Printer, attribute: Attribute) -> None:
        """Print the attribute of a number without a formula."""

    def parse(self, parser: Parser, state: ParsingState) -> None:
        size = parse_optional_formula(parser)
        attribute = self.parse_plain(parser) if size is None else SizeAttr(size)
        self.attribute.set(state, attribute)

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        attribute = self.attribute.get(op)
        assert attribute is not None
        state.print_whitespace(printer)
        if isinstance(attribute, SizeAttr):
            printer.print_string(size_text(attribute.data))
        else:
            self.print_plain(printer, attribute)


@irdl_custom_directive
class IntegerDirective(_NumberDirective):
    """A directive for an integer."""

    attribute: AttributeVariable

    @staticmethod
    def parse_plain(parser: Parser) -> Attribute:
        return IntegerAttr.parse_with_type(parser, i64)

    @staticmethod
    def print_plain(printer: Printer, attribute: Attribute) -> None:
        assert isinstance(attribute, IntegerAttr)
        attribute.print_without_type(printer)


@irdl_custom_directive
class _FloatDirective(_NumberDirective):
    """A directive for a floating-point number."""

    attribute: AttributeVariable

    @staticmethod
    def parse_plain(parser: Parser) -> Attribute:
        return NumberAttr(NumberAttr.parse_parameter(parser))

    @staticmethod
    def print_plain(printer: Printer, attribute: Attribute) -> None:
        assert isinstance(attribute, NumberAttr)
        attribute.print_parameter(printer)


_DIRECTIVES: dict[ArgumentKind, type[_NumberDirective]] = {
    ArgumentKind.INTEGER: IntegerDirective,
    ArgumentKind.NUMBER: _FloatDirective,
}
"""The directive that writes an argument in MLIR's custom form, if it is not the attribute's."""


def attribute_of(kind: ArgumentKind, value: Argument) -> Attribute:
    """Return the attribute that holds an argument."""
    if isinstance(value, Size):
        return SizeAttr(value)
    if kind in (ArgumentKind.INTEGER, ArgumentKind.COORDINATE):
        assert isinstance(value, int)
        return IntegerAttr(value, i64)
    if kind is ArgumentKind.NUMBER:
        assert isinstance(value, int | float)
        return NumberAttr(float(value))
    if isinstance(value, AlgorithmName):
        return AlgorithmAttr(value)
    if kind is ArgumentKind.NAME:
        assert isinstance(value, str)
        return StringAttr(value)
    return UnitAttr() if kind is ArgumentKind.FLAG else _ATTRIBUTES[kind](value)


def properties_of(kind: StepKind, arguments: Arguments) -> dict[str, Attribute]:
    """Return the properties of an operation that hold arguments."""
    kinds = {parameter.name: parameter.kind for parameter in kind.parameters}
    return {name: attribute_of(kinds[name], value) for name, value in arguments.items()}


def arguments_of(kind: StepKind, properties: Properties) -> dict[str, Argument]:
    """Return the arguments of a step that properties hold, by name."""
    names = (parameter.name for parameter in kind.parameters)
    return {name: _argument(properties[name]) for name in names if name in properties}


def _argument(attribute: Attribute) -> Argument:
    match attribute:
        case IntegerAttr():
            return attribute.value.data
        case AxesAttr() | PlaceAttr() | SizesAttr() | SizeAttr() | NumberAttr():
            return attribute.data
        case StringAttr() | AlgorithmAttr() | DistTensorType():
            return attribute.data
        case UnitAttr():
            return True
        case _:
            raise AssertionError(f"{attribute} is no argument of a step")


# ---------------------------------------------------------------------------------------------
# Operations from rows
# ---------------------------------------------------------------------------------------------

_NAMES = {0: (), 1: ("input",), 2: ("lhs", "rhs"), 3: ("first", "second", "third")}
"""The names of operands in MLIR's custom form, by the number of operands."""


def operations(dialect: str, rows: OperationTable[StepKind]) -> dict[str, type[DistOp]]:
    """Return the operation of each row of a table, which takes no more rows then."""
    rows.close(
        f"the operations of the dialect {dialect} are made; a package has a dialect of its own "
        "(docs/extending.md)"
    )
    return {name: operation(dialect, kind) for name, kind in rows.items()}


def operation(dialect: str, kind: StepKind) -> type[DistOp]:
    """Return the operation class of a row, in a dialect.

    Its custom form in MLIR is that of ``.coll``, followed by types.
    """
    fields: dict[str, Any] = {
        "name": f"{dialect}.{kind.name}",
        "__doc__": (kind.rule.__doc__ or "").partition("\n")[0],
        "__module__": __name__,
    }
    if kind.fixed:
        fields["traits"] = traits_def(MakesNewValues())
    names = ("inputs",) if kind.operands is None else _NAMES[kind.operands]
    define = var_operand_def if kind.operands is None else operand_def
    fields |= {name: define(DistTensorType) for name in names}
    clauses: list[str] = []
    texts: list[str] = []
    for parameter in kind.parameters:
        optional = parameter.hint or parameter.kind is ArgumentKind.FLAG
        name, define = parameter.name, opt_prop_def if optional else prop_def
        fields[f"{name}_attribute"] = define(_ATTRIBUTES[parameter.kind], prop_name=name)
        directive = _DIRECTIVES.get(parameter.kind)
        shown = f"custom<{directive.__name__}>(${name})" if directive else f"${name}"
        clause = f"`{parameter.keyword}` {shown}"
        if parameter.kind is ArgumentKind.TEXT:
            texts.append(shown)
            continue
        clauses.append(f"({clause}^)?" if optional else clause)
    fields["assembly_format"] = " ".join(
        [
            *texts,
            " `,` ".join(f"${name}" for name in names),
            *clauses,
            "attr-dict `:`",
            *([" `,` ".join(f"type(${name})" for name in names), "`->`"] if names else []),
            "type($result)",
        ]
    )
    fields["custom_directives"] = tuple(_DIRECTIVES.values())
    title = "".join(part.capitalize() for part in kind.name.split("_"))
    operation_class = irdl_op_definition(type(f"{title}Op", (DistOp,), fields))
    operation_class.KIND = kind
    return operation_class
