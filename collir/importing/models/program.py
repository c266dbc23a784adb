"""The program of a graph: a function in ``.coll``, with one loop for layers that are alike."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collir.importing.models.export import fault
from collir.importing.models.graph import (
    ModelGraph,
    ModelInput,
    ModelNode,
    Ref,
    RepeatedNodes,
    Shaped,
    Stack,
    mapped,
)
from collir.importing.models.lines import SIZES, Lines, LineValue, type_text, wrapped
from collir.importing.models.rows.table import JAX, ROWS, NotHere
from collir.importing.values import MALFORMED

WEIGHTS = "w"
"""The record of all weights; a field has the name that the framework gives the weight."""

RESERVED = (WEIGHTS, "m", "v", "rate", "limit", "step")
"""The names that a training step takes beside the arguments of the model."""

_ORDER = ("argument", "weight", "buffer", "constant")
"""The kinds of arguments, in the order in which they are written."""


@dataclass(frozen=True)
class FunctionArgument:
    """An argument of a function.

    Attributes:
        name: its name; of a weight, with that of the record in front.
        of: what the framework calls it: of a stack, of every layer.
        kind: that of the inputs (see ``ModelInput``).
        layers: the parameter that is its first size, of a stack.
        axes: what stands behind the size of each dimension (see ``ModelInput``).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    of: tuple[str, ...]
    kind: str
    layers: str = ""
    axes: tuple[str, ...] = ()

    def type(self, axis: str = "", dtype: str = "") -> str:
        """Return its type; of an argument of the model, with its batch over an axis if there is
        one.

        Args:
            dtype: another dtype than its own.
        """
        sizes = [self.layers, *self.shape[1:]] if self.layers else self.shape
        text = type_text(with_axes(sizes, self.axes), dtype or self.dtype)
        if not self.axes and axis and self.kind == "argument" and self.shape:
            first, comma, rest = text.partition("]" if len(self.shape) == 1 else ",")
            return f"{first}@{axis}{comma}{rest}"
        return text


def with_axes(sizes: Sequence[int | str], axes: Sequence[str]) -> list[str]:
    """Return sizes with the axes that they are divided over behind them."""
    return [f"{n}{a}" for n, a in zip(sizes, axes or [""] * len(sizes), strict=True)]


class WeightRecords:
    """The records of the weights of a model: one for each loop over layers, and one for all.

    Attributes:
        dtype: what `float` is in them.
        fields: the fields of the record of all weights, with their types.
        layers: the records of the layers, as text.
    """

    def __init__(self, dtypes: Sequence[str]):
        self.dtype = max(dtypes, key=dtypes.count) if dtypes else ""
        self.is_mixed = len(set(dtypes)) > 1
        self.fields: dict[str, str] = {}
        self.layers: list[str] = []

    def add(self, path: str, type: str) -> str:
        """Add a field for a weight, or for the layers of a loop, and return its name."""
        name = _distinct(_field_name(path) or "layers", self.fields)
        self.fields[name] = type
        return name

    def type(self, shape: Sequence[int | str], dtype: str) -> str:
        """Return the type of a field."""
        return type_text(shape, "float" if dtype == self.dtype else dtype)

    def add_layers(self, path: str, count: str, fields: Mapping[str, str]) -> str:
        """Add the weights of the layers of a loop, and return the name of their field."""
        name = f"layer{f'_{len(self.layers) + 1}' if self.layers else ''}"
        self.layers.append(_record(name, fields))
        return self.add(path, f"@{name}[{count}]")

    @property
    def texts(self) -> list[str]:
        """The declarations."""
        return [*self.layers, _record("weights", self.fields)] if self.fields else []


def _record(name: str, fields: Mapping[str, str]) -> str:
    listed = ",\n".join(f"  {field}: {x}" for field, x in fields.items())
    return f"record @{name} {{\n{listed}\n}}\n"


def _distinct(name: str, others: Iterable[str]) -> str:
    """Return a name for a field that equals no other name, nor contains one."""
    while any(f"{x}.".startswith(f"{name}.") or f"{name}.".startswith(f"{x}.") for x in others):
        name += "_"
    return name


