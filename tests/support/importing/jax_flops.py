"""The operations of products in an imported function of JAX, beside those that XLA counts."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, cast

from support.importing.jax_gradients import HEAD, on
from support.importing.products import products

import collir
from collir.importing.models.imported import program_of
from collir.importing.models.jax_functions import JaxArguments, traced_function
from collir.importing.models.repeats import repeated
from collir.importing.models.sizes import with_sizes
from collir.ir.functions import functions_of

jax: Any = import_module("jax")

_PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot_general")


def counted_by_xla(function: Callable[..., Any], args: Sequence[Any]) -> float:
    """Return the operations of products of a function, on all devices: as XLA's cost analysis
    counts each of them, and those of a loop as often as it runs."""
    given = JaxArguments(function, args)
    return _of_jaxpr(jax.make_jaxpr(given.calling(function))(*given.arrays).jaxpr)


def _of_jaxpr(jaxpr: Any) -> float:
    total = 0.0
    for eqn in jaxpr.eqns:
        params = eqn.params
        if eqn.primitive.name in _PRODUCTS:
            shapes = tuple((tuple(x.aval.shape), str(x.aval.dtype)) for x in eqn.invars)
            total += _alone(eqn.primitive, shapes, tuple(params.items()))
            continue
        times = params["length"] if eqn.primitive.name == "scan" else 1
        if eqn.primitive.name == "shard_map":
            times = math.prod(dict(params["mesh"].shape).values())
        for inner in params.values():
            jaxprs = cast("Sequence[Any]", inner) if isinstance(inner, tuple) else [inner]
            for one in jaxprs:
                own = getattr(one, "jaxpr", one)
                total += times * _of_jaxpr(own) if hasattr(own, "eqns") else 0.0
    return total


@cache
def _alone(primitive: Any, shapes: Any, params: Any) -> float:
    given = [jax.ShapeDtypeStruct(*shape) for shape in shapes]

    def one(*operands: Any) -> Any:
        return primitive.bind(*operands, **dict(params))

    analysis = jax.jit(one).lower(*given).cost_analysis()
    return float(analysis["flops"])


def in_program(
    function: Callable[..., Any], args: Sequence[Any], axes: dict[str, int] | None = None
) -> float:
    """Return the operations of products in the imported program of a function."""
    graph = traced_function(function, JaxArguments(function, args)).graph
    program = program_of(graph, "", False, "", repeated)[0]
    head = HEAD if axes is None else on(axes)
    read = collir.parse(head + with_sizes(program.text("m"), program.layers))
    [own] = [f for f in functions_of(read) if f.sym_name.data == program.name]
    return products(own.body.block)
