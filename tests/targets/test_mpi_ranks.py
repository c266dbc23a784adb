"""Every collective, reduction and dtype on 1 to 16 real MPI ranks, and the local operations.

One program for each number of ranks, compiled once and launched once.
"""

from pathlib import Path

import numpy as np
import pytest
from support.harness.hanging import HANG
from support.harness.seeds import some
from support.programs.collectives import module_of
from support.programs.one_step import (
    KINDS,
    MESHES,
    TO_OTHER_SIZES,
    collectives,
    collectives_everywhere,
    local_operations,
    meshes_of,
    places_of,
)
from support.semantics.checks import functions_of
from support.targets.on_ranks import FLAGS, differences

import collir
from collir.dialects import coll
from collir.layout import DType, Reduction
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.executor import execute
from collir.tools.mpi_run import run

RANKS = [6, *some([n for n in range(1, 17) if n != 6], 1, "ranks")]
"""On 6 ranks there are groups of 2, 3 and 6."""


def test_there_is_a_mesh_for_every_number_of_ranks() -> None:
    assert {mesh.devices for mesh in MESHES} == set(range(1, 17))


def test_kinds_are_all_collectives_with_all_reductions_on_all_dtypes() -> None:
    reducing = {(kind.op, kind.dtype, kind.reduction) for kind in KINDS if kind.reduction}
    averages_of_integers, of_truth_values = 3, 3
    assert len(coll.COLLECTIVES) == 11
    assert len(reducing) == 3 * (
        len(DType) * len(Reduction) - averages_of_integers - of_truth_values
    )
    assert len(KINDS) - len(reducing) == 8 * len(DType)