@dataclass(frozen=True)
class Written:
    """A function, and what it calls, as text.

    Attributes:
        called: the functions that it calls.
        results: the types of its results.
        layers: its parameters for numbers of layers, with their defaults.
        records: the records of its weights.
    """

    name: str
    arguments: tuple[FunctionArgument, ...]
    results: tuple[str, ...]
    body: tuple[str, ...]
    called: tuple[str, ...]
    layers: Mapping[str, int]
    records: WeightRecords

    def listed(self, dtype: str = "", axis: str = "", more: Sequence[str] = ()) -> str:
        """Return the arguments as they are written.

        Args:
            dtype: that of the weights, by default their own.
            axis: the axis that the batch is divided over, if there is one.
            more: arguments behind those of the model.
        """
        of = {kind: [x for x in self.arguments if x.kind == kind] for kind in _ORDER}
        given = [f"%{x.name}: {x.type(axis)}" for x in of["argument"]]
        given += more
        if self.records.fields:
            given.append(f"%{WEIGHTS}: {dtype or self.records.dtype} @weights parameter")
        given += [f"%{x.name}: {x.type()}" for x in (*of["buffer"], *of["constant"])]
        return ",\n     ".join(given)

    def text(self, mesh: str, axis: str = "") -> str:
        """Return the function on a mesh, with the batch over an axis if there is one."""
        arguments = self.listed(axis=axis)
        results = ", ".join(self.results)
        results = f"({results})" if len(self.results) != 1 else results
        head = f"func @{self.name}{SIZES}\n    ({arguments})\n    -> {results} on @{mesh} auto {{"
        called = (f"{text.rstrip()}\n" for text in self.called)
        parts = (*self.records.texts, *called, head, *self.body, "}")
        return "\n".join(parts) + "\n"


def written(graph: ModelGraph, name: str) -> Written:
    """Return the function of a graph.

    Raises:
        DiagnosticError: an operation has no row, or none with these arguments.
    """
    sizes, stacked = dict[int, str](), dict[str, str]()
    lines = Lines(set(RESERVED), {}, sizes=sizes, stacked=stacked)
    values: dict[str, LineValue] = {}
    arguments: list[FunctionArgument] = []
    loops = [node for node in graph.nodes if isinstance(node, RepeatedNodes)]
    stacks = [stack for loop in loops for stack in loop.stacks.values()]
    scanned = scanned_layers(graph)
    in_loops = {x.name for stack in stacks for x in stack.inputs}
    counts = {
        f"layers_{number}" if number > 1 else "layers": loop.times
        for number, loop in enumerate(loops, 1)
    }
    weights = [x for x in graph.inputs if x.kind == "weight"]
    records = WeightRecords([x.value.dtype for x in weights])
    in_scans = {x.name for layers in scanned for x in layers.weights}
    for x in graph.inputs:
        if x.name in in_loops or x.name in in_scans:
            continue
        if x.kind == "weight":
            type = records.type(with_axes(x.value.shape, x.axes), x.value.dtype)
            made = f"{WEIGHTS}.{records.add(x.of, type)}"
        else:
            made = lines.name(argument_name(x.of))
        values[x.name] = LineValue.of(made, x.value)
        own = made, x.value.shape, x.value.dtype, (x.of,), x.kind
        arguments.append(FunctionArgument(*own, axes=x.axes))
    for layers in scanned:
        count = f"layers_{len(counts) + 1}" if counts else "layers"
        counts[count] = layers.count
        sizes[id(layers.node)] = count
        own = {_field_name(x.of.removeprefix(layers.path)[1:]): x for x in layers.weights}
        types = {field: records.type(x.value.shape[1:], x.value.dtype) for field, x in own.items()}
        record = f"{WEIGHTS}.{records.add_layers(layers.path, count, types)}"
        for field, x in own.items():
            made = f"{record}.{field}"
            stacked[made] = record
            values[x.name] = LineValue.of(made, x.value)
            axes = ("", *x.axes[1:]) if x.axes else ()
            given = made, x.value.shape, x.value.dtype, (x.of,), x.kind
            arguments.append(FunctionArgument(*given, count, axes))
    fields: dict[str, str] = {}
    for layers, loop in zip(counts, loops, strict=False):  # those of scans come last
        names = _stacked_names(loop, layers, records, lines, fields)
        for stack in loop.stacks.values():
            made = names[stack.name]
            values[stack.name] = LineValue.of(made, stack.value)
            of, kind = tuple(x.of for x in stack.inputs), stack.inputs[0].kind
            axes = ("", *stack.inputs[0].axes) if stack.inputs[0].axes else ()
            own = made, stack.value.shape, stack.value.dtype, of, kind
            arguments.append(FunctionArgument(*own, layers, axes))
    write_nodes(lines, graph.nodes, values, dict(zip(map(id, loops), counts, strict=False)), fields)
    results = [lines.whole(values[output]) for output in graph.outputs]
    lines.end("return", results)
    order = sorted(arguments, key=lambda a: _ORDER.index(a.kind))
    called = tuple(lines.called.values())
    types = tuple(x.type for x in results)
    return Written(name, tuple(order), types, tuple(lines.lines), called, counts, records)


