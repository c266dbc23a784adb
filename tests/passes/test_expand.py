"""The steps of a composite operation do the same, also on blocks of what it needs the whole of."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh
from support.programs import corners
from support.programs.arguments import FORMS, INTEGERS
from support.programs.collectives import RANDOM, FunctionBuilder, integer, module_of, random_mesh
from support.semantics.checks import functions_of, results_on_all_devices
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue

import collir
from collir.dialects.machine import NumberAttr
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import AxesAttr, SizesAttr, dist_type
from collir.ir.verification import verify
from collir.layout import Dim, DistType, DType, LayoutError, Mesh
from collir.layout.cuts import units
from collir.layout.types import check_cut, with_axes

COMPOSITES = [name for name, op in OPERATIONS.items() if op.KIND.expansion and name != "mean"]
"""All but a mean, which is a reduction: it is expanded only where `shard` or `propagate` has to."""


def random_program(rng: random.Random) -> ModuleOp | None:
    """Return a function with a composite of what was gathered, whose result may be cut again; None
    if it is not well typed."""
    mesh = random_mesh(rng, devices=rng.choice([2, 4, 6, 8]), weights=0.2)
    name = rng.choice(COMPOSITES)
    operands, properties = form(rng, name)
    dtype = rng.choice([DType.F32, DType.F64, DType.F16])
    sharded = cuts(rng, mesh, operands)
    size = units(mesh, list(mesh.by_name)) * rng.choice([1, 2])
    types = [
        DistType(
            DType.I32 if number == INTEGERS.get(name) else dtype,
            tuple(Dim(size, sharded.get(index, ())) for index in over),
        )
        for number, over in enumerate(operands)
    ]
    if max(x.elements for x in types) > 2000:
        return None
    builder = FunctionBuilder(mesh, types)
    whole = {f"{d}": i for d, i in enumerate(operands[0])}
    kind = OPERATIONS[name].KIND
    op = OPERATIONS[name].create(operands=builder.values, properties=properties)
    assert isinstance(op, DistOp) and kind.structure is not None
    structure = kind.structure(types, op.arguments)
    op.drop_all_references()
    blocked = {whole[index] for index in structure.blocked}
    values: list[SSAValue] = []
    for value, over in zip(list(builder.values), operands, strict=True):
        for dim, index in enumerate(over):
            if index in blocked and (axes := sharded.get(index)):
                move = {"axes": AxesAttr(axes), "dim": integer(dim)}
                gathered = builder.try_op(OPERATIONS["all_gather"], [value], move)
                assert gathered is not None
                value = gathered
        values.append(value)
    result = builder.try_op(OPERATIONS[name], values, properties)
    assert result is not None
    for dim, index in enumerate(structure.result):
        axes = sharded.get(whole[index], ())
        if whole[index] in blocked and axes and rng.random() < 0.5:
            move = {"axes": AxesAttr(axes), "dim": integer(dim)}
            cut = builder.try_op(OPERATIONS["slice"], [result], move)
            assert cut is not None
            result = cut
    return module_of([mesh], [builder.function([result])])


def form(rng: random.Random, name: str) -> tuple[list[list[str]], dict[str, Attribute]]:
    """Return the indices of the operands of a composite, and its arguments."""
    if name in FORMS:
        operands, arguments = FORMS[name](rng)
        eps = {"eps": NumberAttr(0.125)} if "eps" in arguments else {}  # 0 divides by rounding
        return operands, {**arguments, **eps}
    indices = list("abc"[: rng.randint(1, 3)])
    dims = rng.sample(range(len(indices)), rng.randint(1, len(indices)))
    has_dims = "dims" in {parameter.name for parameter in OPERATIONS[name].KIND.parameters}
    return [indices], {"dims": SizesAttr(tuple(dims))} if has_dims else {}


def cuts(rng: random.Random, mesh: Mesh, operands: list[list[str]]) -> dict[str, tuple[str, ...]]:
    """Return the sub-axes over which some indices are sharded."""
    sharded: dict[str, tuple[str, ...]] = {}
    for axis in mesh.by_name:
        if rng.random() < 0.8:
            index = rng.choice(operands[0])
            sharded[index] = (*sharded.get(index, ()), axis)
    for index, axes in list(sharded.items()):
        try:
            check_cut(mesh, axes, 0)
        except LayoutError:
            del sharded[index]
    return sharded


def check(rng: random.Random, counts: Counter[str]) -> None:
    module = random_program(rng)
    if module is None:
        return
    [before] = functions_of(module)
    (composite,) = [op for op in before.body.ops if isinstance(op, DistOp) and op.kind.expansion]
    expected = results_on_all_devices(module, before, 5)
    after = collir.run_passes(module.clone(), "expand,fuse,dce")
    verify(after)
    [function] = functions_of(after)
    steps = [op for op in function.body.ops if isinstance(op, DistOp)]
    assert not any(op.mnemonic in COMPOSITES for op in steps)
    assert function.function_type == before.function_type
    rough = 5e-3 if dist_type(composite.input).dtype is DType.F16 else 1e-5
    for one, other in zip(results_on_all_devices(after, function, 5), expected, strict=True):
        assert one.dtype == other.dtype
        assert np.allclose(one.astype(float), other.astype(float), rtol=rough, atol=rough)
    counts[composite.mnemonic] += 1
    gathers = [op for op in before.body.ops if isinstance(op, DistOp) and op.kind.gathers]
    if gathers and not any(op.kind.gathers for op in steps):
        counts["on blocks"] += 1


@given(rng=RANDOM)
@settings(max_examples=18)
def test_expansions_do_the_same(rng: random.Random) -> None:
    check(rng, Counter())


@pytest.mark.slow
def test_many_expansions() -> None:
    rng, counts = fresh(54), Counter[str]()
    for _ in range(1500):
        check(rng, counts)
    assert counts["on blocks"] > 100 and min(counts[name] for name in COMPOSITES) > 20


def test_a_sharded_vocabulary_is_never_gathered() -> None:
    module = collir.parse("""
machine @box { level gpu[4] { port = 300 GB/s, latency = 3 us } }
mesh @m on @box { data = gpu:2, model = gpu:2 }
func @f(%x: f32[4@data, 8@model], %i: i32[4@data]) -> f32[4@data] on @m {
  %whole = all_gather %x over model dim 1
  %y = cross_entropy %whole, %i dim 1
  return %y
}
""")
    collir.run_passes(module, "expand,dce")
    [function] = functions_of(module)
    sends = [op for op in function.body.ops if isinstance(op, DistOp) and op.kind.sends]
    assert [op.mnemonic for op in sends] == ["all_reduce"] * 4
    assert all(dist_type(op.result).shape in ((4, 1), (4,)) for op in sends)
    whole = with_axes(dist_type(function.args[0]), 1, ())
    assert all(dist_type(value) != whole for op in function.body.ops for value in op.results)


def test_gains_are_in_the_order_of_their_dimensions() -> None:
    module = collir.parse(corners.TEXT)
    expanded = collir.run_passes(collir.parse(corners.TEXT), "expand")
    for before, after in zip(functions_of(module), functions_of(expanded), strict=True):
        if before.sym_name.data == "turned":
            ((x, *_),), ((y, *_),) = (
                results_on_all_devices(m, f, 0) for m, f in ((module, before), (expanded, after))
            )
            np.testing.assert_allclose(x, y, rtol=1e-5)
