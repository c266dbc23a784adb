"""Comparisons of a training step with stages on all devices with one device."""

from collections.abc import Sequence

import numpy as np
from support.programs.staged_steps import step_of
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects.machine import mesh_of, module_of
from collir.dialects.tensor import dist_type
from collir.semantics.reference.buffers import NUMPY, assemble, distribute
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.double import module_in_double
from collir.semantics.reference.executor import execute
from collir.semantics.reference.meaning import meaning
from collir.syntax.writer import write
from collir.transforms.stages.unstaging import UnstagedError, without_stages


def inputs_of(module: ModuleOp, rng: np.random.Generator) -> list[Array]:
    """Return inputs of a step in f64: rates and second moments are positive."""
    tensors: list[Array] = []
    for argument in step_of(module).args:
        x, name = dist_type(argument), argument.name_hint or ""
        if x.dtype.is_float:
            tensor = np.asarray(rng.normal(size=x.shape) * 0.7)
            positive = name.startswith("v_") or name in ("limit", "number", "rate")
            tensors.append(abs(tensor) + 0.1 if positive else tensor)
        else:
            tensors.append(rng.integers(0, 5, size=x.shape).astype(NUMPY[x.dtype]))
    return tensors


def on_one_device(module: ModuleOp, tensors: Sequence[Array]) -> list[Array]:
    """Return the results of a step on one device, in f64."""
    alone = meaning(step_of(module_in_double(module)))
    found: list[Array] = []
    for (value,) in execute(*alone, [[x] for x in tensors]):
        assert value is not None
        found.append(value)
    return found


def on_all_devices(
    before: ModuleOp, after: ModuleOp, tensors: Sequence[Array], rng: np.random.Generator
) -> list[Array]:
    """Return the results of a step with stages on all devices, in f64."""
    old, new = (step_of(module_in_double(x)) for x in (before, after))
    step = without_stages(old, new).function
    mesh, last = mesh_of(step), step.body.block.last_op
    assert last is not None
    types = [dist_type(argument) for argument in step.args]
    if len(types) != len(tensors):  # behind `inline`, no task says which chunks are in rows
        raise UnstagedError("its stacks are in rows")
    buffers = [distribute(mesh, x, t, rng) for x, t in zip(tensors, types, strict=True)]
    results = execute(module_of(step), step, buffers)
    pairs = zip(results, last.operands, strict=True)
    return [assemble(mesh, buffer, dist_type(value)) for buffer, value in pairs]


def assert_computes(before: ModuleOp, after: ModuleOp) -> None:
    """Check that a step with stages computes what it did before, and reads back."""
    text = write(after)
    assert write(collir.parse(text, "after.coll")) == text
    rng = np.random.default_rng(0)
    tensors = inputs_of(before, rng)
    found = on_all_devices(before, after, tensors, rng)
    for actual, right in zip(found, on_one_device(before, tensors), strict=True):
        np.testing.assert_allclose(actual, right, rtol=1e-7, atol=1e-9)