@dataclass(frozen=True)
class ScannedLayers:
    """Layers whose weights are stacked already, and the loop over them.

    Attributes:
        path: the path of all weights of the layers.
    """

    node: ModelNode
    count: int
    path: str
    weights: tuple[ModelInput, ...]


def scanned_layers(graph: ModelGraph) -> list[ScannedLayers]:
    """Return the loops of a framework over weights that nothing else reads, and with a path of
    their own."""
    read: dict[str, int] = dict.fromkeys(graph.outputs, 2)
    for node in graph.nodes:
        for operand in node.operands() if isinstance(node, ModelNode) else ():
            read[operand] = read.get(operand, 0) + 1
    inputs = {x.name: x for x in graph.inputs if x.kind == "weight"}
    scans: list[ScannedLayers] = []
    for node in graph.nodes:
        if not isinstance(node, ModelNode) or node.op != f"{JAX}scan":
            continue
        first = node.kwargs["num_consts"] + node.kwargs["num_carry"]
        slices = [x.name for x in node.args[first:] if isinstance(x, Ref)]
        own = [inputs[name] for name in slices if name in inputs and read[name] == 1]
        parts = [x.of.split(".")[:-1] for x in own]
        path = ".".join(common(parts)) if parts else ""
        of_path = [x for x in inputs.values() if x.of.startswith(f"{path}.")]
        if path and len(own) == len(of_path) == len(set(slices).intersection(inputs)):
            scans.append(ScannedLayers(node, node.kwargs["length"], path, tuple(own)))
    return scans


def common(paths: Sequence[Sequence[str]]) -> list[str]:
    """Return what all paths begin with."""
    made: list[str] = []
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        made.append(names[0])
    return made


def argument_name(path: str) -> str:
    """Return the name of an argument, of a path such as ``layers.0.self_attn.q_proj.weight``."""
    made = re.sub(r"\W+", "_", path, flags=re.ASCII).strip("_").lower()
    return made if made and not made[0].isdigit() else f"x_{made}"


def _stacked_names(
    loop: RepeatedNodes, layers: str, records: WeightRecords, lines: Lines, fields: dict[str, str]
) -> dict[str, str]:
    """Return the names of the stacks of a loop: the weights are a record in that of all.

    Args:
        layers: the parameter for the number of iterations.
        fields: the names of weights in their layers, by stack; the names of this loop are added.
    """
    names: dict[str, str] = {}
    types: dict[str, str] = {}
    for stack in loop.stacks.values():
        first = stack.inputs[0]
        if first.kind == "weight":
            field = _distinct(_field_name(_short(first, loop.path)), types)
            sizes = with_axes(first.value.shape, first.axes)
            types[field] = records.type(sizes, first.value.dtype)
            fields[stack.name] = field
        else:
            names[stack.name] = lines.name(argument_name(_shared_path(stack)))
    if types:
        container = re.sub(r"(^|[._])\d+$", "", loop.path)
        whole = records.add_layers(container, layers, types)
        own = (name for name in loop.stacks if name not in names)
        names |= {name: f"{WEIGHTS}.{whole}.{fields[name]}" for name in own}
    return names


def _field_name(path: str) -> str:
    """Return the name of a field for the path of a weight."""
    return re.sub(r"[^\w.]+", "_", path, flags=re.ASCII)


def _shared_path(stack: Stack) -> str:
    """Return the path that the inputs of a stack share, without the number of the layer."""
    first, last = (x.of.split(".") for x in (stack.inputs[0], stack.inputs[-1]))
    return ".".join(a for a, b in zip(first, last, strict=False) if a == b)


def write_nodes(
    lines: Lines,
    nodes: Sequence[ModelNode | RepeatedNodes],
    values: dict[str, Any],
    layers: Mapping[int, str],
    fields: Mapping[str, str],
) -> None:
    """Write operations.

    Args:
        layers: the parameter of each loop for its number of iterations, by its ``id``.
        fields: the names of weights in their layers, by the stack.
    """
    for node in nodes:
        if isinstance(node, RepeatedNodes):
            _write_loop(lines, node, values, layers[id(node)], fields)
        else:
            values[node.name] = _row(lines, node, values)


