"""The loss and the gradients of a function of JAX, by JAX and by its imported program, in f64."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.importing.models.graph import ModelGraph, ModelInput
from collir.importing.models.imported import program_of
from collir.importing.models.jax_functions import JaxArguments, traced_function
from collir.importing.models.program import Written
from collir.importing.models.repeats import repeated
from collir.importing.models.sizes import with_sizes
from collir.importing.models.softmaxes import with_softmaxes
from collir.importing.stablehlo.graphs import graph_of, shaped
from collir.importing.stablehlo.text import read
from collir.ir.functions import functions_of
from collir.semantics.reference.buffers import assemble, distribute
from collir.semantics.reference.executor import execute

jax: Any = import_module("jax")

HEAD = """
machine @one { level device[1] { port = 1 GB/s, latency = 1 us } }
mesh @m on @one { x = device:1 }
"""


@dataclass(frozen=True)
class Compared:
    """The errors of an imported program beside JAX.

    Attributes:
        program: the text of the function.
        results: the largest error of each result, relative to its largest element.
        gradients: that of the gradient of each weight, or relative to 1e-5 of the largest of all
            where that is more.
    """

    program: Written
    results: tuple[float, ...]
    gradients: Mapping[str, float]

    @property
    def worst(self) -> float:
        """The largest error; NaN counts as infinite."""
        errors = [*self.results, *self.gradients.values()]
        return max(error if error == error else np.inf for error in errors)


def compared(
    function: Callable[..., Any], *args: Any, form: str = "", axes: Mapping[str, int] | None = None
) -> Compared:
    """Return the results of a function by its imported program, beside JAX's; and the gradients in
    its weights, if its first result is a number.

    Arguments of 32 bits become such of 64.

    Args:
        form: imports the text of its StableHLO instead, in the ``pretty`` or the ``generic`` form.
        axes: those of a mesh that the program runs on, with its layouts propagated; by default it
            runs on one device.
    """
    with jax.enable_x64(True):
        return _compared(function, jax.tree.map(_wide, args), form, axes)


def on(axes: Mapping[str, int]) -> str:
    """Return a machine, and a mesh with these axes."""
    count = math.prod(axes.values())
    listed = ", ".join(f"{name} = device:{size}" for name, size in axes.items())
    return (
        f"machine @one {{ level device[{count}] {{ port = 1 GB/s, latency = 1 us }} }}\n"
        f"mesh @m on @one {{ {listed} }}\n"
    )


def _wide(x: Any) -> Any:
    if not hasattr(x, "dtype") or jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return x
    return jax.numpy.asarray(np.asarray(x).astype(np.float64)) if x.dtype.kind == "f" else x


def _compared(
    function: Callable[..., Any], args: Any, form: str, axes: Mapping[str, int] | None
) -> Compared:
    first = HEAD if axes is None else on(axes)
    given = JaxArguments(function, args)
    graph = _of_text(function, given, form) if form else traced_function(function, given).graph
    program = program_of(graph, "", False, "", repeated)[0]
    arrays = [x for x in jax.tree.leaves(args) if hasattr(x, "dtype") or type(x) in (int, float)]
    values = {
        leaf.path: np.asarray(_number(x)) for leaf, x in zip(given.leaves, arrays, strict=True)
    }
    values |= dict(graph.constants)
    called = given.calling(function)
    exact = [np.asarray(x) for x in jax.tree.leaves(jax.jit(called)(*arrays))]
    made = _run(program, values, first + _sized(program, program.text("m")), program.name)
    results = tuple(_error(x, y) for x, y in zip(made, exact, strict=True))
    weights = [x for x in program.arguments if x.kind == "weight"]
    if program.name != "loss" or not weights:
        return Compared(program, results, {})
    text = first + _gradients(program)
    _, *found = _run(program, values, text, "gradients")

    def loss(leaves: Mapping[str, Any]) -> Any:
        return called(*[leaves.get(x.path, values[x.path]) for x in given.leaves])[0]

    own = {name: jax.numpy.asarray(values[name]) for x in weights for name in x.of}
    gradients = jax.jit(jax.grad(loss))(own)
    largest = max(float(abs(g).max()) for g in gradients.values() if g.size)
    errors: dict[str, float] = {}
    for x, result in zip(weights, found, strict=True):
        parts = result if len(x.of) > 1 else [result]
        for name, part in zip(x.of, parts, strict=True):
            size = max(float(abs(gradients[name]).max()), 1e-5 * largest)
            errors[name] = float(abs(part - gradients[name]).max()) / size
    return Compared(program, results, errors)


def _of_text(function: Callable[..., Any], given: JaxArguments, form: str) -> ModelGraph:
    """Return a function as a graph, by its StableHLO."""
    lowered = jax.jit(given.calling(function)).lower(*given.arrays)
    text = lowered.as_text(debug_info=True)
    if form == "generic":
        module: Any = lowered.compiler_ir()
        text = module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True)
    module = read(text, "own.mlir")
    main = module.functions["main"]
    inputs = [
        ModelInput("", shaped(x.type, x.name), leaf.path, leaf.kind)
        for x, leaf in zip(main.body.takes, given.leaves, strict=True)
    ]
    found = graph_of(module, main, inputs, lambda sharding, rank: ())
    return with_softmaxes(found.graph)


def _number(x: Any) -> Any:
    if hasattr(x, "dtype") and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.int32(jax.random.key_data(x)[..., -1])
    return x


def _error(x: Any, y: np.ndarray[Any, Any]) -> float:
    if not y.size:
        return 0.0
    size = float(np.abs(y.astype(np.float64)).max()) or 1.0
    return float(np.abs(np.asarray(x, np.float64) - y.astype(np.float64)).max()) / size


def _sized(program: Written, text: str) -> str:
    return with_sizes(text, program.layers)


def _gradients(program: Written) -> str:
    weights = [x for x in program.arguments if x.kind == "weight"]
    operands = ", ".join(f"%{x.name}" for x in program.arguments)
    gradients = ", ".join(f"%d.{x.name}" for x in weights)
    listed = ", ".join(f"%{x.name}: {x.type()}" for x in program.arguments)
    sizes, given = (_sized(program, text) for text in ("{sizes}", "{given}"))
    wrt = ", ".join(f"%{x.name}" for x in weights)
    others = "".join(f", %other_{n}" for n in range(len(program.results) - 1))
    head = f"func @first{sizes}({listed}) -> {program.results[0]} on @m auto {{\n"
    first = f"  %loss{others} = call @loss{given}({operands})\n  return %loss\n}}\n"
    return (
        f"{_sized(program, program.text('m'))}\n{head}{first}"
        f"func @gradients{sizes}({listed})\n"
        f"    -> ({program.results[0]}, {', '.join(x.type() for x in weights)}) on @m auto {{\n"
        f"  %loss, {gradients} = gradient @first{given}({operands}) wrt {wrt}\n"
        f"  return %loss, {gradients}\n}}\n"
    )


def _run(program: Written, values: Mapping[str, Any], text: str, name: str) -> Iterator[Any]:
    """Yield the results of a function by the reference executor."""
    module = collir.parse(text)
    collir.run_passes(module, "propagate")
    [own] = [f for f in functions_of(module) if f.sym_name.data == name]
    mesh, rng = mesh_of(own), np.random.default_rng(0)
    arrays: list[list[Any]] = []
    for x, argument in zip(program.arguments, own.body.block.args, strict=True):
        parts = [np.asarray(values[name]) for name in x.of]
        array = np.stack(parts) if len(parts) > 1 else parts[0]
        arrays.append(distribute(mesh, array, dist_type(argument), rng))
    results = [dist_type(x) for x in own.get_return_op().operands]  # pyright: ignore
    for buffers, type in zip(execute(module, own, arrays), results, strict=True):
        yield assemble(mesh, buffers, type)
