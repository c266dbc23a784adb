"""The writer of ``.coll``: ``read(write(m))`` is ``m``, and writing twice gives the same text."""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.dialects.algorithms import AlgorithmOp
from collir.dialects.local import LocalFuncOp, local_functions
from collir.dialects.machine import (
    DeviceAttr,
    EfficiencyAttr,
    ExecutionAttr,
    LevelAttr,
    MachineOp,
    MeshOp,
    NumberAttr,
    ParameterAttr,
)
from collir.dialects.records import RecordOp
from collir.ir.diagnostics import DiagnosticError
from collir.ir.names import (
    IDENTIFIER,
    keep_names,
    names_in_block,
    set_name,
    unique_names,
)
from collir.ir.parameters import parameters_of
from collir.machine import SHARES, Efficiency, Execution, LinkKind
from collir.syntax.function_writer import FunctionWriter
from collir.syntax.local_writer import local_text
from collir.syntax.record_writer import Records
from collir.syntax.units import Quantity, plain

_ROWS = 4
"""The most rows of a matrix that is written on a single line."""


def write(module: ModuleOp) -> str:
    """Return the module as a ``.coll`` text.

    Raises:
        DiagnosticError: an operation or a name cannot be written in ``.coll``.
    """
    blocks: list[str] = []
    texts = {op.sym_name.data: _record(op) for op in module.ops if isinstance(op, RecordOp)}
    records = Records(texts)
    functions = FunctionWriter(module, records)
    for op in module.ops:
        match op:
            case MachineOp():
                blocks.append(_machine(op))
            case MeshOp():
                blocks.append(_mesh(op))
            case AlgorithmOp():
                blocks.append(f"{op.declared.data.text}\n")
            case RecordOp():
                if op.sym_name.data in records.failed:
                    problem = f"the fields of @{op.sym_name.data} cannot be written in .coll"
                    raise DiagnosticError.at(op, f"{problem}: use -t mlir")
                blocks.append(texts[op.sym_name.data])
            case FuncOp():
                _check_names(op, op.sym_name.data, *parameters_of(op))
                blocks.append(functions.text(op))
            case LocalFuncOp():
                _check_names(op, op.sym_name.data)
                blocks.append(local_text(op))
            case _:
                raise DiagnosticError.at(op, f"{op.name} cannot be written in .coll: use -t mlir")
    return "\n".join(blocks)


def settle_names(module: ModuleOp) -> None:
    """Give every value of every function a distinct name, or none, so that all printers agree.

    xDSL's printer keeps names that are distinct. Arguments and results have theirs as attributes
    too, since other tools do not keep the names of values.
    """
    keep_names(module)
    for function in module.walk():
        if isinstance(function, FuncOp):
            for value, name in unique_names(function).items():
                set_name(value, None if name.isdigit() else name)
    for local in local_functions(module):
        for value, name in names_in_block(local.body.block).items():
            set_name(value, None if name.isdigit() else name)


def _check_names(op: Operation, *names: str) -> None:
    for name in names:
        if not IDENTIFIER.fullmatch(name):
            raise DiagnosticError.at(
                op,
                f'the name "{name}" cannot be written in .coll: names are letters, digits and _',
            )


def _symbol(op: Operation, name: str) -> str:
    _check_names(op, name)
    return f"@{name}"


# --- machines and meshes ------------------------------------------------------------------------


def _parameters(parameters: ArrayAttr[ParameterAttr] | None) -> str:
    if not parameters:
        return ""
    listed = ", ".join(f"{p.parameter.data} = {p.value.data}" for p in parameters)
    return f"({listed})"


def _machine(op: MachineOp) -> str:
    head = f"machine {_symbol(op, op.sym_name.data)}"
    levels = list(_written(op.levels))
    _check_names(op, *(level.level_name.data for level, _ in levels))
    named = {kind.kind.data: kind.device for kind in op.kinds or ()}
    devices = named | ({"": op.device} if op.device else {})
    _check_names(op, *named)
    _check_names(op, *(rate.dtype.data for device in devices.values() for rate in device.compute))
    parameters = op.reference.arguments if op.reference else op.parameters
    _check_names(op, *(parameter.parameter.data for parameter in parameters or ()))
    if reference := op.reference:
        _check_names(op, reference.template.data)
        if re.search(r'["\n]', reference.file.data):
            raise DiagnosticError.at(op, "a file name with a quote cannot be written in .coll")
        file = f' from "{reference.file.data}"' if reference.file.data else ""
        return f"{head} = @{reference.template.data}{_parameters(reference.arguments)}{file}\n"
    lines = [f"{head}{_parameters(op.parameters)} {{"]
    for name, device in devices.items():
        if text := device_text(device):
            lines.append(f"  device {name}{' ' * bool(name)}{{ {text} }}")
        elif name:
            raise DiagnosticError.at(
                op, f"the device '{name}' without numbers cannot be written in .coll"
            )
    lines += [f"  {level_text(level, sizes)}" for level, sizes in levels]
    return "\n".join([*lines, "}", ""])


def device_text(device: DeviceAttr) -> str:
    """Return the clauses of a device, without braces."""
    parts: list[str] = []
    if device.compute.data:
        rates = ", ".join(
            f"{rate.dtype.data} = {Quantity.COMPUTE.format(rate.rate.data)}"
            for rate in device.compute
        )
        parts.append(f"compute {rates}")
    if isinstance(device.memory, NumberAttr):
        text = f"memory = {Quantity.BYTES.format(device.memory.data)}"
        if isinstance(device.memory_bandwidth, NumberAttr):
            text += f" @ {Quantity.BANDWIDTH.format(device.memory_bandwidth.data)}"
        parts.append(text)
    if isinstance(device.reduction, NumberAttr):
        parts.append(f"reduction = {Quantity.BANDWIDTH.format(device.reduction.data)}")
    if isinstance(device.efficiency, EfficiencyAttr):
        parts += _efficiency(device.efficiency.value())
    if isinstance(device.execution, ExecutionAttr):
        parts += _execution(device.execution.value())
    if isinstance(device.power, NumberAttr):
        parts.append(f"power = {Quantity.POWER.format(device.power.data)}")
    if isinstance(device.price, NumberAttr):
        parts.append(f"price = {Quantity.PRICE.format(device.price.data)}")
    return "; ".join(parts)