class NotUnderstoodError(Exception):
    """An operation whose operands or parameters do not fit its name, with its line."""


def _row(lines: Lines, node: ModelNode, values: Mapping[str, Any]) -> Any:
    row = ROWS.get(node.op)
    where = f" (in {node.path})" if node.path else ""
    framework, op = ("JAX", node.op[len(JAX) :]) if node.op.startswith(JAX) else ("torch", node.op)
    if row is None:
        raise fault(f"there is no row for {framework}'s {op}{where}", node.line)

    def value(x: Any) -> Any:
        return values[x.name] if isinstance(x, Ref) else x

    module = node.path.rpartition(".")[2]
    own = module if node.op in ("linear", "embedding", "layer_norm", "rms_norm") else op
    lines.hint = argument_name((own if not own.isdigit() else op).partition(".")[0])
    if framework == "JAX":  # whose names of operations are longer than ours
        lines.hint = ""
    try:
        made = row(lines, node, *mapped(node.args, value), **mapped(dict(node.kwargs), value))
    except NotHere as error:
        raise fault(f"{framework}'s {op} {error} cannot be imported{where}", node.line) from error
    except MALFORMED as error:
        raise NotUnderstoodError(op, node.line) from error
    parts = made if isinstance(made, tuple) else (made,)
    for part, result in zip(parts, node.results, strict=False):
        if result and (part.shape, part.dtype) != (result.shape, result.dtype):
            had, needed = type_text(part.shape, part.dtype), type_text(result.shape, result.dtype)
            raise NotUnderstoodError(f"{op} gives {had}, not {needed}:", node.line)
    return made


def _write_loop(
    lines: Lines,
    loop: RepeatedNodes,
    values: dict[str, Any],
    layers: str,
    fields: Mapping[str, str],
) -> None:
    """Write a loop over layers."""
    body = lines.inner()
    inside: dict[str, Any] = {}
    carries: list[str] = []
    for name, start, _, _ in loop.carries:
        first = lines.whole(values[start])
        made = body.name(argument_name(first.name))
        inside[name] = LineValue.of(made, _shaped(first))
        carries.append(f"%{made} = %{first.name}")
    slices: list[str] = []
    layer = body.name("layer")
    for name, stack in loop.stacks.items():
        whole = values[stack.name].name
        if (field := fields.get(name)) is not None:
            made, record = f"{layer}.{field}", whole.removesuffix(f".{field}")
            if f"%{layer} = %{record}" not in slices:
                slices.append(f"%{layer} = %{record}")
        else:
            made = body.name(argument_name(_short(stack.inputs[0], loop.path)))
            slices.append(f"%{made} = %{whole}")
        inside[name] = LineValue.of(made, stack.inputs[0].value)
    shared: list[str] = []
    for name in loop.shared:
        outer: LineValue = values[name]
        made = body.name(argument_name(outer.name))
        inside[name] = LineValue(made, outer.shape, outer.dtype, outer.has)
        shared.append(f"%{made} = %{outer.name}")
    write_nodes(body, loop.nodes, inside, {}, {})
    yielded = [body.whole(inside[result]) for _, _, result, _ in loop.carries]
    names = [lines.name(argument_name(loop.path.rpartition(".")[0] or "y")) for _ in yielded]
    clauses = [f"{kind}({wrapped(listed)})" for kind, listed in
               (("carry", carries), ("slice", slices), ("with", shared)) if listed]  # fmt: skip
    lines.raw(f"{', '.join(f'%{n}' for n in names)} = repeat {layers} {clauses[0]}")
    for number, clause in enumerate(clauses[1:], 1):
        lines.raw(f"    {clause}{' {' if number == len(clauses) - 1 else ''}")
    if len(clauses) == 1:
        lines.lines[-1] += " {"
    lines.lines += body.lines
    body.raw(f"yield {', '.join(f'%{x.name}' for x in yielded)}")
    lines.lines.append(body.lines[-1])
    lines.raw("}")
    for made, x, (_, _, _, after) in zip(names, yielded, loop.carries, strict=True):
        values[after] = LineValue.of(made, _shaped(x))


def _shaped(x: LineValue) -> Shaped:
    return Shaped(x.shape, x.dtype)


def _short(x: ModelInput, path: str) -> str:
    """Return what a weight is called inside its layer."""
    return x.of.removeprefix(path).strip(".") or x.of
