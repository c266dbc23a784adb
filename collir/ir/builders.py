"""Builders of programs from Python values: modules of machines and meshes, and functions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.traits import SymbolTable

from collir.dialects.machine import (
    MESH_ATTRIBUTE,
    AxisAttr,
    LevelAttr,
    MachineOp,
    MeshOp,
    device_properties,
)
from collir.dialects.nested import (
    CallOp,
    RepeatOp,
    Signature,
    YieldOp,
    argument_types,
    yield_problem,
)
from collir.dialects.operation import arguments_of, attribute_of, value_text
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.extensions import load_operations
from collir.ir.names import name_signature, set_name
from collir.ir.parameters import set_parameters
from collir.layout import DistType, LayoutError, Mesh, Place, check_type, place_at
from collir.layout.formulas import formula_of_text
from collir.layout.mesh import digits_over
from collir.layout.sizes import default_error, size_at
from collir.layout.steps import Argument, ArgumentKind, Parameter, StepKind
from collir.layout.types import check_coordinate, without_trivial_axes
from collir.machine import Machine


def machine_op(machine: Machine) -> MachineOp:
    """Return the operation that declares a machine."""
    properties: dict[str, Attribute] = {
        "sym_name": StringAttr(machine.name),
        "levels": ArrayAttr(map(LevelAttr.of, machine.levels)),
        **device_properties(machine),
    }
    return MachineOp.create(properties=properties)


def mesh_op(mesh: Mesh) -> MeshOp:
    """Return the operation that declares a mesh on its machine."""
    properties: dict[str, Attribute] = {
        "sym_name": StringAttr(mesh.name),
        "machine": SymbolRefAttr(mesh.machine.name),
        "axes": ArrayAttr(map(AxisAttr.of, mesh.axes)),
    }
    return MeshOp.create(properties=properties)


def module_of(*meshes: Mesh) -> ModuleOp:
    """Return a module that declares meshes and their machines; functions can be added."""
    machines = dict.fromkeys(mesh.machine for mesh in meshes)
    return ModuleOp([*map(machine_op, machines), *map(mesh_op, meshes)])


class FunctionBuilder:
    """A builder of a function on a mesh of a module.

    It has a method for each operation of the language, with operands first, and arguments named as
    in ``.coll``: ``f.reduce_scatter(g, over="data.gpu", dim=0)``. An argument whose name is a
    keyword of Python has a ``_`` behind it (``async_=True``). ``over`` takes a sub-axis, an axis,
    or a list of these; a place (``at``) is a dictionary of coordinates by axis. A method returns
    the result of its operation, whose type is inferred. ``name`` is the name of the result in
    ``.coll``.

    Raises:
        KeyError: the module has no such mesh.
    """

    def __init__(self, module: ModuleOp, mesh: str, name: str):
        load_operations()
        op = SymbolTable.lookup_symbol(module, mesh)
        if not isinstance(op, MeshOp):
            raise KeyError(f"the module has no mesh @{mesh}")
        self.mesh = op.value()
        self._module = module
        self._name = name
        self._block = Block()
        self._parameters: dict[str, int] = {}

    def parameter(self, name: str, default: int) -> int:
        """Add a size parameter, and return its default, which carries the parameter as formula.

        Raises:
            ValueError: the default is below 1 or too large, or there is such a parameter.
        """
        if problem := default_error(name, default):
            raise ValueError(problem)
        if name in self._parameters:
            raise ValueError(f"parameter '{name}' is given twice")
        self._parameters[name] = int(default)
        return self.size(name)

    def size(self, formula: str) -> int:
        """Return the value of a formula of parameters, which carries the formula.

        Raises:
            ValueError: it is no formula, names no parameter, or is not an integer.
        """
        try:
            return size_at(formula_of_text(formula), self._parameters)
        except KeyError as error:
            raise ValueError(f"there is no parameter {error}") from error

    def axes(self, *names: str) -> tuple[str, ...]:
        """Return sub-axes in order; the name of an axis stands for all of its sub-axes.

        An axis or a factor of size 1 stands for no sub-axes.

        Raises:
            ValueError: the mesh has no such axis.
        """
        axes: list[str] = []
        for name in names:
            subs = self.mesh.named(name)
            if subs is None:
                known = ", ".join([*self.mesh.of_axis, *self.mesh.by_name])
                raise ValueError(f"mesh @{self.mesh.name} has no axis {name} (there are {known})")
            axes += subs
        return tuple(axes)

    def place(self, coordinates: Mapping[str, int]) -> Place:
        """Return a place by the coordinates on axes or sub-axes.

        Raises:
            ValueError: the mesh has no such axis or coordinate.
        """
        digits: dict[str, int] = {}
        for name, index in coordinates.items():
            axes = self.axes(name)
            try:
                check_coordinate(self.mesh, axes, index)
            except LayoutError as error:
                raise ValueError(error.text(())) from error
            digits |= digits_over(self.mesh, axes, index)
        return place_at(digits)

    def argument(self, name: str, x: DistType) -> SSAValue:
        """Add an argument, and return it; axes of size 1 vanish from its type.

        Raises:
            ValueError: the type cannot exist on the mesh.
        """
        x = without_trivial_axes(self.mesh, x)
        try:
            check_type(self.mesh, x)
        except LayoutError as error:
            raise ValueError(error.text(())) from error
        value = self._block.insert_arg(DistTensorType(x), len(self._block.args))
        set_name(value, name)
        return value

    def __getattr__(self, operation: str) -> Callable[..., SSAValue]:
        if operation not in OPERATIONS:
            raise AttributeError(f"there is no operation '{operation}'")
        return partial(self.step, operation)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *OPERATIONS]

    def step(
        self, operation: str, *operands: SSAValue, name: str | None = None, **arguments: object
    ) -> SSAValue:
        """Add an operation, and return its result.

        A step whose axes all have size 1 is not added: its result is its operand.

        Raises:
            ValueError: the step is not well typed.
            TypeError: an argument is missing, or there is no such argument.
        """
        operation_class = OPERATIONS[operation]
        kind = operation_class.KIND
        properties = self._properties(kind, arguments)
        try:
            known = arguments_of(kind, properties)
            if kind.is_over_nothing(known):
                kind.check_over_nothing(self.mesh, [dist_type(x) for x in operands], known)
                return operands[0]
            op = operation_class.make(self.mesh, *operands, **properties)
        except LayoutError as error:
            raise ValueError(error.text([value_text(x) for x in operands])) from error
        self._block.add_op(op)
        set_name(op.result, name)
        return op.result

    def _properties(self, kind: StepKind, arguments: dict[str, object]) -> dict[str, Attribute]:
        named = {key.removesuffix("_"): value for key, value in arguments.items()}
        properties: dict[str, Attribute] = {}
        for parameter in kind.parameters:
            value = named.pop(parameter.keyword, parameter.default)
            if value is not None and value is not False:
                argument = self._value(parameter, value)
                properties[parameter.name] = attribute_of(parameter.kind, argument)
            elif parameter.required:
                raise TypeError(f"{kind.name} needs {parameter.keyword}=")
        if named:
            known = ", ".join(parameter.keyword for parameter in kind.parameters) or "none"
            raise TypeError(f"{kind.name} has no argument {next(iter(named))} (there are {known})")
        return properties

    def _value(self, parameter: Parameter, value: object) -> Argument:
        """Return an argument in the form of its attribute; axes become their sub-axes."""
        match parameter.kind, value:
            case ArgumentKind.AXES, str():
                return self.axes(value)
            case ArgumentKind.AXES, list() | tuple() if value:
                return self.axes(*cast("Sequence[str]", value))
            case ArgumentKind.SIZES, list() | tuple():
                return tuple(cast("Sequence[int]", value))
            case ArgumentKind.NAME, str():
                return str(value)
            case ArgumentKind.PLACE, dict() | tuple():
                return self.place(dict(cast("dict[str, int] | Place", value)))
            case ArgumentKind.INTEGER | ArgumentKind.COORDINATE | ArgumentKind.NUMBER, int():
                return value
            case ArgumentKind.NUMBER, float():
                return value
            case ArgumentKind.TYPE, DistType():
                return without_trivial_axes(self.mesh, value)
            case ArgumentKind.FLAG, True:
                return True
            case _:
                kind = parameter.kind.name.lower()
                raise TypeError(f"{parameter.keyword}={value!r}: {kind} is wanted here")

    def call(self, callee: str, /, *operands: SSAValue, **sizes: int) -> tuple[SSAValue, ...]:
        """Add a call of a function that the module has already, and return its results.

        ``sizes`` are values for parameters of the callee, which may be formulas of parameters of
        this function: ``f.call("layer", x, batch=2 * n)``. Other parameters keep their defaults.

        Raises:
            KeyError: the module has no such function.
            ValueError: the function does not take these operands at these values, or has no
                results.
        """
        return self._called(callee, operands, sizes)

    def gradient(
        self, callee: str, /, *operands: SSAValue, wrt: Sequence[SSAValue], **sizes: int
    ) -> tuple[SSAValue, ...]:
        """Add a gradient of a function that the module has already, and return its results: those
        of the function, then the gradients of the first with respect to ``wrt``.

        Raises:
            KeyError: the module has no such function.
            ValueError: the function does not take these operands at these values, or has no
                gradient with respect to them.
        """
        numbers: list[int] = []
        for value in wrt:
            if operands.count(value) != 1:
                raise ValueError(f"{value_text(value)} is not one of the operands, once")
            numbers.append(operands.index(value))
        return self._called(callee, operands, sizes, numbers)

    def _called(
        self,
        callee: str,
        operands: Sequence[SSAValue],
        sizes: Mapping[str, int],
        wrt: Sequence[int] = (),
    ) -> tuple[SSAValue, ...]:
        op = SymbolTable.lookup_symbol(self._module, callee)
        if not isinstance(op, FuncOp):
            raise KeyError(f"the module has no function @{callee}")
        try:
            made = CallOp.of(self.mesh, Signature.of(op), operands, sizes, wrt)
        except LayoutError as error:
            raise ValueError(error.text([value_text(x) for x in operands])) from error
        self._block.add_op(made)
        return tuple(made.results)

    def repeat(
        self,
        count: int,
        body: Callable[..., Sequence[SSAValue]],
        *,
        carry: Sequence[SSAValue] = (),
        slice_: Sequence[SSAValue] = (),
        with_: Sequence[SSAValue] = (),
        reverse: bool = False,
    ) -> tuple[SSAValue, ...]:
        """Add a loop, and return its results: the last carries, then the stacked values.

        Args:
            body: a function that adds the steps of an iteration with this builder. It takes the
                carries, the slices and the invariants, and returns the carries of the next
                iteration, then the values to stack.

        Raises:
            ValueError: an operand cannot be cut into slices, or the carries change their types.
        """
        operands = [*carry, *slice_, *with_]
        names = [value_text(x) for x in operands]
        try:
            types = [dist_type(x) for x in operands]
            types = argument_types(self.mesh, count, types, len(carry), len(slice_))
        except LayoutError as error:
            raise ValueError(error.text(names)) from error
        outer, self._block = self._block, Block(arg_types=[DistTensorType(x) for x in types])
        try:
            inner = self._block
            yielded = list(body(*inner.args))
        finally:
            self._block = outer
        if (problem := yield_problem(self.mesh, inner.args[: len(carry)], yielded)) is not None:
            raise ValueError(problem[0])
        inner.add_op(YieldOp.create(operands=yielded))
        try:
            op = RepeatOp.of(self.mesh, count, [carry, slice_, with_], inner, reverse)
        except LayoutError as error:
            raise ValueError(error.text(names)) from error
        self._block.add_op(op)
        return tuple(op.results)

    def results(self, *values: SSAValue, names: Sequence[str] | None = None) -> FuncOp:
        """Return values from the function, and add it to the module.

        Args:
            names: the names of the results; by default those of the values.
        """
        self._block.add_op(ReturnOp(*values))
        inputs = [argument.type for argument in self._block.args]
        function = FuncOp(
            self._name, (inputs, [value.type for value in values]), Region(self._block)
        )
        function.attributes[MESH_ATTRIBUTE] = SymbolRefAttr(self.mesh.name)
        set_parameters(function, self._parameters)
        of_results = names or [value.name_hint for value in values]
        name_signature(function, [argument.name_hint for argument in function.args], of_results)
        self._module.body.block.add_op(function)
        return function
