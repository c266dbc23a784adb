"""The interface of operations on distributed tensors: what every floor above asks of one.

An operation answers by its row of the table of steps (``collir.layout.steps``): the type of its
result, how it is written, what it reads and writes, where its result lies, whether it sends. So
nothing above has to know which operations there are.
"""

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeGuard

from xdsl.dialects.builtin import I64, IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.interfaces import HasFolderInterface
from xdsl.ir import Attribute, Operation, SSAValue
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
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from collir.dialects.machine import NumberAttr, mesh_of
from collir.dialects.tensor import AxesAttr, DistTensorType, SizesAttr, dist_type
from collir.layout import DistType, LayoutError, Mesh, MeshError, check_type
from collir.layout.steps import Argument, ArgumentKind, StepKind
from collir.machine import MachineError

Properties = Mapping[str, Attribute]


class DistOp(IRDLOperation, HasFolderInterface, ABC):
    """An operation on distributed tensors, with one result that is typed by its row.

    All are ``Pure``: in a single SPMD program every device runs the same operations, so removing an
    unused one or merging equal ones happens on all of them alike.
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
        """
        result = cls.result_type(mesh, [dist_type(operand) for operand in operands], properties)
        return cls.create(
            operands=operands, properties=properties, result_types=[DistTensorType(result)]
        )

    @classmethod
    def result_type(
        cls, mesh: Mesh, operands: Sequence[DistType], properties: Properties
    ) -> DistType:
        """Return the type of the result.

        Raises:
            LayoutError: the step is not well typed, or there is no such algorithm.
        """
        return cls.KIND.result_type(mesh, operands, arguments_of(cls.KIND, properties))

    def infer(self) -> DistType:
        """Return what the rule says of this operation where it stands.

        Raises:
            LayoutError: the step is not well typed.
            VerifyException: no mesh, or an operand that is not a distributed tensor.
        """
        mesh = mesh_of(self)
        types = [dist_type(operand) for operand in self.operands]
        for operand, x in zip(self.operands, types, strict=True):
            if not isinstance(operand.owner, Operation):
                check_type(mesh, x)
        return self.result_type(mesh, types, self.properties)

    def verify_(self) -> None:
        try:
            inferred = self.infer()
        except LayoutError as error:
            raise VerifyException(error.text(self.operand_names())) from error
        except (MachineError, MeshError) as error:
            raise VerifyException(str(error)) from error
        if inferred != dist_type(self.result):
            raise VerifyException(f"the result is {inferred}, not {dist_type(self.result)}")

    # --- operands, arguments and result -------------------------------------------------------

    @property
    def kind(self) -> StepKind:
        """The row of this operation."""
        return self.KIND

    @property
    def input(self) -> SSAValue:
        """The first operand."""
        return self.operands[0]

    @property
    def arguments(self) -> dict[str, Argument]:
        """The arguments by the names of their parameters."""
        return arguments_of(self.kind, self.properties)

    def integer(self, name: str) -> int:
        """Return an argument that is an integer."""
        value = self.properties[name]
        assert isinstance(value, IntegerAttr)
        return value.value.data

    def number(self, name: str) -> float:
        """Return an argument that is a number."""
        value = self.properties[name]
        assert isinstance(value, NumberAttr)
        return value.data

    def word(self, name: str) -> str:
        """Return an argument that is a name."""
        value = self.properties[name]
        assert isinstance(value, StringAttr)
        return value.data

    def sizes(self, name: str) -> tuple[int, ...]:
        """Return an argument that is a list of sizes."""
        value = self.properties[name]
        assert isinstance(value, SizesAttr)
        return value.data

    def layout(self, name: str) -> DistType:
        """Return an argument that is a type."""
        value = self.properties[name]
        assert isinstance(value, DistTensorType)
        return value.data

    @property
    def over(self) -> tuple[str, ...]:
        """The sub-axes that the operation names, in order; none, if it names none."""
        axes = self.properties.get("axes")
        return axes.data if isinstance(axes, AxesAttr) else ()

    @property
    def is_async(self) -> bool:
        """True if the program says that it need not be waited for."""
        return "async" in self.properties

    def operand_names(self) -> list[str]:
        """Return the operands' names in the program (``the operand`` where one has none)."""
        return [f"%{o.name_hint}" if o.name_hint else "the operand" for o in self.operands]

    # --- what it does -------------------------------------------------------------------------

    @property
    def mnemonic(self) -> str:
        """The name without the dialect, as it is written in ``.coll``."""
        return self.kind.name

    @property
    def flops(self) -> float:
        """Floating-point operations of each device."""
        return self.number("flops") if self.kind.computes else 0.0

    def place_in_operand(self, mesh: Mesh) -> int | None:
        """Return where in the memory of the first operand the result starts, in elements.

        None if the result has memory of its own.
        """
        if self.kind.place is None:  # then neither type nor arguments matter
            return 0 if self.kind.is_view else None
        return self.kind.place_in_operand(mesh, dist_type(self.input), self.arguments)

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        """Return the operand of a step that changes nothing."""
        if self.kind.identity is None:
            return None
        x, y = dist_type(self.input), dist_type(self.result)
        return (self.input,) if self.kind.identity(x, y, self.arguments) else None


