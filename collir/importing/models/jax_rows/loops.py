"""Loops, functions that are computed again, and their bodies."""

from collections.abc import Sequence
from typing import Any

from collir.importing.models.graph import ModelGraph, ModelNode, Shaped
from collir.importing.models.jax_rows.table import jax_row
from collir.importing.models.lines import Lines, LineValue, wrapped
from collir.importing.models.program import argument_name, write_nodes
from collir.importing.models.rows.table import NotHere, Number, value_of

Operand = LineValue | Number


def _values(e: Lines, given: Sequence[Operand], inputs: Sequence[Any]) -> list[LineValue]:
    """Return operands of a body as values that are written whole."""
    return [e.whole(value_of(e, x, own.value.dtype)) for x, own in zip(given, inputs, strict=True)]


@jax_row("scan")
def _scan(
    e: Lines, node: ModelNode, *given: Operand, body: ModelGraph, length: int, num_consts: int,
    num_carry: int, reverse: bool = False, **_: object,
) -> tuple[LineValue, ...] | LineValue:  # fmt: skip
    """A loop; what it stacks are results behind the carries."""
    values = _values(e, given, [
        type(x)(x.name, Shaped((length, *x.value.shape), x.value.dtype), x.of)
        if n >= num_consts + num_carry else x for n, x in enumerate(body.inputs)
    ])  # fmt: skip
    again = _again(body, num_consts)
    body = again or body
    inner = e.inner()
    inside: dict[str, Any] = {}
    clauses: dict[str, list[str]] = {"with": [], "carry": [], "slice": []}
    layer = inner.name("layer") if any(x.name in e.stacked for x in values) else ""
    for number, (own, x) in enumerate(zip(body.inputs, values, strict=True)):
        place = number - num_consts
        kind = "with" if place < 0 else "carry" if place < num_carry else "slice"
        whole = x.name
        if kind == "slice" and (record := e.stacked.get(x.name)) is not None:
            made, name, whole = f"{layer}{x.name.removeprefix(record)}", layer, record
        else:
            made = name = inner.name(argument_name(x.name.rpartition(".")[2]))
        inside[own.name] = LineValue.of(made, own.value)
        if (clause := f"%{name} = %{whole}") not in clauses[kind]:
            clauses[kind].append(clause)
    write_nodes(inner, body.nodes, inside, {}, {})
    yielded = [inner.whole(inside[name]) for name in body.outputs]
    inner.end("yield", yielded)
    carried = [x.name for x in values[num_consts : num_consts + num_carry]]
    hints = [*carried, *("stacked" for _ in yielded[num_carry:])]
    names = [e.name(argument_name(hint)) for hint in hints]
    written = [f"{kind}({wrapped(clauses[kind])})" for kind in ("carry", "slice", "with")
               if clauses[kind]]  # fmt: skip
    written += ["reverse"] * reverse + ["recompute"] * (again is not None)
    count = e.sizes.get(id(node), length)
    e.raw(f"{', '.join(f'%{n}' for n in names)} = repeat {count} {' '.join(written)} {{")
    e.lines += inner.lines
    e.raw("}")
    made = [
        LineValue.of(name, Shaped(x.shape if n < num_carry else (length, *x.shape), x.dtype))
        for n, (name, x) in enumerate(zip(names, yielded, strict=True))
    ]
    return tuple(made) if len(made) > 1 else made[0]


def _again(body: ModelGraph, consts: int) -> ModelGraph | None:
    """Return the body of a loop whose whole body is computed again; None if it is not.

    Constants of the loop may go in too, in any order.
    """
    nodes = [x for x in body.nodes if isinstance(x, ModelNode) and x.op != "getitem"]
    if len(nodes) != 1 or nodes[0].op not in _AGAIN:
        return None
    [node] = nodes
    inner: ModelGraph = node.kwargs["body"]
    parts: dict[str, int] = {
        x.name: x.args[1] for x in body.nodes if isinstance(x, ModelNode) and x.op == "getitem"
    }
    results: list[str] = [
        inner.outputs[parts.get(name, 0)]
        for name in body.outputs
        if name in parts or name == node.name
    ]
    if len(results) != len(body.outputs) or not all(hasattr(x, "name") for x in node.args):
        return None
    names = {own.name: given.name for own, given in zip(inner.inputs, node.args, strict=True)}
    nodes = [x.replaced(names) for x in inner.nodes if isinstance(x, ModelNode)]
    return ModelGraph(body.inputs, [*nodes], [names.get(x, x) for x in results])


_AGAIN = ("jax.checkpoint", "jax.remat", "jax.remat2")


@jax_row("checkpoint", "remat", "remat2")
def _checkpoint(
    e: Lines, node: ModelNode, *given: Operand, body: ModelGraph, policy: object = None, **_: object
) -> tuple[LineValue, ...] | LineValue:
    """A call of a function whose inside is computed again for its gradient."""
    values = _values(e, given, body.inputs)
    text, results = _function(e, body)
    name = e.called_as(text, argument_name(node.path.rpartition(".")[2] or "block"))
    names = ", ".join(f"%{x.name}" for x in values)
    call = f"call @{name}({names}) recompute"
    if len(results) == 1:
        [x] = results
        return e.step(call, x.shape, x.dtype)
    made = [e.name("kept") for _ in results]
    e.raw(f"{', '.join(f'%{n}' for n in made)} = {call}")
    return tuple(LineValue.of(n, x) for n, x in zip(made, results, strict=True))


def _function(e: Lines, body: ModelGraph) -> tuple[str, list[Shaped]]:
    """Return a body as a generic function without its name, and the types of its results."""
    inner = Lines(set(), e.called)
    inner.is_generic = True
    inside: dict[str, Any] = {}
    operands: list[str] = []
    for number, x in enumerate(body.inputs):
        name = inner.name(f"x_{number}")
        inside[x.name] = LineValue.of(name, x.value)
        operands.append(f"%{name}: {x.value.dtype}[...]")
    write_nodes(inner, body.nodes, inside, {}, {})
    results = [inner.whole(inside[name]) for name in body.outputs]
    types = [f"{x.dtype}[...]" for x in results]
    inner.end("return", results)
    made = f"({', '.join(types)})" if len(types) > 1 else types[0]
    head = f"({wrapped(operands)})\n    -> {made} on any {{"
    return "\n".join([head, *inner.lines, "}"]), [Shaped(x.shape, x.dtype) for x in results]


@jax_row("while")
def _while(e: Lines, node: ModelNode, *_: object, **__: object) -> LineValue:
    raise NotHere("whose number of iterations depends on data")