def _efficiency(efficiency: Efficiency) -> Iterator[str]:
    """Yield the clauses on the shares of the rates of a device that kernels reach."""
    shares = {name: getattr(efficiency, name) for name in SHARES}
    listed = [f"{name} = {plain(Decimal(repr(x)))}" for name, x in shares.items() if x != 1]
    if listed:
        yield f"efficiency {', '.join(listed)}"
    if efficiency.launch:
        yield f"launch = {Quantity.TIME.format(efficiency.launch)}"
    if efficiency.tile is not None:
        yield f"tile = {' x '.join(map(str, efficiency.tile))}"
        yield f"units = {efficiency.units}"
    if efficiency.depth:
        yield f"depth = {efficiency.depth}"


def _execution(execution: Execution) -> Iterator[str]:
    """Yield the clauses about the software of a device."""
    for name, time in (
        ("call", execution.call),
        ("array", execution.array),
        ("start", execution.start),
        ("issue", execution.issue),
        ("sync", execution.sync),
    ):
        if time:
            yield f"{name} = {Quantity.TIME.format(time)}"
    if execution.packing is not None:
        yield f"packing = {Quantity.BANDWIDTH.format(execution.packing)}"
    if execution.copies:
        yield "copies = made"
    if execution.maps:
        yield "maps = apart"
    if execution.streams:
        listed = (
            f"{Quantity.BYTES.format(size)} @ {Quantity.BANDWIDTH.format(rate)}"
            for size, rate in execution.streams
        )
        yield f"streams {', '.join(listed)}"
    if execution.elements:
        listed = (
            f"{op} {dtype} = {Quantity.TIME.format(t)}" for op, dtype, t in execution.elements
        )
        yield f"elements {', '.join(listed)}"


def _written(levels: Iterable[LevelAttr]) -> Iterator[tuple[LevelAttr, str]]:
    """Yield the levels as they are written, and those above some, with their sizes as text."""
    for level in levels:
        sizes = ""
        if (parents := level.value().parents) is not None:
            yield LevelAttr.of(parents.level), str(parents.level.size)
            sizes = ", ".join(map(str, parents.children))
        yield level, sizes


def level_text(level: LevelAttr, sizes: str = "") -> str:
    """Return a level as it is written in ``.coll``.

    Args:
        sizes: what is written between its brackets; by default its size.
    """
    sizes = sizes or level.size_from.data or str(level.size.data)
    ports = ", ".join(Quantity.BANDWIDTH.format(port.data) for port in level.ports)
    settings = {
        "port": f"[{ports}]" if ports else Quantity.BANDWIDTH.format(level.port.data),
        "latency": Quantity.TIME.format(level.latency.data),
    }
    if level.kind.data not in (LinkKind.SWITCH, LinkKind.LINKS):
        settings["kind"] = level.kind.data
    if level.shape.data:
        settings["shape"] = " x ".join(str(size.data) for size in level.shape)
    if level.taper.data != 1:
        settings["taper"] = plain(Decimal(repr(level.taper.data)))
    if level.rails.data != 1:
        settings["rails"] = str(level.rails.data)
    if level.fabric.data:
        settings["fabric"] = level.fabric.data
    if level.nvls.data:
        settings["nvls"] = Quantity.BANDWIDTH.format(level.nvls.data)
    if level.kinds.data:
        kinds = ", ".join(f"{kind.children.data} {kind.kind.data}" for kind in level.kinds)
        settings["devices"] = f"[{kinds}]"
    for part in level.parts:
        kind = "" if part.kind.data == LinkKind.SWITCH else f" {part.kind.data}"
        port = Quantity.BANDWIDTH.format(part.port.data)
        settings[f"part[{part.children.data}]"] = f"{port}{kind}"
    if level.links.data:
        rows = [f"[{', '.join(str(count.data) for count in row)}]" for row in level.links]
        between = ", " if len(rows) <= _ROWS else ",\n    "
        settings["links"] = f"[{'' if len(rows) <= _ROWS else between[1:]}{between.join(rows)}]"
    listed = ", ".join(f"{key} = {value}" for key, value in settings.items())
    return f"level {level.level_name.data}[{sizes}] {{ {listed} }}"


def _mesh(op: MeshOp) -> str:
    axes: list[str] = []
    for axis in op.axes:
        _check_names(op, axis.axis_name.data)
        if isinstance(axis.factors, UnitAttr):
            placement = str(axis.size.data)
        else:
            placement = " * ".join(f"{f.level.data}:{f.size.data}" for f in axis.factors)
        if axis.weights.data:
            placement += f" weights [{', '.join(str(weight.data) for weight in axis.weights)}]"
        axes.append(f"{axis.axis_name.data} = {placement}")
    machine = op.machine.string_value()
    return f"mesh {_symbol(op, op.sym_name.data)} on @{machine} {{ {', '.join(axes)} }}\n"


def _record(op: RecordOp) -> str:
    fields = [f"  {field.field.data}: {field.type.data}" for field in op.fields]
    name = _symbol(op, op.sym_name.data)
    return "\n".join([f"record {name} {{", ",\n".join(fields), "}", ""])
