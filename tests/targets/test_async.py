"""``async`` collectives have the same values, on real MPI ranks and over the fake of NCCL.

Races seldom show in values. So the emitted text is also checked (``async_code``): no buffer is used
before it is written, or freed while it is sent.
"""

import itertools
import random
import re
import subprocess
import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.harness.hanging import HANG
from support.harness.seeds import fresh, some
from support.programs.collectives import (
    RANDOM,
    module_of,
    random_function,
    random_mesh,
    random_module,
)
from support.programs.one_step import KINDS, collectives, collectives_everywhere, meshes_of
from support.semantics.checks import agree, functions_of, results_on_all_devices
from support.targets import on_fake_nccl, on_ranks
from support.targets.async_code import able, hazards, make_async, marked
from support.targets.on_ranks import FLAGS, arguments_of, same
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.printer import Printer

import collir
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.ir.diagnostics import Sources
from collir.ir.verification import verify
from collir.semantics.reference.executor import execute
from collir.syntax.mlir import read_mlir
from collir.syntax.reader import read
from collir.syntax.writer import settle_names, write
from collir.targets.code.mpi_harness import emit_harness
from collir.tools.api import context, run_passes
from collir.tools.mpi_run import compile_c, mpiexec

SYMMETRIC = "nccl{symmetric=true}"
FAKES = ("nccl", SYMMETRIC)


def wrong(module: ModuleOp, functions: Sequence[FuncOp], target: str, folder: Path) -> list[str]:
    """Return the differences between the results of ranks and of the numpy executor."""
    if target == "mpi":
        return on_ranks.differences(module, functions, folder)
    return on_fake_nccl.differences(module, functions, folder, target)


# --- one collective -----------------------------------------------------------------------------


def every_collective(ranks: int) -> ModuleOp:
    """Return every collective that may be async, on every dtype, with every reduction."""
    functions = list(collectives(ranks))
    count = make_async(functions)
    permutes = sum(kind.op is OPERATIONS["permute"] for kind in KINDS)
    assert count == len(KINDS) - permutes
    return module_of(meshes_of(ranks), functions)


@pytest.mark.turns
@pytest.mark.parametrize("ranks", some([4, 6], 1))
def test_every_collective_on_ranks(ranks: int, tmp_path: Path) -> None:
    module = every_collective(ranks)
    assert wrong(module, functions_of(module), "mpi", tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "target"), [(6, "nccl"), (4, SYMMETRIC)])
def test_every_collective_on_the_fake(ranks: int, target: str, tmp_path: Path) -> None:
    module = every_collective(ranks)
    assert hazards(module) == []
    assert wrong(module, functions_of(module), target, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["mpi", *FAKES])
@pytest.mark.parametrize("ranks", range(2, 17))
def test_every_number_of_ranks(ranks: int, target: str, tmp_path: Path) -> None:
    functions = list(collectives_everywhere(ranks, at_most=300))
    make_async(functions)
    module = module_of(meshes_of(ranks), functions)
    assert target == "mpi" or hazards(module) == []
    assert wrong(module, functions, target, tmp_path) == []


# --- random programs ----------------------------------------------------------------------------


def random_programs(ranks: int, seed: int, count: int, nested: bool = False) -> ModuleOp:
    """Return random functions on a few meshes of ``ranks`` ranks, with async collectives."""
    rng = fresh(seed)
    meshes = [random_mesh(rng, ranks, f"m{index}", weights=0.3) for index in range(4)]
    functions = [
        random_function(rng, rng.choice(meshes), rng.randint(2, 10), f"f{index}", nested=nested)
        for index in range(count)
    ]
    for function in functions:
        make_async([function], rng, rng.choice([0.4, 0.7, 1.0]))
    return module_of(meshes, functions)


@pytest.mark.turns
@pytest.mark.parametrize(
    ("ranks", "seed", "target"),
    [
        *some([(4, 0, "mpi"), (8, 1, "mpi"), (6, 3, "nccl")], 1),
        pytest.param(8, 4, SYMMETRIC, marks=pytest.mark.slow),
    ],
)
def test_random_programs(ranks: int, seed: int, target: str, tmp_path: Path) -> None:
    module = random_programs(ranks, seed, 20)
    assert marked(module) > 15
    assert target == "mpi" or hazards(module) == []
    assert wrong(module, functions_of(module), target, tmp_path) == []


@pytest.mark.turns
@pytest.mark.parametrize("target", some(["mpi", "nccl"], 1))
def test_async_steps_in_loops(target: str, tmp_path: Path) -> None:
    """Steps under way are waited for at the end of an iteration, and before a loop."""
    module = random_programs(4, 5, 12, nested=True)
    assert wrong(module, functions_of(module), target, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["mpi", *FAKES])
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 6, 8, 9, 12, 15, 16])
def test_many_random_programs(ranks: int, target: str, tmp_path: Path) -> None:
    module = random_programs(ranks, 300 + ranks, 150)
    assert target == "mpi" or hazards(module) == []
    assert wrong(module, functions_of(module), target, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["mpi", *FAKES])
