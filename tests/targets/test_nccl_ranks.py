"""The emitted NCCL code on MPI ranks, over a fake of NCCL and CUDA that needs no GPU.

The programs are every collective, reduction and dtype, the local operations, and random programs.
The buffers of every rank are compared with those of the numpy executor. Each case is one program,
launched once.
"""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.harness.hanging import HANG
from support.harness.seeds import chosen, fresh, some
from support.programs.collectives import module_of, random_function, random_mesh
from support.programs.one_step import (
    TO_OTHER_SIZES,
    collectives,
    collectives_everywhere,
    local_operations,
    meshes_of,
)
from support.semantics.checks import functions_of
from support.targets.on_fake_nccl import (
    STRICT,
    compile_with_fake,
    differences,
    harness,
    results_on_fake,
)
from support.targets.on_ranks import arguments_of
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.layout import DType
from collir.semantics.reference.buffers import NUMPY
from collir.semantics.reference.collectives import Array, Buffers
from collir.tools.mpi_run import mpiexec

SYMMETRIC = "nccl{symmetric=true}"


def every_operation(ranks: int, target: str, folder: Path, share: int = 1) -> list[str]:
    """Return the errors of collectives and local operations on all meshes of ``ranks`` ranks: of
    one in ``share`` of them, others for every seed."""
    functions = list(collectives(ranks)) if ranks > 1 else []
    functions += local_operations(ranks)
    functions = chosen(functions, len(functions) // share, ranks)
    return differences(module_of(meshes_of(ranks), functions), functions, folder, target)


@pytest.mark.turns
@pytest.mark.parametrize(("ranks", "target"), some([(1, "nccl"), (6, "nccl"), (4, SYMMETRIC)], 1))
def test_every_rank_holds_what_it_should(ranks: int, target: str, tmp_path: Path) -> None:
    assert every_operation(ranks, target, tmp_path, share=2) == []


@pytest.mark.slow
@pytest.mark.parametrize("ranks", range(1, 17))
@pytest.mark.parametrize("target", ["nccl", SYMMETRIC])
def test_every_number_of_ranks(ranks: int, target: str, tmp_path: Path) -> None:
    assert every_operation(ranks, target, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [4, 6, 8, 12])
def test_everywhere(ranks: int, tmp_path: Path) -> None:
    """Every kind runs over every list of sub-axes on every dimension, or over a sample of them."""
    functions = list(collectives_everywhere(ranks, at_most=1500))
    module = module_of(meshes_of(ranks), functions)
    assert differences(module, functions, tmp_path) == []


@pytest.mark.turns
def test_a_permute_to_a_rank_with_a_block_of_another_size(tmp_path: Path) -> None:
    module = collir.parse(TO_OTHER_SIZES)
    assert differences(module, functions_of(module), tmp_path) == []


def random_module(ranks: int, seed: int, count: int, target: str) -> ModuleOp:
    """Return random functions on a few meshes of ``ranks`` ranks; loops are not in symmetric
    memory."""
    nested = target != SYMMETRIC
    rng = fresh(seed)
    meshes = [random_mesh(rng, ranks, f"m{index}", weights=0.4) for index in range(4)]
    return module_of(
        meshes,
        [
            random_function(rng, rng.choice(meshes), rng.randint(1, 10), f"f{index}", nested=nested)
            for index in range(count)
        ],
    )


@pytest.mark.turns
@pytest.mark.parametrize(("ranks", "seed", "target"), some([(8, 2, SYMMETRIC), (6, 3, "nccl")], 1))
def test_random_programs(ranks: int, seed: int, target: str, tmp_path: Path) -> None:
    module = random_module(ranks, seed, 20, target)
    assert differences(module, functions_of(module), tmp_path, target) == []


SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["nccl", SYMMETRIC])
def test_no_memory_is_misused(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # MPI's own
    module = random_module(6, 7, 25, target)
    assert differences(module, functions_of(module), tmp_path, target, SANITIZED) == []


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 5, 6, 8, 12, 16])
@pytest.mark.parametrize("target", ["nccl", SYMMETRIC])
def test_many_random_programs(ranks: int, target: str, tmp_path: Path) -> None:
    module = random_module(ranks, 100 + ranks, 150, target)
    assert differences(module, functions_of(module), tmp_path, target) == []


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
func @itself(%x: bf16[6@x]) -> bf16[6@x] on @m {
  return %x
}
func @at_root_itself(%x: f32[6] root(x.b)) -> f32[6] root(x.b) on @m {
  return %x
}
func @twice(%x: f32[6] partial(sum: x)) -> (f32[6], f32[6]) on @m {
  %r = all_reduce %x over x
  return %r, %r
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
func @odd_names(%class: f32[6@x, 2], %this: f32[6@x, 2], %i0: i8[2, 3, 4])
    -> (f32[6@x, 2], i8[4, 2, 3]) on @m {
  %template = permute %class to f32[6@(x.b, x.a), 2]
  %packed = permute %template to f32[6@x, 2]
  %stream = add %packed, %this
  %err = transpose %i0 order [2, 0, 1]
  return %stream, %err
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


@pytest.mark.parametrize("target", ["nccl", pytest.param(SYMMETRIC, marks=pytest.mark.slow)])
def test_results_are_arguments_views_copies_and_nothing(target: str, tmp_path: Path) -> None:
    module = collir.parse(RESULTS)
    assert differences(module, functions_of(module), tmp_path, target) == []


# --- numbers ------------------------------------------------------------------------------------


def numbers(dtype: DType) -> Array:
    """Return the numbers of a dtype that are hard to round to another; all numbers of a small
    dtype."""
    with np.errstate(all="ignore"):
        if dtype.bits == 16:
            return np.arange(2**16, dtype=np.uint16).view(NUMPY[dtype])
        if dtype is DType.BOOL:
            return np.array([False, True])
        if not dtype.is_float:
            bits = dtype.bits - 1
            near = [s * (2**p + d) for p in range(bits) for d in (-1, 0, 1) for s in (1, -1)]
            small = range(-min(70000, 2**bits), min(70000, 2**bits))
            return np.array([*near, *small], np.int64).astype(NUMPY[dtype])
        halves = [numbers(half).astype(np.float64) for half in (DType.F16, DType.BF16)]
        exact = np.unique(np.concatenate(halves))
        exact = exact[np.isfinite(exact)]
        points = np.concatenate([exact, (exact[1:] + exact[:-1]) / 2]).astype(NUMPY[dtype])
        infinite = NUMPY[dtype].type(np.inf)
        return np.concatenate(
            [points, np.nextafter(points, infinite), np.nextafter(points, -infinite)]
        )


@pytest.mark.turns
def test_casts_round_as_numpy_does(tmp_path: Path) -> None:
    cases = [
        (numbers(source), source, target)
        for source in DType
        for target in DType
        if target.bits == 16 or target is DType.BOOL or (source.bits == 16 and target.is_float)
    ]
    text = (
        "machine @one { level l[1] { port = 1 GB/s, latency = 1 us } }\nmesh @m on @one { x = 1 }\n"
    )
    for index, (operand, source, target) in enumerate(cases):
        text += (
            f"func @f{index}(%x: {source}[{operand.size}]) -> {target}[{operand.size}] on @m {{\n"
        )
        text += f"  %r = cast %x to {target}\n  return %r\n}}\n"
    module = collir.parse(text)
    arguments: list[list[Buffers]] = [[[operand]] for operand, _, _ in cases]
    outputs = results_on_fake(module, functions_of(module), arguments, tmp_path)
    for (operand, source, target), results in zip(cases, outputs, strict=True):
        result = results[0][0]
        assert result is not None
        with np.errstate(all="ignore"):
            right = operand.astype(NUMPY[target])
            same = (result.view(f"u{right.itemsize}") == right.view(f"u{right.itemsize}")) | (
                np.isnan(result) & np.isnan(right)
            )
        assert same.all(), f"{source} to {target}: {operand[~same][:5]}"


# --- the fake itself ----------------------------------------------------------------------------

PERMUTE = """
machine @two { level a[2] { port = 1 GB/s, latency = 1 us }
               level b[2] { port = 1 GB/s, latency = 1 us } }
mesh @m on @two { x = a:2 * b:2 }
func @f(%x: f32[4@x], %y: f32[8] partial(sum: x)) -> (f32[4@(x.b, x.a)], f32[8]) on @m {
  %r = permute %x to f32[4@(x.b, x.a)]
  %t = reduce_scatter %y over x.b dim 0
  %u = all_reduce %t over x.a
  %s = all_gather %u over x.b dim 0
  return %r, %s
}
"""

MISTAKES = {
    "sends out of a group": (
        "ncclResult_t err = ncclGroupStart(), end;",
        "ncclResult_t err = ncclSuccess, end = ncclSuccess;",
        "timed out",
    ),
    "memory that is too small": (
        "TRY(held.allocate(128));",
        "TRY(held.allocate(64));",
        "device memory",
    ),
    "memory that is released": (
        "TRY(ncclAllReduce(t,",
        "cudaFreeAsync(memory, stream); TRY(ncclAllReduce(t,",
        "memory",
    ),
    "another count": ("ncclAllReduce(t, u, 4", "ncclAllReduce(t, u, 4 - mesh->x_a", "different"),
    "an operand on itself": ("ncclAllReduce(t, u,", "ncclAllReduce(t, t,", "operands overlap"),
    "a communicator that is left": ("if (mesh->over_x_a &&", "if (0 &&", "communicators left"),
}


def test_every_mistake_changes_the_code() -> None:
    module = collir.parse(PERMUTE)
    code = harness(module, functions_of(module), "nccl")
    assert not [name for name, (before, _, _) in MISTAKES.items() if before not in code]


@pytest.mark.turns
@pytest.mark.parametrize("mistake", some(list(MISTAKES), 3))
def test_the_fake_finds_misuse(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, says = MISTAKES[mistake]
    module = collir.parse(PERMUTE)
    functions = functions_of(module)
    code = harness(module, functions, "nccl")
    assert before in code
    if says == "timed out":  # no call of the pair is left: the sends between them are no group
        code = code.replace("end = ncclGroupEnd();", "")
    program = compile_with_fake(code.replace(before, after), tmp_path, STRICT[:0])
    for rank in range(4):
        with (tmp_path / f"{rank}.in").open("wb") as file:
            for buffers in arguments_of(functions[0]):
                if (buffer := buffers[rank]) is not None:
                    file.write(buffer.tobytes())
    if says == "timed out":
        with pytest.raises(subprocess.TimeoutExpired):
            mpiexec(4, [program, str(tmp_path)], 5)
        return
    misuse = tmp_path / "misuse"
    monkeypatch.setenv("FAKE_NCCL_MISUSE", str(misuse))
    with pytest.raises(RuntimeError):
        mpiexec(4, [program, str(tmp_path)], HANG)
    assert says in misuse.read_text(encoding="utf-8")
