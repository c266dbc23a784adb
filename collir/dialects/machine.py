"""The machine dialect: hardware and mesh symbols.

Both are symbols of a module; functions name their mesh in the attribute ``coll.mesh``. The
attributes mirror the plain values of ``collir.machine`` and ``collir.layout`` and convert to them.
"""

import math
import operator
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar, cast
from weakref import WeakKeyDictionary

from xdsl.dialects.builtin import (
    ArrayAttr,
    IntAttr,
    ModuleOp,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Data, Dialect, Operation, ParametrizedAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    param_def,
    prop_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface, SymbolTable
from xdsl.utils.exceptions import VerifyException

from collir.layout import Axis, Factor, Mesh, MeshError
from collir.machine import (
    IDEAL,
    PLAIN,
    Device,
    DeviceKind,
    Efficiency,
    Execution,
    Fabric,
    Level,
    LinkKind,
    Machine,
    MachineError,
    Parents,
    PartLinks,
)

MESH_ATTRIBUTE = "coll.mesh"
"""The attribute of a ``func.func`` that names the mesh its tensors are distributed over."""


# ---------------------------------------------------------------------------------------------
# Attributes
# ---------------------------------------------------------------------------------------------


@irdl_attr_definition
class NumberAttr(Data[float]):
    """A double whose text reads back exactly; that of builtin.float_data, as in 2e-05, does not."""

    name = "machine.number"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> float:
        with parser.in_angle_brackets():
            if (infinite := parser.parse_optional_keyword("inf")) is None:
                if parser.parse_optional_punctuation("-") is None:
                    return float(parser.parse_number())
                infinite = parser.parse_optional_keyword("inf")
                return -(float(parser.parse_number()) if infinite is None else math.inf)
            return math.inf

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            mantissa, _, exponent = repr(self.data).partition("e")
            point = "" if "." in mantissa or math.isinf(self.data) else ".0"
            printer.print_string(mantissa + point + (f"e{exponent}" if exponent else ""))

    def __eq__(self, other: object) -> bool:
        """Return whether it is the same double: 0 and -0 are two."""
        return isinstance(other, NumberAttr) and (self.data, math.copysign(1, self.data)) == (
            other.data, math.copysign(1, other.data)
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash(self.data)


class Named(ParametrizedAttribute):
    """An attribute whose text names its parameters, and leaves out those with default values.

    A text without names lists the parameters in order, and leaves out the last ones.
    """

    DEFAULTS: ClassVar[tuple[Attribute, ...]] = ()
    """The default values of the last parameters."""

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name, _ in cls.get_irdl_definition().parameters]

    @classmethod
    def _defaults(cls) -> dict[str, Attribute]:
        names = cls._names()
        return dict(zip(names[len(names) - len(cls.DEFAULTS) :], cls.DEFAULTS, strict=True))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        names, defaults = cls._names(), cls._defaults()

        def entry() -> tuple[str, Attribute]:
            name = next((x for x in names if parser.parse_optional_keyword(x) is not None), "")
            if name:
                _ = parser.parse_punctuation("=")
            return name, parser.parse_attribute()

        entries = parser.parse_comma_separated_list(parser.Delimiter.ANGLE, entry)
        if not any(name for name, _ in entries):
            if not 0 <= len(names) - len(entries) <= len(defaults):
                parser.raise_error(f"{cls.name} has another number of parameters")
            entries = [(name, value) for name, (_, value) in zip(names, entries, strict=False)]
        given = dict(entries)
        if len(given) < len(entries) or "" in given:
            parser.raise_error(f"{cls.name} names each of its parameters once, or none")
        if missing := [name for name in names if name not in defaults | given]:
            parser.raise_error(f"{cls.name} needs {missing[0]}")
        return [(defaults | given)[name] for name in names]

    def print_parameters(self, printer: Printer) -> None:
        def print_entry(entry: tuple[str, Attribute]) -> None:
            printer.print_string(f"{entry[0]} = ")
            printer.print_attribute(entry[1])

        defaults = self._defaults()
        entries = zip(self._names(), self.parameters, strict=True)
        with printer.in_angle_brackets():
            printer.print_list([e for e in entries if defaults.get(e[0]) != e[1]], print_entry)


@irdl_attr_definition
class PartAttr(Named):
    """The links of groups that extend over only some of the children of a level."""

    name = "machine.part"

    children: IntAttr = param_def()
    port: NumberAttr = param_def()
    kind: StringAttr = param_def()


@irdl_attr_definition
class KindChildrenAttr(Named):
    """A kind of devices, and the number of neighbouring children of a level that have it."""

    name = "machine.kind_children"

    kind: StringAttr = param_def()
    children: IntAttr = param_def()


@irdl_attr_definition
class ParentsAttr(Named):
    """The level above, whose children have different numbers of children: a ``machine.level``."""

    name = "machine.parents"

    level: Attribute = param_def()
    children: ArrayAttr[IntAttr] = param_def()


@irdl_attr_definition
class LevelAttr(Named):
    """A level of a machine.

    ``size_from`` is the parameter that gives the size, or empty. ``fabric`` is empty if unknown.
    ``ports``, ``shape``, ``links``, ``parts`` and ``kinds`` are empty, and ``nvls`` is 0, if the
    level has none. ``parents`` is unit unless they have different numbers of children.
    """

    name = "machine.level"
    DEFAULTS = (
        NumberAttr(1.0),
        IntAttr(1),
        StringAttr(""),
        ArrayAttr[Attribute](()),
        ArrayAttr[Attribute](()),
        ArrayAttr[Attribute](()),
        ArrayAttr[Attribute](()),
        NumberAttr(0.0),
        ArrayAttr[Attribute](()),
        UnitAttr(),
    )

    level_name: StringAttr = param_def()
    size: IntAttr = param_def()
    size_from: StringAttr = param_def()
    port: NumberAttr = param_def()
    latency: NumberAttr = param_def()
    kind: StringAttr = param_def()
    taper: NumberAttr = param_def()
    rails: IntAttr = param_def()
    fabric: StringAttr = param_def()
    ports: ArrayAttr[NumberAttr] = param_def()
    shape: ArrayAttr[IntAttr] = param_def()
    links: ArrayAttr[ArrayAttr[IntAttr]] = param_def()
    parts: ArrayAttr[PartAttr] = param_def()
    nvls: NumberAttr = param_def()
    kinds: ArrayAttr[KindChildrenAttr] = param_def()
    parents: ParentsAttr | UnitAttr = param_def()

    @staticmethod
    def of(level: Level, size_from: str = "") -> "LevelAttr":
        """Return the attribute of a plain level."""
        parents = level.parents
        return LevelAttr(
            StringAttr(level.name),
            IntAttr(level.size),
            StringAttr(size_from),
            NumberAttr(level.port),
            NumberAttr(level.latency),
            StringAttr(level.kind.value),
            NumberAttr(level.taper),
            IntAttr(level.rails),
            StringAttr(level.fabric.value if level.fabric else ""),
            ArrayAttr(map(NumberAttr, level.ports or ())),
            ArrayAttr(map(IntAttr, level.shape or ())),
            ArrayAttr(ArrayAttr(map(IntAttr, row)) for row in level.links or ()),
            ArrayAttr(
                PartAttr(IntAttr(part.children), NumberAttr(part.port), StringAttr(part.kind.value))
                for part in level.parts
            ),
            NumberAttr(level.nvls or 0.0),
            ArrayAttr(
                KindChildrenAttr(StringAttr(kind), IntAttr(children))
                for kind, children in level.kinds
            ),
            ParentsAttr(LevelAttr.of(parents.level), ArrayAttr(map(IntAttr, parents.children)))
            if parents
            else UnitAttr(),
        )

    def value(self) -> Level:
        """Return the plain level.

        Raises:
            MachineError: the level cannot exist, or its kind or fabric is unknown.
        """
        for kind in (self.kind, *(part.kind for part in self.parts)):
            if kind.data not in list(LinkKind):
                raise MachineError(f"'{kind.data}' is not a kind of link")
        if self.fabric.data and self.fabric.data not in list(Fabric):
            raise MachineError(f"'{self.fabric.data}' is not a fabric")
        return Level(
            self.level_name.data,
            self.size.data,
            self.port.data,
            self.latency.data,
            LinkKind(self.kind.data),
            self.taper.data,
            self.rails.data,
            Fabric(self.fabric.data) if self.fabric.data else None,
            tuple(port.data for port in self.ports) or None,
            tuple(size.data for size in self.shape) or None,
            tuple(tuple(count.data for count in row) for row in self.links) or None,
            tuple(
                PartLinks(part.children.data, part.port.data, LinkKind(part.kind.data))
                for part in self.parts
            ),
            self.nvls.data or None,
            tuple((kind.kind.data, kind.children.data) for kind in self.kinds),
            self.above(),
        )

    def above(self) -> Parents | None:
        """Return the level above, if its children have different numbers of children.

        Raises:
            MachineError: it cannot have these children.
        """
        if isinstance(self.parents, UnitAttr):
            return None
        if not isinstance(self.parents.level, LevelAttr):
            raise MachineError(f"the parents of '{self.level_name.data}' are of no level")
        children = tuple(count.data for count in self.parents.children)
        return Parents(self.parents.level.value(), children)


@irdl_attr_definition
class RateAttr(Named):
    """The FLOP/s of a dtype."""

    name = "machine.rate"

    dtype: StringAttr = param_def()
    rate: NumberAttr = param_def()


@irdl_attr_definition
class EfficiencyAttr(Named):
    """The shares of the rates of a device that kernels reach; a tile of 0 x 0 stands for none."""

    name = "machine.efficiency"
    DEFAULTS = (NumberAttr(1.0), NumberAttr(1.0))

    launch: NumberAttr = param_def()
    compute: NumberAttr = param_def()
    memory: NumberAttr = param_def()
    units: IntAttr = param_def()
    tile: ArrayAttr[IntAttr] = param_def()
    depth: IntAttr = param_def()
    unaligned: NumberAttr = param_def()
    fused: NumberAttr = param_def()

    @staticmethod
    def of(efficiency: Efficiency) -> "EfficiencyAttr":
        """Return the attribute of a plain efficiency."""
        return EfficiencyAttr(
            NumberAttr(efficiency.launch),
            NumberAttr(efficiency.compute),
            NumberAttr(efficiency.memory),
            IntAttr(efficiency.units),
            ArrayAttr(map(IntAttr, efficiency.tile or ())),
            IntAttr(efficiency.depth),
            NumberAttr(efficiency.unaligned),
            NumberAttr(efficiency.fused),
        )

    def value(self) -> Efficiency:
        """Return the plain efficiency.

        Raises:
            MachineError: a tile has another number of sides than two.
        """
        sides = [side.data for side in self.tile]
        if len(sides) not in (0, 2):
            raise MachineError(f"a tile has rows and columns, not {len(sides)} sides")
        return Efficiency(
            self.launch.data,
            self.compute.data,
            self.memory.data,
            self.units.data,
            (sides[0], sides[1]) if sides else None,
            self.depth.data,
            self.unaligned.data,
            self.fused.data,
        )


@irdl_attr_definition
class ExecutionAttr(Named):
    """The times that the software of a device adds to the times of kernels."""

    name = "machine.execution"
    DEFAULTS = (NumberAttr(0.0), NumberAttr(0.0))

    call: NumberAttr = param_def()
    array: NumberAttr = param_def()
    streams: ArrayAttr[NumberAttr] = param_def()
    operations: ArrayAttr[RateAttr] = param_def()
    start: NumberAttr = param_def()
    packing: NumberAttr | UnitAttr = param_def()
    copies: IntAttr = param_def()
    maps: IntAttr = param_def()
    issue: NumberAttr = param_def()
    sync: NumberAttr = param_def()

    @staticmethod
    def of(execution: Execution) -> "ExecutionAttr":
        """Return the attribute of a plain value."""
        return ExecutionAttr(
            NumberAttr(execution.call),
            NumberAttr(execution.array),
            ArrayAttr([NumberAttr(x) for pair in execution.streams for x in pair]),
            ArrayAttr(
                [
                    RateAttr(StringAttr(f"{operation} {dtype}"), NumberAttr(time))
                    for operation, dtype, time in execution.elements
                ]
            ),
            NumberAttr(execution.start),
            UnitAttr() if execution.packing is None else NumberAttr(execution.packing),
            IntAttr(int(execution.copies)),
            IntAttr(int(execution.maps)),
            NumberAttr(execution.issue),
            NumberAttr(execution.sync),
        )

    def value(self) -> Execution:
        """Return the plain value.

        Raises:
            MachineError: a stream without a bandwidth, or an operation without a type.
        """
        numbers = [number.data for number in self.streams]
        names = [rate.dtype.data.split(" ") for rate in self.operations]
        if len(numbers) % 2 or any(len(words) != 2 for words in names):
            raise MachineError("a stream has a bandwidth, and the time of an element a type")
        times = [rate.rate.data for rate in self.operations]
        return Execution(
            self.call.data,
            self.array.data,
            tuple(zip(numbers[::2], numbers[1::2], strict=True)),
            tuple((words[0], words[1], time) for words, time in zip(names, times, strict=True)),
            self.start.data,
            self.packing.data if isinstance(self.packing, NumberAttr) else None,
            bool(self.copies.data),
            bool(self.maps.data),
            self.issue.data,
            self.sync.data,
        )


@irdl_attr_definition
class DeviceAttr(Named):
    """A device, the leaf of a machine's tree; unknown numbers are ``unit``."""

    name = "machine.device"
    DEFAULTS = (UnitAttr(),) * 5

    compute: ArrayAttr[RateAttr] = param_def()
    memory: NumberAttr | UnitAttr = param_def()
    memory_bandwidth: NumberAttr | UnitAttr = param_def()
    reduction: NumberAttr | UnitAttr = param_def()
    efficiency: EfficiencyAttr | UnitAttr = param_def()
    execution: ExecutionAttr | UnitAttr = param_def()
    power: NumberAttr | UnitAttr = param_def()
    price: NumberAttr | UnitAttr = param_def()

    @staticmethod
    def of(device: Device) -> "DeviceAttr":
        """Return the attribute of a plain device."""

        def optional(value: float | None) -> NumberAttr | UnitAttr:
            return UnitAttr() if value is None else NumberAttr(value)

        rates = [RateAttr(StringAttr(dtype), NumberAttr(rate)) for dtype, rate in device.compute]
        return DeviceAttr(
            ArrayAttr(rates),
            optional(device.memory),
            optional(device.memory_bandwidth),
            optional(device.reduction),
            EfficiencyAttr.of(device.efficiency) if device.efficiency != IDEAL else UnitAttr(),
            ExecutionAttr.of(device.execution) if device.execution != PLAIN else UnitAttr(),
            optional(device.power),
            optional(device.price),
        )

    def value(self) -> Device:
        """Return the plain device."""

        def optional(attr: NumberAttr | UnitAttr) -> float | None:
            return attr.data if isinstance(attr, NumberAttr) else None

        return Device(
            tuple((rate.dtype.data, rate.rate.data) for rate in self.compute),
            optional(self.memory),
            optional(self.memory_bandwidth),
            optional(self.reduction),
            self.efficiency.value() if isinstance(self.efficiency, EfficiencyAttr) else IDEAL,
            self.execution.value() if isinstance(self.execution, ExecutionAttr) else PLAIN,
            optional(self.power),
            optional(self.price),
        )


@irdl_attr_definition
class KindAttr(Named):
    """A named kind of devices."""

    name = "machine.kind"

    kind: StringAttr = param_def()
    device: DeviceAttr = param_def()

    @staticmethod
    def of(kind: DeviceKind) -> "KindAttr":
        """Return the attribute of a plain kind."""
        return KindAttr(StringAttr(kind.name), DeviceAttr.of(kind.device))

    def value(self) -> DeviceKind:
        """Return the plain kind."""
        return DeviceKind(self.kind.data, self.device.value())


@irdl_attr_definition
class ParameterAttr(Named):
    """A parameter of a machine with its value: ``nodes = 4``."""

    name = "machine.parameter"

    parameter: StringAttr = param_def()
    value: IntAttr = param_def()


@irdl_attr_definition
class ReferenceAttr(Named):
    """The origin of a machine: ``@template(nodes = 4) from "file"``.

    ``file`` is empty for a machine of the same file and for a shipped machine.
    """

    name = "machine.reference"

    template: StringAttr = param_def()
    arguments: ArrayAttr[ParameterAttr] = param_def()
    file: StringAttr = param_def()


@irdl_attr_definition
class FactorAttr(Named):
    """The part of an axis on one level."""

    name = "machine.factor"

    level: StringAttr = param_def()
    size: IntAttr = param_def()


@irdl_attr_definition
class AxisAttr(Named):
    """An axis: placed on levels by its factors, or only sized (``factors`` is unit).

    ``weights`` is empty if all coordinates have the same share of what is sharded over the axis.
    """

    name = "machine.axis"
    DEFAULTS = (ArrayAttr[Attribute](()),)

    axis_name: StringAttr = param_def()
    size: IntAttr = param_def()
    factors: ArrayAttr[FactorAttr] | UnitAttr = param_def()
    weights: ArrayAttr[IntAttr] = param_def()

    @staticmethod
    def of(axis: Axis) -> "AxisAttr":
        """Return the attribute of a plain axis."""
        factors: ArrayAttr[FactorAttr] | UnitAttr = UnitAttr()
        if axis.factors is not None:
            factors = ArrayAttr(
                [FactorAttr(StringAttr(f.level), IntAttr(f.size)) for f in axis.factors]
            )
        weights = ArrayAttr(map(IntAttr, axis.weights or ()))
        return AxisAttr(StringAttr(axis.name), IntAttr(axis.size), factors, weights)

    def value(self) -> Axis:
        """Return the plain axis.

        Raises:
            MeshError: the weights are too few, too many or below 1.
        """
        if isinstance(self.factors, UnitAttr):
            axis = Axis(self.axis_name.data, self.size.data)
        else:
            axis = Axis.placed(
                self.axis_name.data, (Factor(f.level.data, f.size.data) for f in self.factors)
            )
        if not self.weights.data:
            return axis
        return axis.weighted(weight.data for weight in self.weights)


# ---------------------------------------------------------------------------------------------
# Operations
# ---------------------------------------------------------------------------------------------


@irdl_op_definition
class MachineOp(IRDLOperation):
    """A machine, with its own levels or (with ``reference``) the resolved levels of a template.

    A module is self-contained: a machine with a reference holds the resolved levels too, and
    prints as a reference in ``.coll``.
    """

    name = "machine.machine"

    sym_name = prop_def(SymbolNameConstraint())
    parameters = opt_prop_def(ArrayAttr[ParameterAttr])
    levels = prop_def(ArrayAttr[LevelAttr])
    device = opt_prop_def(DeviceAttr)
    kinds = opt_prop_def(ArrayAttr[KindAttr])
    reference = opt_prop_def(ReferenceAttr)

    traits = traits_def(SymbolOpInterface())

    assembly_format = (
        "$sym_name (`parameters` $parameters^)? (`from` $reference^)? "
        "`levels` $levels (`device` $device^)? (`kinds` $kinds^)? attr-dict"
    )

    def value(self) -> Machine:
        """Return the plain machine.

        Raises:
            MachineError: the machine cannot exist.
        """
        device = self.device.value() if self.device else None
        levels = tuple(level.value() for level in self.levels)
        kinds = tuple(kind.value() for kind in self.kinds or ())
        return Machine(self.sym_name.data, levels, device, kinds)

    def verify_(self) -> None:
        try:
            self.value()
        except MachineError as error:
            raise VerifyException(str(error)) from error
        known = {p.parameter.data: p.value.data for p in self.parameters or ()}
        for level in self.levels:
            if (name := level.size_from.data) and known.get(name) != level.size.data:
                raise VerifyException(
                    f"level '{level.level_name.data}' does not have the size of parameter '{name}'"
                )


@irdl_op_definition
class MeshOp(IRDLOperation):
    """Named axes of parallelism on a machine, placed or not."""

    name = "machine.mesh"

    sym_name = prop_def(SymbolNameConstraint())
    machine = prop_def(SymbolRefAttr)
    axes = prop_def(ArrayAttr[AxisAttr])

    traits = traits_def(SymbolOpInterface())

    assembly_format = "$sym_name `on` $machine `axes` $axes attr-dict"

    def value(self) -> Mesh:
        """Return the plain mesh, which is cached until the mesh or its machine changes.

        Raises:
            VerifyException: the machine is not declared.
            MachineError, MeshError: the machine or the mesh cannot exist.
        """
        machine = SymbolTable.lookup_symbol(self, self.machine)
        if not isinstance(machine, MachineOp):
            raise VerifyException(f"there is no machine {self.machine}")
        devices = machine.device, machine.kinds
        key = (self.axes, self.sym_name, machine.levels, *devices, machine.sym_name)
        if (known := _MESHES.get(self)) and all(map(operator.is_, known[0], key)):
            return known[1]
        axes = tuple(axis.value() for axis in self.axes)
        mesh = Mesh(self.sym_name.data, machine.value(), axes)
        _MESHES[self] = (key, mesh)
        return mesh

    def verify_(self) -> None:
        try:
            self.value()
        except (MachineError, MeshError) as error:
            raise VerifyException(str(error)) from error


_MESHES: WeakKeyDictionary[MeshOp, tuple[tuple[object, ...], Mesh]] = WeakKeyDictionary()


_remembered: ContextVar[dict[Operation, Mesh] | None] = ContextVar("_remembered", default=None)


@contextmanager
def meshes_remembered(known: Mapping[Operation, Mesh] | None = None) -> Generator[None]:
    """Look up the mesh of each function only once, while nothing changes the module.

    A look-up scans the symbols of the module, so one for each operation would be quadratic.

    Args:
        known: meshes of functions that are in no module.
    """
    token = _remembered.set(dict(known) if known else {})
    try:
        yield
    finally:
        _remembered.reset(token)


def function_of(op: Operation) -> FuncOp | None:
    """Return the function around an operation, through loops, or the operation if it is one."""
    function: Operation | None = op
    while function is not None and function.name != "func.func":
        function = function.parent_op()
    return cast("FuncOp | None", function)


def module_of(op: Operation) -> ModuleOp:
    """Return the module that a function, a machine or a mesh is in."""
    module = op.parent_op()
    assert isinstance(module, ModuleOp)
    return module


def mesh_of(op: Operation) -> Mesh:
    """Return the mesh of the function that an operation is in (or is).

    Raises:
        VerifyException: the function names no mesh, or its mesh is not declared.
        MachineError, MeshError: the machine or the mesh cannot exist.
    """
    function = function_of(op)
    if function is None:
        raise VerifyException("the operation is not in a function, so it has no mesh")
    known = _remembered.get()
    if known is None:
        return _look_up(function)
    if function not in known:
        known[function] = _look_up(function)
    return known[function]


def _look_up(function: Operation) -> Mesh:
    reference = function.attributes.get(MESH_ATTRIBUTE)
    if not isinstance(reference, SymbolRefAttr):
        raise VerifyException(f"the function does not name its mesh ({MESH_ATTRIBUTE} = @mesh)")
    mesh = SymbolTable.lookup_symbol(function, reference)
    if not isinstance(mesh, MeshOp):
        raise VerifyException(f"there is no mesh {reference}")
    return mesh.value()


def device_properties(machine: Machine) -> dict[str, Attribute]:
    """Return the properties of a machine's operation that describe its devices."""
    properties: dict[str, Attribute] = {}
    if machine.device:
        properties["device"] = DeviceAttr.of(machine.device)
    if machine.kinds:
        properties["kinds"] = ArrayAttr(map(KindAttr.of, machine.kinds))
    return properties


def parameter_list(values: Mapping[str, int]) -> ArrayAttr[ParameterAttr]:
    """Return the parameters of a machine as an attribute."""
    return ArrayAttr(
        [ParameterAttr(StringAttr(name), IntAttr(value)) for name, value in values.items()]
    )


Machines = Dialect(
    "machine",
    [MachineOp, MeshOp],
    [
        NumberAttr,
        LevelAttr,
        PartAttr,
        KindChildrenAttr,
        ParentsAttr,
        RateAttr,
        EfficiencyAttr,
        ExecutionAttr,
        DeviceAttr,
        KindAttr,
        ParameterAttr,
        ReferenceAttr,
        FactorAttr,
        AxisAttr,
    ],
)
