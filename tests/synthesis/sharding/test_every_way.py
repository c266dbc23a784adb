"""Every way in which a step may run computes what a single device does.

A step is written in a way of ``Ways``, on operands that lie somewhere and with a result that shall
lie somewhere, as in any solution of the search, and not only in the best one.
"""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh
from support.programs.arguments import INTEGERS
from support.programs.auto_functions import random_auto
from support.programs.collectives import RANDOM, FunctionBuilder, module_of, random_mesh
from support.programs.model_operations import random_step, random_types, with_type
from support.semantics.checks import (
    agree,
    functions_of,
    results_on_all_devices,
    results_on_one_device,
)
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.cost.model import CostModel
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.auto import AUTO, set_auto
from collir.ir.verification import verify
from collir.layout import DType, LayoutError, Mesh, check_type
from collir.layout.nn_rows import NN
from collir.layout.types import unsharded
from collir.machine import Device
from collir.synthesis.propagation.choice import LayoutChoice
from collir.synthesis.propagation.graph import Relation, TensorGraph, layout_of
from collir.synthesis.propagation.moves import Moves
from collir.synthesis.propagation.rewrite import rewrite
from collir.synthesis.propagation.work import DeviceWork
from collir.synthesis.sharding.ways import StepWay, Ways

MOST = 2000
"""The most elements of a value."""

SEED = 3


def _computing(rng: random.Random, mesh: Mesh) -> Mesh:
    """Return a mesh whose machine says how fast its devices are."""
    rates = tuple((x.value, 1e12) for x in DType)
    device = Device(rates, memory_bandwidth=10 ** rng.uniform(9, 12))
    return replace(mesh, machine=replace(mesh.machine, device=device))


def _of_whole_values(rng: random.Random, name: str) -> tuple[ModuleOp, FuncOp] | None:
    """Return an ``auto`` function of one operation, if random operands are well typed."""
    devices = rng.choice([2, 4, 4, 6, 8])
    mesh = _computing(rng, random_mesh(rng, devices=devices, weights=0.2))
    name, operands, properties = random_step(rng, name)
    dtype = rng.choice([DType.F32, DType.F64, DType.I32])
    types = [unsharded(x) for x in random_types(rng, mesh, operands, dtype)]
    types = [replace(x, place=()) for x in types]
    if name == "where":
        types[0] = replace(types[0], dtype=DType.BOOL)
    if name in INTEGERS:
        number = INTEGERS[name]
        types[number] = replace(types[number], dtype=DType.I32)
    try:
        properties |= _whole(with_type(rng, mesh, name, types, dtype, properties))
        named = [x.data for x in properties.values() if isinstance(x, DistTensorType)]
        for x in (*types, *named):
            check_type(mesh, x)
    except LayoutError:
        return None
    if max((x.elements for x in (*types, *named)), default=0) > MOST:
        return None
    builder = FunctionBuilder(mesh, types)
    result = builder.try_op(OPERATIONS[name], list(builder.values), properties)
    if result is None:
        return None
    function = builder.function([result])
    set_auto(function)
    return module_of([mesh], [function]), function


def _whole(properties: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Return properties with types of whole values."""
    return {
        name: DistTensorType(unsharded(x.data)) if isinstance(x, DistTensorType) else x
        for name, x in properties.items()
    }


def _written(
    rng: random.Random, module: ModuleOp, number: int | None = None
) -> tuple[ModuleOp, dict[DistOp, StepWay], TensorGraph]:
    """Return a copy of the module of a function whose tensors lie somewhere, and whose steps run
    in some ways: the only step in the way of a number, if it is given."""
    copy = module.clone()
    (function,) = functions_of(copy)
    graph = TensorGraph.build(function)
    ways = _ways_of(function, graph)
    layouts = [rng.choice(ways.layouts(tensor)) for tensor in graph.tensors]
    chosen: dict[Relation, StepWay] = {}
    for relation in graph.relations:
        if relation.op is not None:
            listed = ways.of(relation)
            chosen[relation] = rng.choice(listed) if number is None else listed[number]
    rewrite(function, graph, layouts, lambda step: [LayoutChoice(chosen[step].axes, 0.0, 0.0)])
    del function.attributes[AUTO]
    verify(copy)
    return copy, {x.op: way for x, way in chosen.items() if x.op is not None}, graph


def _ways_of(function: FuncOp, graph: TensorGraph) -> Ways:
    """Return the ways of the steps of a function, with those of expanded composites."""
    moves = Moves(graph.mesh, CostModel())
    return Ways(graph.mesh, DeviceWork(function, graph.mesh), moves.seconds)


def _is_right(module: ModuleOp, copy: ModuleOp) -> bool:
    """Return whether a copy computes on all devices what one device does."""
    (before,), (after,) = functions_of(module), functions_of(copy)
    with np.errstate(all="ignore"):
        expected = results_on_one_device(before, SEED)
        results = results_on_all_devices(copy, after, SEED)
    return agree([*map(np.nan_to_num, results)], [*map(np.nan_to_num, expected)], 64)


def _check(rng: random.Random, name: str, counts: Counter[str]) -> None:
    """Run a random operation of a name in each of its ways, and compare."""
    made = _of_whole_values(rng, name)
    if made is None:
        return
    module, function = made
    graph = TensorGraph.build(function)
    (step,) = [relation for relation in graph.relations if relation.op is not None]
    ways = _ways_of(function, graph).of(step)
    assert any(not any(way.axes.values()) for way in ways), "it may run whole"
    for number, way in enumerate(ways):
        copy, _, _ = _written(rng, module, number)
        (after,) = functions_of(copy)
        runs = [x for x in after.body.ops if isinstance(x, DistOp) and x.mnemonic == name][:1]
        for op in runs:
            assert [layout_of(dist_type(x)) for x in op.operands] == list(way.needs)
            assert dist_type(op.result) == way.left
        assert runs or OPERATIONS[name].KIND.expansion is not None
        assert _is_right(module, copy), f"{way.axes}\n{copy}"
        counts[name] += bool(any(way.axes.values()))


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=40)
def test_every_way_of_an_operation_computes_what_one_device_does(rng: random.Random) -> None:
    _check(rng, rng.choice(list(NN)), Counter())


@pytest.mark.slow
def test_every_way_of_every_operation_computes_what_one_device_does() -> None:
    rng, counts = fresh("every way"), Counter[str]()
    for name in NN:
        for _ in range(12):
            _check(rng, name, counts)
    assert not set(NN) - set(counts), "no way divides them"


@given(rng=RANDOM)
@settings(max_examples=40)
def test_steps_in_any_ways_compute_together_what_one_device_does(rng: random.Random) -> None:
    module = random_auto(rng, computes=True)
    if module is not None:
        copy, _, _ = _written(rng, module)
        assert _is_right(module, copy), str(copy)
