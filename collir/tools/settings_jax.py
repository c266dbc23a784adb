"""``collir sweep --settings jax``: a Python file that says how arrays lie on a mesh in JAX."""

import math
from collections.abc import Iterator

from collir.cost.programs.removals import collectives
from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.layout import DistType
from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.programs import named
from collir.tools.settings_mesh import NamedMesh, rows_of, tuple_text
from collir.tools.sweep_model import Model


def jax_lines(model: Model, c: Configuration) -> Iterator[str]:
    """Yield the lines of the file."""
    step = model.step
    mesh = NamedMesh.of(model, c, () if c.devices > 1 else step.data[:1])
    function = named(model.program(c), step.function)
    specs = {x.name_hint or "": _spec(dist_type(x), mesh) for x in function.args}
    divided = {name: spec for name, spec in specs.items() if spec}
    yield f'"""@{step.function} on {c.devices} devices of {model.machine.name}, by collir sweep.'
    yield """
    mesh = make_mesh()
    arguments = jax.device_put(arguments, shardings(mesh, arguments))

A path of keys and fields to an array, with dots, is its name in the program; layers in a list are
one array there, with a dimension in front."""
    if flags := [*_flags(model, c)]:
        yield f"""
On GPUs, XLA combines messages and runs them beside products as in the program with

    XLA_FLAGS="{" ".join(flags)}\""""
    if c.stages > 1:
        yield f"""
JAX has no stages of its own; here are {c.stages} along {c.pipeline}. `collopt -t jax` prints the
whole step of the program that `-o` writes."""
    yield '''"""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import keystr, tree_map_with_path'''
    yield f'''

def make_mesh() -> Mesh:
    """Return the mesh of all devices, in their order, outermost dimension first."""
    devices = np.array(jax.devices()[:{c.devices}]).reshape({tuple_text(mesh.sizes)})
    return Mesh(devices, {tuple_text(mesh.names)})'''
    yield "\n\n# What is divided; all else is whole on each device."
    yield "SPECS: dict[str, P] = {"
    yield from (f'    "{name}": {spec},' for name, spec in divided.items())
    yield "}"
    yield '''

def shardings(mesh: Mesh, tree: Any) -> Any:
    """Return how the arrays of a tree lie."""

    def of(path: Any, _: Any) -> NamedSharding:
        names = keystr(path, simple=True, separator=".").split(".")
        layers = SPECS.get(".".join(x for x in names if not x.isdigit()), P())
        return NamedSharding(mesh, SPECS.get(".".join(names), P(*layers[1:])))

    return tree_map_with_path(of, tree)'''
    carried = [_spec(x, mesh) or "P()" for x in _between(model, c)]
    if carried:
        yield f'''

def between_layers(mesh: Mesh, x: jax.Array) -> jax.Array:
    """Say how a value between two layers lies."""
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, {max(carried, key=len)}))'''
    if isinstance(c.recompute, tuple):
        yield f"""

# What the backward pass computes again, of {", ".join(c.recompute)}: `f = recomputed(f)`
recomputed = jax.checkpoint"""
    elif c.recompute:
        yield """

# Layers that the backward pass computes again: `layer = recomputed(layer)`
recomputed = jax.checkpoint"""
    if c.microbatches > 1 and c.stages == 1:
        ranks = c.batch // rows_of(model, c) // c.microbatches
        spec = _spec_text([[], _names(model.step.data, mesh)])
        yield f'''

def microbatches(mesh: Mesh, x: jax.Array) -> jax.Array:
    """Return the rows of {c.microbatches} microbatches, for `jax.lax.scan`: each device keeps its
    own rows of the batch."""
    rows = x.reshape({ranks}, {c.microbatches}, {rows_of(model, c)}, *x.shape[1:]).swapaxes(0, 1)
    rows = rows.reshape({c.microbatches}, {ranks * rows_of(model, c)}, *x.shape[1:])
    return jax.lax.with_sharding_constraint(rows, NamedSharding(mesh, {spec}))'''


def _flags(model: Model, c: Configuration) -> Iterator[str]:
    """Yield the flags of XLA that let it run as many messages at once, and as large ones."""
    if "overlap" in c.passes:
        yield "--xla_gpu_enable_latency_hiding_scheduler=true"
    largest: dict[str, int] = {}
    for x in collectives(model.simulated(c)):
        largest[x.step.kind] = max(largest.get(x.step.kind, 0), math.ceil(x.step.size))
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        if kind in largest:
            yield f"--xla_gpu_{kind}_combine_threshold_bytes={largest[kind]}"


def _between(model: Model, c: Configuration) -> Iterator[DistType]:
    """Yield the types of what goes from one iteration to the next, in loops over layers and over
    microbatches, before there are stages."""
    for function in functions_of(model.compiled(c, c.cut)):
        for op in function.walk():
            if isinstance(op, RepeatOp) and op.sliced:
                yield from (dist_type(x) for x in op.carries[:1])


def _names(axes: tuple[str, ...], mesh: NamedMesh) -> list[str]:
    return [name for axis in axes for name in mesh.of_axis.get(axis, ())]


def _spec(x: DistType, mesh: NamedMesh) -> str:
    """Return the PartitionSpec of a type; empty if it is whole."""
    axes = [list(dict.fromkeys(sub.partition(".")[0] for sub in dim.axes)) for dim in x.dims]
    dims = [_names(tuple(own), mesh) for own in axes]
    while dims and not dims[-1]:
        _ = dims.pop()
    return _spec_text(dims) if dims else ""


def _spec_text(dims: list[list[str]]) -> str:
    def text(names: list[str]) -> str:
        if not names:
            return "None"
        return f'"{names[0]}"' if len(names) == 1 else tuple_text(names)

    return f"P({', '.join(map(text, dims))})"
