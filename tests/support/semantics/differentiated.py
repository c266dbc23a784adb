"""Checks of gradients: on all devices as on one, and there as finite differences say."""

import numpy as np
from support.semantics.checks import assembled_results
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.layout import DType
from collir.semantics.reference.buffers import distribute
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.executor import execute
from collir.semantics.reference.meaning import meaning
from collir.transforms.gradients.differentiation import gradient_function, gradients_as_calls


def inputs_of(function: FuncOp, seed: int) -> list[Array]:
    """Return random global tensors for the arguments; integers are 0 or 1."""
    rng = np.random.default_rng(seed)
    tensors: list[Array] = []
    for arg in function.args:
        x = dist_type(arg)
        if x.dtype.is_float:
            tensors.append(
                rng.uniform(0.5, 1.5, x.shape).astype(np.dtype(str(x.dtype).replace("f", "float")))
            )
        else:
            tensors.append(
                rng.integers(0, 2, x.shape).astype(bool if x.dtype is DType.BOOL else np.int32)
            )
    return tensors


def on_all_devices(module: ModuleOp, function: FuncOp, tensors: list[Array]) -> list[Array]:
    """Return the results of a function on all devices, as global tensors."""
    mesh, rng = mesh_of(function), np.random.default_rng(0)
    types = [dist_type(arg) for arg in function.args]
    buffers = [distribute(mesh, x, t, rng) for x, t in zip(tensors, types, strict=True)]
    return assembled_results(module, function, buffers)


def on_one_device(function: FuncOp, tensors: list[Array]) -> list[Array]:
    """Return the results of the undistributed function."""
    module, alone = meaning(function)
    results = execute(module, alone, [[x] for x in tensors])
    return [x for (x,) in results if x is not None]


def wrong_gradients(module: ModuleOp, function: FuncOp, seed: int) -> list[str]:
    """Return what is wrong with the gradients of a function with respect to all its arguments.

    The function is of f64, so that differences over 1e-6 have six digits.
    """
    _ = gradients_as_calls(module)
    wrt = [
        n
        for n, arg in enumerate(function.args)
        if dist_type(arg).dtype.is_float and not dist_type(arg).partial
    ]
    gradient = gradient_function(function, wrt)
    module.verify()
    tensors = inputs_of(function, seed)
    everywhere = on_all_devices(module, gradient, tensors)
    alone = on_one_device(gradient, tensors)
    problems: list[str] = []
    for number, (a, b) in enumerate(zip(everywhere, alone, strict=True)):
        if not np.allclose(a, b, rtol=1e-9, atol=1e-9):
            problems.append(f"result {number} differs: {a} on all devices, {b} on one")
    rng = np.random.default_rng(seed + 1)
    undistributed = meaning(function)
    for number, g in zip(wrt, alone[len(function.function_type.outputs) :], strict=True):
        step = rng.uniform(-1, 1, tensors[number].shape)
        moved = [list(tensors), list(tensors)]
        for sign, changed in zip((1, -1), moved, strict=True):
            changed[number] = tensors[number] + sign * 1e-6 * step
        up, down = (execute(*undistributed, [[x] for x in xs])[0][0] for xs in moved)
        assert up is not None
        assert down is not None
        expected, actual = float((up - down) / 2e-6), float(np.sum(g * step))
        if not np.isclose(actual, expected, rtol=1e-5, atol=1e-6 * max(1, abs(float(up)))):
            problems.append(f"the derivative by argument {number} is {expected}, not {actual}")
    return problems