@pytest.mark.turns
@pytest.mark.parametrize("ranks", RANKS)
def test_every_rank_holds_what_it_should(ranks: int, tmp_path: Path) -> None:
    rounds = 2 if len(places_of(ranks)) > 12 else 1
    functions = list(collectives(ranks, rounds)) if ranks > 1 else []
    if ranks in (1, 6, 12):
        functions += local_operations(ranks)
    module = module_of(meshes_of(ranks), functions)
    assert differences(module, functions, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("ranks", range(2, 17))
def test_everywhere(ranks: int, tmp_path: Path) -> None:
    """Every kind runs over every list of sub-axes on every dimension, or over a sample of them."""
    functions = list(collectives_everywhere(ranks, at_most=4000))
    for start in range(0, len(functions), 2000):
        part = functions[start : start + 2000]
        module = module_of(meshes_of(ranks), part)
        assert differences(module, part, tmp_path) == []


@pytest.mark.turns
@pytest.mark.parametrize(("ranks", "most"), some([(4, 1), (6, 3), (3, 7)], 1))
def test_buffers_that_go_in_pieces(ranks: int, most: int, tmp_path: Path) -> None:
    """A call of MPI takes very few elements, so that buffers are cut into pieces."""
    functions = list(collectives(ranks))
    module = module_of(meshes_of(ranks), functions)
    flags = (*FLAGS, f"-DCOLLIR_MAX_COUNT={most}")
    assert differences(module, functions, tmp_path, flags) == []


@pytest.mark.parametrize("most", [2**31 - 1, 4])
def test_a_permute_to_a_rank_with_a_block_of_another_size(most: int, tmp_path: Path) -> None:
    module = collir.parse(TO_OTHER_SIZES)
    flags = (*FLAGS, f"-DCOLLIR_MAX_COUNT={most}")
    assert differences(module, functions_of(module), tmp_path, flags) == []


RESULTS = """
machine @six { level a[2] { port = 1 GB/s, latency = 1 us }
               level b[3] { port = 1 GB/s, latency = 1 us } }
mesh @m on @six { x = a:2 * b:3 }

func @nothing() on @m {
  return
}
func @nothing_of_something(%x: f32[6]) on @m {
  %r = scale %x by 2
  return
}
func @itself(%x: f32[6@x]) -> f32[6@x] on @m {
  return %x
}
func @at_root_itself(%x: f32[6] root(x.b)) -> f32[6] root(x.b) on @m {
  return %x
}
func @swapped(%x: f32[6], %y: i8[2]) -> (i8[2], f32[6]) on @m {
  return %y, %x
}
func @twice(%x: f32[6] partial(sum: x)) -> (f32[6], f32[6]) on @m {
  %r = all_reduce %x over x
  return %r, %r
}
func @an_argument_twice(%x: f32[6]) -> (f32[6], f32[6]) on @m {
  return %x, %x
}
func @views_of_an_argument(%x: f32[6]) -> (f32[2, 3], f32[6] root(x), f32[3, 2]) on @m {
  %a = split %x dim 0 into [2, 3]
  %b = keep_root %x over x
  %c = reshape %x to [3, 2]
  return %a, %b, %c
}
func @root_of_a_value_first(%x: i32[6] partial(max: x)) -> (i32[6] root(x.b), i32[6]) on @m {
  %r = all_reduce %x over x
  %k = keep_root %r over x.b
  return %k, %r
}
func @root_of_a_value_only(%x: i32[6] partial(max: x)) -> i32[2, 3] root(x) on @m {
  %r = all_reduce %x over x
  %a = keep_root %r over x.b
  %b = keep_root %a over x.a
  %c = split %b dim 0 into [2, 3]
  return %c
}
func @a_result_is_used_on(%x: i32[6] partial(sum: x)) -> (i32[6] partial(sum: x.a), i32[6]) on @m {
  %a = all_reduce %x over x.b
  %b = all_reduce %a over x.a
  return %a, %b
}
func @every_step(%x: f16[6] partial(avg: x)) -> (f16[6] root(x.a), f16[12] root(x.a), f16[6])
    on @m {
  %a = reduce %x over x.a
  %b = reduce %a over x.b
  %c = broadcast %b over x.b
  %d = concat %c, %c dim 0
  %e = broadcast %c over x.a
  return %c, %d, %e
}
func @two_permutes(%x: f32[6@x, 2]) -> f32[6@x, 2] on @m {
  %a = permute %x to f32[6@(x.b, x.a), 2]
  %b = permute %a to f32[6@x, 2]
  return %b
}
func @a_scalar(%x: f64[] partial(sum: x)) -> f64[] on @m {
  %r = all_reduce %x over x
  return %r
}
func @dead_steps(%x: f32[6] partial(sum: x)) -> f32[6@x] on @m {
  %unused = all_reduce %x over x
  %unused_too = pad %unused dim 0 high 3
  %r = reduce_scatter %x over x dim 0
  return %r
}
"""


@pytest.mark.turns
@pytest.mark.parametrize("passes", ["", "canonicalize,cse,dce"])
def test_results_are_arguments_views_copies_and_nothing(passes: str, tmp_path: Path) -> None:
    module = collir.run_passes(collir.parse(RESULTS), passes)
    assert differences(module, functions_of(module), tmp_path) == []


NANS = """
machine @quad { level l[4] { port = 1 GB/s, latency = 1 us } }
mesh @m on @quad { x = 4 }
func @f(%x: DTYPE[SIZE] partial(REDUCTION: x)) -> DTYPE[SIZE] on @m {
  %r = all_reduce %x over x
  return %r
}
"""


@pytest.mark.turns
@pytest.mark.parametrize("size", some([5, 5000], 1))
@pytest.mark.parametrize("reduction", [Reduction.MAX, Reduction.MIN])
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_what_is_not_a_number_on_one_rank_is_not_on_any(
    dtype: DType, reduction: Reduction, size: int, tmp_path: Path
) -> None:
    """Every five elements have one that is NaN on each of the ranks 0 to 3, and one on no rank."""
    text = NANS.replace("DTYPE", dtype).replace("SIZE", str(size)).replace("REDUCTION", reduction)
    module = collir.parse(text)
    (function,) = functions_of(module)
    place = np.arange(size) % 5
    operands: list[Buffers] = [
        [np.where(place == rank, np.nan, 1.0 + rank).astype(NUMPY[dtype]) for rank in range(4)]
    ]
    (expected,) = execute(module, function, operands)
    ((((results,), _)),) = run(module, [(function, operands)], tmp_path, FLAGS, HANG)
    right = np.where(place < 4, np.nan, 4.0 if reduction is Reduction.MAX else 1.0)
    for result, executed in zip(results, expected, strict=True):
        assert result is not None
        assert executed is not None
        assert np.array_equal(executed.astype(np.float64), right, equal_nan=True)
        assert np.array_equal(result.astype(np.float64), right, equal_nan=True)
