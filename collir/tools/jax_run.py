"""Runs of the emitted jax on as many CPU devices as a mesh has, in a process of its own."""

import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Mesh
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.devices import coordinate
from collir.targets.code.jax import emit_jax, mesh_variable, own_axes, spec_of
from collir.tools.processes import Call, Outcome, check_installed, run_script

SCRIPT = '''\
import pickle, sys, time
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", sys.argv[2] == "wide")
jax.config.update("jax_disable_most_optimizations", sys.argv[3] == "quick")
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
import program


def whole(shape, mesh, spec, blocks):
    """The array on the whole mesh whose block on each device is one of the blocks."""
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    if mesh is not None:
        sharding = jax.sharding.NamedSharding(mesh, jax.P(*spec))
    on_devices = [jax.device_put(x, d) for x, d in zip(blocks, jax.devices())]
    return jax.make_array_from_single_device_arrays(shape, sharding, on_devices)


outcomes = []
for name, mesh_name, own_results, arguments in pickle.loads((folder / "in").read_bytes()):
    function, mesh = getattr(program, name), getattr(program, mesh_name, None)
    types = function.__wrapped__.types
    inputs = [
        whole(x.shape, mesh, spec, [block[None] if own else block for block in blocks])
        for x, (spec, own, blocks) in zip(types, arguments, strict=True)
    ]
    jax.block_until_ready(function(*inputs))
    start = time.perf_counter()
    results = jax.block_until_ready(function(*inputs))
    seconds = time.perf_counter() - start
    results = results if isinstance(results, tuple) else (results,)
    held = []
    for own, result in zip(own_results, results, strict=True):
        shards = sorted(result.addressable_shards, key=lambda shard: shard.device.id)
        held.append([np.asarray(shard.data[0] if own else shard.data) for shard in shards])
    outcomes.append((held, seconds))
(folder / "out").write_bytes(pickle.dumps(outcomes))
'''
"""The program that runs functions; a buffer of a value that differs between devices has a leading
dimension, of size 1."""


def run(
    module: ModuleOp, calls: Sequence[Call], folder: Path, quick: bool = False
) -> list[Outcome]:
    """Run functions of a module as jax on CPU devices, in one process.

    Args:
        folder: an existing folder for the code and the buffers.
        quick: whether jax leaves out most optimisations.

    Returns:
        For every function its results, with None on devices that hold none, and the seconds of its
        second run.

    Raises:
        DiagnosticError: jax is not installed, or has no form of a function.
        RuntimeError: the code fails.
    """
    check_installed("jax")
    functions = [function for function, _ in calls]
    code = emit_jax(module, {function.sym_name.data for function in functions})
    (folder / "program.py").write_text(code, encoding="utf-8")
    meshes = {mesh_of(function).name for function in functions}
    cases = [_case(function, arguments, len(meshes)) for function, arguments in calls]
    (folder / "in").write_bytes(pickle.dumps(cases))
    wide = "wide" if 'jax.config.update("jax_enable_x64"' in code else "short"
    devices = max(mesh_of(function).devices for function in functions)
    flags = f"--xla_force_host_platform_device_count={devices}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    words = [wide, "quick" if quick else "best"]
    run_script(folder, SCRIPT, words, "the emitted jax", environment)
    outcomes = pickle.loads((folder / "out").read_bytes())
    return [
        ([_held(f, value, buffers) for value, buffers in zip(_returned(f), held, strict=True)], s)
        for f, (held, s) in zip(functions, outcomes, strict=True)
    ]


def _case(function: FuncOp, arguments: Sequence[Buffers], meshes: int) -> tuple[object, ...]:
    """Return what the script needs to know of a function, and its buffers.

    Args:
        meshes: the number of meshes in the module.
    """
    mesh = mesh_of(function)
    variable = mesh_variable(mesh, meshes) if mesh.sub_axes else ""
    inputs = [
        (spec_of(mesh, x), bool(own_axes(mesh, x)), [_filled(mesh, x, part) for part in held])
        for x, held in zip(map(dist_type, function.args), arguments, strict=True)
    ]
    own = [bool(own_axes(mesh, dist_type(value))) for value in _returned(function)]
    return function.sym_name.data, variable, own, inputs


def _returned(function: FuncOp) -> Sequence[SSAValue]:
    assert function.body.block.last_op is not None
    return function.body.block.last_op.operands


def _filled(mesh: Mesh, x: DistType, buffer: Array | None) -> Array:
    """Return the buffer of a device, or numbers that no step may use where it holds none."""
    if buffer is not None:
        return buffer
    return np.full(tuple(map(int, x.local_shape(mesh))), 77, NUMPY[x.dtype])


def _held(function: FuncOp, value: SSAValue, buffers: Buffers) -> Buffers:
    """Return buffers with None on the devices that hold nothing of a value."""
    mesh, place = mesh_of(function), dist_type(value).place
    return [
        x if all(coordinate(mesh, rank, axis) == at for axis, at in place) else None
        for rank, x in enumerate(buffers)
    ]