def test_no_memory_is_misused(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # MPI's own
    flags = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    module = random_programs(6, 7, 60)
    functions = functions_of(module)
    if target == "mpi":
        assert on_ranks.differences(module, functions, tmp_path, (*FLAGS, *flags)) == []
    else:
        assert on_fake_nccl.differences(module, functions, tmp_path, target, flags) == []


def assert_waits(rng: random.Random) -> None:
    module = random_module(rng, functions=3, steps=rng.randint(2, 10), nested=False)
    functions = functions_of(module)
    make_async(functions, rng, rng.choice([0.4, 0.7, 1.0]))
    assert hazards(module) == [], write(module)


@given(rng=RANDOM)
@settings(max_examples=10)
def test_code_waits_for_what_it_uses(rng: random.Random) -> None:
    """No buffer is touched while a collective writes it, or freed while one reads it."""
    assert_waits(rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_more_code_waits_for_what_it_uses(seed: int) -> None:
    rng = fresh(seed)
    for _ in range(1000):
        assert_waits(rng)


# --- mistakes -----------------------------------------------------------------------------------


APART = """
machine @four { level a[2] { port = 1 GB/s, latency = 1 us }
                level b[2] { port = 1 GB/s, latency = 1 us } }
mesh @m on @four { x = a:2 * b:2 }
func @f(%x: f32[65536] partial(sum: x), %z: f32[65536@x.a] partial(sum: x.b))
    -> (f32[65536], f32[65536], f32[65536@x.a]) on @m {
  %0 = scale %x by 2
  %1 = reduce_scatter %0 over x.b dim 0 async
  %2 = all_reduce %z over x.b async
  %3 = all_reduce %0 over x async
  %4 = all_reduce %1 over x.a async
  %5 = scale %2 by 7
  %6 = scale %4 by 3
  %7 = all_gather %6 over x.b dim 0 async
  %8 = scale %3 by 5
  return %7, %8, %5
}
"""
"""A program in which each collective has work beside it."""

WAITS = {"mpi": "TRY(MPI_Wait", "nccl": "TRY_CUDA(cudaStreamWaitEvent"}


def with_drops(code: str, line: str) -> str:
    """Return code that leaves out its n-th line of a kind if the environment has DROP = n."""
    numbers = itertools.count()
    changed = re.sub(
        rf"^( +)({re.escape(line)}.*;)$",
        lambda match: f"{match[1]}if (dropped() != {next(numbers)}) {match[2]}",
        code,
        flags=re.MULTILINE,
    )
    header = "#include <stdlib.h>\nstatic inline int dropped(void)\n{\n"
    header += '  const char *text = getenv("DROP");\n  return text ? atoi(text) : -1;\n}\n'
    return header + changed


def eager(code: str) -> str:
    """Return code whose collectives run as soon as they may, where the fake would let them wait."""
    record = r"(cudaEventRecord\(\S+, (mesh_\w+\.streams\[\d+\])\)\);)"
    return re.sub(record, r"\1 TRY_CUDA(cudaStreamSynchronize(\2));", code)


def compiled(code: str, target: str, folder: Path) -> str:
    if target != "mpi":
        return on_fake_nccl.compile_with_fake(code, folder, ())
    (folder / "program.c").write_text(code, encoding="utf-8")
    compile_c(folder / "program.c", folder / "program", FLAGS)
    return str(folder / "program")


def is_right(program: str, module: ModuleOp, folder: Path, seconds: float = HANG) -> bool:
    """Return whether a program of one function ends in time with the right results on all ranks."""
    [function] = functions_of(module)
    arguments = arguments_of(function)
    ranks = mesh_of(function).devices
    for rank in range(ranks):
        held = [buffer for buffers in arguments if (buffer := buffers[rank]) is not None]
        (folder / f"{rank}.in").write_bytes(b"".join(buffer.tobytes() for buffer in held))
    try:
        mpiexec(ranks, [program, str(folder), "1"], seconds)
    except (RuntimeError, subprocess.TimeoutExpired):
        return False
    expected = execute(module, function, arguments)
    for rank in range(ranks):
        held = [buffer for buffers in expected if (buffer := buffers[rank]) is not None]
        right = b"".join(buffer.tobytes() for buffer in held)
        if (folder / f"{rank}.out").read_bytes() != right:
            return False
    return True


def unnoticed(
    code: str, target: str, folder: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> set[int]:
    """Return the waits without which the program still has the right results."""
    module = collir.parse(APART)
    folder.mkdir()
    program = compiled(with_drops(code, WAITS[target[:4].strip("{")]), target, folder)
    start = time.perf_counter()
    assert is_right(program, module, folder)
    seconds = max(4.0, 15 * (time.perf_counter() - start))  # some mistakes hang
    numbers: set[int] = set()
    for number in range(count):
        monkeypatch.setenv("DROP", str(number))
        if is_right(program, module, folder, seconds):
            numbers.add(number)
        monkeypatch.delenv("DROP")
    return numbers


@pytest.mark.turns
def test_a_missing_wait_is_found_on_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every missing wait shows in the values, but for the last, behind which nothing follows."""
    module = collir.parse(APART)
    code = emit_harness(module, functions_of(module))
    count = collir.emit(module, "mpi").count(WAITS["mpi"])
    assert count == 5
    assert unnoticed(code, "mpi", tmp_path / "mpi", monkeypatch, count) <= {count - 1}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["nccl", SYMMETRIC])
def test_a_missing_wait_is_found_on_the_fake(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work of other streams runs late, or as soon as it may: every wait is needed in one
    of the two."""
    module = collir.parse(APART)
    code = on_fake_nccl.harness(module, functions_of(module), target)
    count = collir.emit(module, target).count(WAITS["nccl"])
    assert count >= 8
    late = unnoticed(code, target, tmp_path / "late", monkeypatch, count)
    early = unnoticed(eager(code), target, tmp_path / "eager", monkeypatch, count)
    assert late & early == set()


@pytest.mark.slow
@pytest.mark.parametrize("target", FAKES)
@pytest.mark.parametrize("ranks", [4, 6, 8, 12])
def test_streams_that_run_as_soon_as_they_may(
    ranks: int, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = on_fake_nccl.without_launches

    def changed(code: str) -> str:
        return eager(launches(code))

    monkeypatch.setattr(on_fake_nccl, "without_launches", changed)
    module = random_programs(ranks, 200 + ranks, 100)
    assert wrong(module, functions_of(module), target, tmp_path) == []


# --- as text, and through passes ----------------------------------------------------------------


def assert_round_trips(module: ModuleOp) -> None:
    text = write(module)
    assert len(re.findall(r" async( ahead)?\n", text)) == marked(module)
    reread = read(text)
    assert reread.is_structurally_equivalent(module)
    assert write(reread) == text
    settle_names(module)
    for generic in (False, True):
        output = StringIO()
        Printer(output, print_generic_format=generic).print_op(module)
        parsed = read_mlir(context(), output.getvalue(), "<mlir>", Sources())
        verify(parsed)
        assert parsed.is_structurally_equivalent(module)
        assert write(parsed) == text


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=8)
def test_nothing_is_lost_in_text(rng: random.Random) -> None:
    module = random_module(rng, functions=3, steps=rng.randint(1, 8))
    make_async(functions_of(module), rng, 0.6)
    assert_round_trips(module)


ALGORITHM = """\
machine @two {
  level a[2] { port = 1 GB/s, latency = 1 us }
}
mesh @m on @two { x = a:2 }
func @f(%x: f32[4] partial(sum: x)) -> (f32[4], f32[4@x]) on @m {
  %0 = all_reduce %x over x using ring async
  %1 = reduce_scatter %x over x dim 0 using ring async
  return %0, %1
}
"""


def test_it_is_written_behind_the_algorithm() -> None:
    module = read(ALGORITHM)
    assert marked(module) == 2
    assert_round_trips(module)


@pytest.mark.parametrize("passes", some(["canonicalize", "cse", "dce", "canonicalize,cse,dce"], 2))
@given(rng=RANDOM)
@settings(max_examples=8)
def test_passes_keep_it(passes: str, rng: random.Random) -> None:
    """The collectives that remain are still async, and the program keeps its meaning."""
    module = random_module(rng, functions=2, steps=6)
    make_async(functions_of(module))
    after = run_passes(module.clone(), passes)
    verify(after)
    assert marked(after) == sum(len(able(function)) for function in functions_of(after))
    for old, new in zip(functions_of(module), functions_of(after), strict=True):
        results = results_on_all_devices(after, new, seed=5)
        assert agree(results, results_on_all_devices(module, old, seed=5), mesh_of(old).devices)


SAME = """\
machine @two { level a[2] { port = 1 GB/s, latency = 1 us } }
mesh @m on @two { x = a:2 }
func @f(%x: f32[4] partial(sum: x)) -> (f32[4], f32[4], f32[4], f32[4]) on @m {
  %0 = all_reduce %x over x async
  %1 = all_reduce %x over x async
  %2 = all_reduce %x over x
  %3 = all_reduce %x over x
  return %0, %1, %2, %3
}
"""


def test_equal_ones_become_one_and_others_do_not() -> None:
    [function] = functions_of(run_passes(read(SAME), "cse"))
    assert [("async" in op.properties) for op in able(function)] == [True, False]


@given(rng=RANDOM)
@settings(max_examples=8)
def test_the_meaning_is_that_of_the_program_without(rng: random.Random) -> None:
    module = random_module(rng, functions=2, steps=6)
    changed = module.clone()
    make_async(functions_of(changed), rng, 0.7)
    for old, new in zip(functions_of(module), functions_of(changed), strict=True):
        arguments = arguments_of(old)
        results, expected = execute(changed, new, arguments), execute(module, old, arguments)
        for buffers, right in zip(results, expected, strict=True):
            assert all(same(a, b) for a, b in zip(buffers, right, strict=True))