def is_collective(op: object) -> TypeGuard[DistOp]:
    """Return whether this is an operation that sends."""
    return isinstance(op, DistOp) and op.kind.sends


def is_placeholder(op: object) -> TypeGuard[DistOp]:
    """Return whether this is an operation whose steps are still to be found."""
    return isinstance(op, DistOp) and op.kind.placeholder


# ---------------------------------------------------------------------------------------------
# Arguments as attributes
# ---------------------------------------------------------------------------------------------

_ATTRIBUTES: dict[ArgumentKind, Any] = {
    ArgumentKind.AXES: AxesAttr,
    ArgumentKind.INTEGER: IntegerAttr[I64],
    ArgumentKind.SIZES: SizesAttr,
    ArgumentKind.NUMBER: NumberAttr,
    ArgumentKind.NAME: StringAttr,
    ArgumentKind.FLAG: UnitAttr,
    ArgumentKind.TYPE: DistTensorType,
}
"""The attribute that holds each kind of argument."""


def attribute_of(kind: ArgumentKind, value: Argument) -> Attribute:
    """Return the attribute that holds an argument."""
    if kind is ArgumentKind.INTEGER:
        assert isinstance(value, int)
        return IntegerAttr(value, i64)
    if kind is ArgumentKind.NUMBER:
        assert isinstance(value, int | float)
        return NumberAttr(float(value))
    return UnitAttr() if kind is ArgumentKind.FLAG else _ATTRIBUTES[kind](value)


def arguments_of(kind: StepKind, properties: Properties) -> dict[str, Argument]:
    """Return the arguments of a step that properties hold, by name."""
    names = (one.name for one in kind.parameters)
    return {name: _argument(properties[name]) for name in names if name in properties}


def _argument(attribute: Attribute) -> Argument:
    match attribute:
        case IntegerAttr():
            return attribute.value.data
        case AxesAttr() | SizesAttr() | NumberAttr() | StringAttr() | DistTensorType():
            return attribute.data
        case UnitAttr():
            return True
        case _:
            raise AssertionError(f"{attribute} is no argument of a step")


# ---------------------------------------------------------------------------------------------
# Operations from rows
# ---------------------------------------------------------------------------------------------

_NAMES = {1: ("input",), 2: ("lhs", "rhs")}
"""The names of operands in MLIR's custom form, by how many there are."""


def operation(dialect: str, kind: StepKind) -> type[DistOp]:
    """Return the operation of a dialect that a row describes; its custom form is that of ``.coll``
    with types behind it."""
    fields: dict[str, Any] = {
        "name": f"{dialect}.{kind.name}",
        "__doc__": (kind.rule.__doc__ or "").partition("\n")[0],
        "__module__": __name__,
    }
    names = ("inputs",) if kind.operands is None else _NAMES[kind.operands]
    define = var_operand_def if kind.operands is None else operand_def
    fields |= {name: define(DistTensorType) for name in names}
    clauses: list[str] = []
    for one in kind.parameters:
        define = opt_prop_def if one.hint else prop_def
        fields[f"{one.name}_attribute"] = define(_ATTRIBUTES[one.kind], prop_name=one.name)
        clauses.append(
            f"(`{one.keyword}` ${one.name}^)?" if one.hint else f"`{one.keyword}` ${one.name}"
        )
    fields["assembly_format"] = " ".join(
        [
            " `,` ".join(f"${name}" for name in names),
            *clauses,
            "attr-dict `:`",
            " `,` ".join(f"type(${name})" for name in names),
            "`->` type($result)",
        ]
    )
    title = "".join(part.capitalize() for part in kind.name.split("_"))
    made = irdl_op_definition(type(f"{title}Op", (DistOp,), fields))
    made.KIND = kind
    return made
