"""Run a program on devices and on whole tensors, and compare two programs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .devices import Devices, close
from .mesh import Type
from .numerics import Array
from .programs import Run
from .random_inputs import inputs
from .text import AxisText, Program
from .whole import Whole

NOISE = 2.0**-50
"""The relative change of inputs whose effect is that of rounding: constants have 53 bits."""


class Differ(Exception):
    """Two results differ."""


@dataclass
class Reference:
    """Results of a function before passes, as whole tensors, with a tolerance for each."""

    program: Program
    name: str
    seed: int
    results: list[Array]
    tolerances: list[float]
    kinds: list[Type]
    wholes: list[Array]
    buffers: list[list[Array | None]]


def all_of_size_one(program: Program) -> Program:
    """Return a program on one device: all axes vanish."""
    meshes: dict[str, list[AxisText]] = {
        name: [(axis, [(level, 1) for level, _ in factors], []) for axis, factors, _ in axes]
        for name, axes in program.meshes.items()
    }
    return Program(meshes, program.functions)


def reference(program: Program, name: str, seed: int) -> Reference:
    """Run a function on whole tensors, with inputs that differ by rounding, and on devices."""
    function = program.functions[name]
    on_one = all_of_size_one(program) if function.auto else program
    whole_run = Run(on_one, Whole)
    run = Run(program, Devices)
    kinds, results = run.signature(function)
    mesh = run.meshes[function.mesh]
    drawn = inputs(mesh, kinds, seed)
    moved = inputs(mesh, kinds, seed, NOISE)
    wholes = [whole for whole, _ in drawn]
    made = whole_run.function(name, wholes)
    other = whole_run.function(name, [whole for whole, _ in moved])
    tolerances = [tolerance(a, b) for a, b in zip(made, other, strict=True)]
    buffers = [buffer for _, buffer in drawn]
    if not function.auto:
        values = run.function(name, buffers)
        compare(mesh_of(run, name), results, values, made, tolerances)
    return Reference(program, name, seed, made, tolerances, kinds, wholes, buffers)


def tolerance(a: Array, b: Array) -> float:
    """Return how far apart results of equal programs may be, from the effect of rounding inputs."""
    if a.dtype.kind != "f" or not a.size:
        return 0.0
    return float(16 * np.max(np.abs(a - b)) + 2**-48 * np.max(np.abs(a)))


def mesh_of(run: Run, name: str) -> Devices:
    return Devices(run.meshes[run.program.functions[name].mesh])


def compare(
    devices: Devices,
    kinds: Sequence[Type],
    values: Sequence[list[Array | None]],
    expected: Sequence[Array],
    tolerances: Sequence[float],
) -> None:
    """Raise Differ unless buffers stand for the tensors that are expected."""
    for i, (kind, value) in enumerate(zip(kinds, values, strict=True)):
        whole = devices.whole(value, kind, tolerance=tolerances[i])
        if whole.shape != expected[i].shape or not close(whole, expected[i], tolerances[i]):
            gap = np.max(np.abs(whole - expected[i])) if whole.dtype.kind == "f" else ""
            raise Differ(f"result {i} differs by {gap}, tolerance {tolerances[i]}")


def check(before: Reference, program: Program) -> None:
    """Raise Differ unless a program computes what another one computes."""
    run = Run(program, Devices)
    function = program.functions[before.name]
    kinds, results = run.signature(function)
    devices = mesh_of(run, before.name)
    arguments = [
        buffer if kind.partial else devices.distribute(whole, kind)
        for kind, whole, buffer in zip(kinds, before.wholes, before.buffers, strict=True)
    ]
    if function.auto:
        values = Run(all_of_size_one(program), Whole).function(before.name, before.wholes)
        for i, (a, b) in enumerate(zip(values, before.results, strict=True)):
            if not close(a, b, before.tolerances[i]):
                raise Differ(f"result {i} differs")
        return
    values = run.function(before.name, arguments)
    compare(devices, results, values, before.results, before.tolerances)
