"""All_reduces over an axis with weights: their programs are typed, proven and never slower."""

import random

from hypothesis import given, settings
from programs import RANDOM, FunctionBuilder, module_of, random_mesh

import collir
from collir.dialects.coll import OPERATIONS
from collir.dialects.tensor import AxesAttr
from collir.ir.functions import functions_of
from collir.ir.verification import verify
from collir.layout import Dim, DistType, DType, Reduction
from collir.layout.cuts import units
from collir.semantics.validation.proof import proven
from collir.semantics.validation.verdict import Outcome


@given(rng=RANDOM)
@settings(max_examples=14)
def test_splitting_is_proven_and_pays(rng: random.Random) -> None:
    mesh = random_mesh(rng, weights=1.0)
    axes = list(mesh.by_name)
    if not mesh.placed or not axes:
        return
    rng.shuffle(axes)
    over = tuple(axes[: rng.randint(1, len(axes))])
    size = units(mesh, list(mesh.by_name)) * rng.choice([1, 8, 4096])
    dims = (Dim(rng.choice([1, 6, size])), Dim(size))
    x = DistType(DType.F32, dims, frozenset(over), Reduction.SUM)
    builder = FunctionBuilder(mesh, [x])
    result = builder.try_op(OPERATIONS["all_reduce"], [builder.values[0]], {"axes": AxesAttr(over)})
    assert result is not None
    before = module_of([mesh], [builder.function([result])])
    after = collir.run_passes(before.clone(), "decompose")
    verify(after)
    [old], [new] = functions_of(before), functions_of(after)
    assert proven(old, new).outcome is Outcome.SAME
    assert collir.cost(after)[0].time <= collir.cost(before)[0].time * (1 + 1e-9)


def test_copies_along_an_axis_with_weights_are_not_divided() -> None:
    module = collir.parse(
        """
        machine @box { level cpu[16] { port = 1 GB/s, latency = 1 us, fabric = network } }
        mesh @m on @box { x = cpu:4 weights [3, 2, 1, 2], y = cpu:4 }
        func @f(%g: f32[256, 256] partial(sum: y)) -> f32[256, 256] on @m {
          %r = all_reduce %g over y
          return %r
        }
        """
    )
    after = collir.run_passes(module.clone(), "decompose")
    assert collir.cost(after)[0].time <= collir.cost(module)[0].time
    assert collir.emit(after, "coll") == collir.emit(module, "coll")


def test_inside_a_node_first() -> None:
    module = collir.parse(
        """
        machine @box { level node[2] { port = 8 GB/s, latency = 20 us }
                       level gpu[4] { port = 270 GB/s, latency = 3 us } }
        mesh @m on @box { data = node:2 * gpu:4 weights [3, 3, 3, 3, 1, 1, 1, 1] }
        func @f(%g: f32[5, 16000000] partial(sum: data)) -> f32[5, 16000000] on @m {
          %r = all_reduce %g over data
          return %r
        }
        """
    )
    before = collir.cost(module)[0].time
    collir.run_passes(module, "decompose")
    names = [op.name.removeprefix("coll.") for op in functions_of(module)[0].body.ops]
    assert names == ["reduce_scatter", "all_reduce", "all_gather", "func.return"]
    assert collir.cost(module)[0].time < 0.7 * before
