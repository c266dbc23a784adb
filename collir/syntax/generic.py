"""Generic functions: their operands have any shape and any layout, ``%x: f32[...]``.

A call gives the types of such operands, and runs an ordinary function with these types: an instance
of the generic one. Its parameters are the caller's parameters in the types of the operands and in
the values of parameters, so that the instance follows when these change.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp

from collir.dialects.nested import Signature
from collir.ir.diagnostics import Diagnostic, Position, note
from collir.ir.fields import Fields
from collir.layout import DistType, DType, LayoutError, Mesh
from collir.layout.formulas import Formula
from collir.layout.sizes import formula_of, size_at
from collir.syntax.imports import Template
from collir.syntax.lowering import results_of
from collir.syntax.records import opened
from collir.syntax.trees import SyntaxTree
from collir.syntax.types import FLOAT, TypeLowering

OPEN = ("open", "opened")
"""The rules of types of any shape: of one value, and of one value or a record."""

DEEPEST = 40
"""The most calls of generic functions inside each other."""

MOST = 10_000
"""The most instances of the generic functions of a file."""


@dataclass(frozen=True)
class Call:
    """A call of a generic function.

    Attributes:
        mesh: the mesh of the caller.
        operands: the types of the operands.
        given: the values of parameters that the call gives.
        parameters: the parameters of the caller, with their values.
        fields: the fields of the operands that may be records, or None for a single value.
    """

    mesh: Mesh
    operands: tuple[DistType, ...]
    given: Mapping[str, int]
    parameters: Mapping[str, int]
    fields: tuple[Fields | None, ...] = ()


@dataclass(frozen=True)
class OperandBinding:
    """The meaning of a generic function for the operands of a call.

    Attributes:
        inputs: for each argument the type of its operand, or None if its type is written.
        dtype: the dtype that ``float`` stands for.
        sizes: the values of the parameters of the generic function, maybe as formulas of the
            caller's parameters.
        parameters: the parameters of the caller that the instance depends on, with their values.
        fields: the fields of the operands that may be records, or None for a single value.
    """

    inputs: tuple[DistType | None, ...]
    dtype: DType | None
    sizes: Mapping[str, int]
    parameters: Mapping[str, int]
    fields: tuple[Fields | None, ...] = ()

    @property
    def bindings(self) -> dict[str, int]:
        """The values of the parameters of the instance that a call has to give."""
        return {name: size_at(Formula.parameter(name), self.parameters) for name in self.parameters}

    def key(self, mesh: Mesh) -> tuple[object, ...]:
        """Return a key that is equal for calls of the same instance."""
        types = (None if x is None else x.text(mesh, formulas=True) for x in self.inputs)
        sizes = ((name, int(size), str(formula_of(size))) for name, size in self.sizes.items())
        return mesh.name, self.fields, *types, *sizes, *self.parameters.items()


@dataclass(frozen=True)
class GenericInstance:
    """The function that a generic one is for the operands of a call.

    Attributes:
        name: its name.
        number: the number of the declaration that it stands in the place of.
        function: the function; None if it is not lowered yet, or has errors.
        error: the first error in it.
        results: the fields of each record among its results, and None for a single value.
    """

    name: str
    number: int
    function: FuncOp | None = None
    error: Diagnostic | None = None
    results: tuple[Fields | None, ...] = ()


@dataclass(frozen=True, eq=False)
class GenericFunction:
    """A function that takes its types from the operands of each call.

    Attributes:
        name: its name in the file.
        template: its text.
        mesh: the mesh that it is on; None if it is on any.
        number: the number of its declaration in the file.
        instantiate: a function from it, the mesh of a call and a binding to the instance.

    The function ``instantiate`` raises a ``LayoutError`` where there can be no instance.
    """

    name: str
    template: Template
    mesh: Mesh | None
    number: int
    instantiate: Callable[["GenericFunction", Mesh, OperandBinding], GenericInstance]

    def bound(self, call: Call) -> OperandBinding:
        """Return what the function means for the operands of a call.

        Raises:
            LayoutError: the function does not take these operands, or has no such parameter.
        """
        if self.mesh is not None and self.mesh.name != call.mesh.name:
            raise LayoutError(
                f"@{self.name} is on mesh @{self.mesh.name}, and this function is on mesh "
                f"@{call.mesh.name}: call `func @{self.name}_there = @{self.name} on "
                f"@{call.mesh.name}` in its place"
            )
        lowering = TypeLowering(self.template.file, [], call.mesh, self.template.sizes)
        lowering.read_parameters(self.template.tree)
        sizes = lowering.sizes
        signature = Signature(self.name, call.mesh.name, (), (), tuple(sizes.items()))
        signature.check_names(call.given)
        tree = opened(self.template.tree, call.fields)
        arguments: list[SyntaxTree] = [x.children[1] for x in tree.parts("argument")]
        if len(arguments) != len(call.operands):
            count = len(arguments)
            raise LayoutError(
                f"@{self.name} takes {count} operand{'s' * (count != 1)}, not {len(call.operands)}"
            )
        dtype = self._float_dtype(arguments, call)
        types: list[DistType | None] = []
        for number, (tree, x) in enumerate(zip(arguments, call.operands, strict=True)):
            types.append(x if tree.data in OPEN else None)
            expected = str(dtype) if tree.children[0] == FLOAT else str(tree.children[0])
            if types[-1] is not None and tree.children[0] is not None and str(x.dtype) != expected:
                raise LayoutError(
                    f"@{self.name} takes {expected}[...] here, and {{{number}}} is "
                    f"{x.text(call.mesh)}: cast it first",
                    operand=number,
                )
        own = {**sizes, **call.given}
        formulas = (formula_of(n) for x in types if x is not None for n in x.shape)
        names = frozenset[str]().union(
            *(formula.parameters for formula in (*formulas, *map(formula_of, own.values())))
        )
        there = {name: value for name, value in call.parameters.items() if name in names}
        return OperandBinding(tuple(types), dtype, own, there, call.fields)

    def _float_dtype(self, arguments: Sequence[SyntaxTree], call: Call) -> DType | None:
        """Return the dtype that ``float`` stands for; None if no argument says."""
        named = [n for n, tree in enumerate(arguments) if tree.children[0] == FLOAT]
        if not named:
            return None
        first = named[0]
        dtype = call.operands[first].dtype
        for number in named:
            x = call.operands[number]
            if not x.dtype.is_float:
                raise LayoutError(
                    f"@{self.name} takes floating-point numbers here, and {{{number}}} is "
                    f"{x.text(call.mesh)}: cast it first",
                    operand=number,
                )
            if x.dtype is not dtype:
                raise LayoutError(
                    f"@{self.name} takes one floating-point dtype: {{{first}}} is {dtype} and "
                    f"{{{number}}} is {x.dtype}: cast one of them",
                    operand=number,
                )
        return dtype


class Misfit(Diagnostic):
    """An error at a call of a generic function, about a step in it."""

    @staticmethod
    def of(name: str, given: Mapping[str, int], error: Diagnostic, position: Position) -> "Misfit":
        """Return the error at a call for the first error in the function that it calls."""
        listed = ", ".join(f"{parameter} = {int(value)}" for parameter, value in given.items())
        called = f"@{name}({listed})" if listed else f"@{name}"
        if isinstance(error, Misfit):
            way = note("by this call", error.position)
            return Misfit(error.message, position, (way, *error.notes))
        here = note("the error is here", error.position)
        text = f"{called} is not well typed for these operands: {error.message}"
        return Misfit(text, position, (here, *error.notes))


def is_open(tree: SyntaxTree) -> bool:
    """Return whether a function has a type of any shape and any layout in its signature."""
    arguments = (x.children[1] for x in tree.parts("argument"))
    return any(x.data in OPEN for x in (*arguments, *(x for _, x, _ in results_of(tree))))


def is_on_any(tree: SyntaxTree) -> bool:
    """Return whether a function is on any mesh."""
    return tree.token("ANY") is not None
