"""Tests of the generated programs in examples/models/: published sizes, times under pipelines,
results on ranks."""

import math
import re
import runpy
import sys
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import pytest
from seeds import chosen
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.ir.sizes import dimensions, resize
from collir.semantics.validation.validate import Outcome, compare_modules
from collir.syntax.writer import write
from collir.tools import collrun, mpi_run
from collir.tools.api import parse

FOLDER = Path(__file__).parents[2] / "examples" / "models"
PIPELINES = {
    "gpt2_xl": "ddp",
    "megatron": "default",
    "moe": "default",
    "zero1": "zero",
    "zero2": "zero",
    "zero3": "zero",
}
"""Program -> the pipeline for it."""

MODELS = {name: FOLDER / f"{name}.coll" for name in PIPELINES}

SMALL_MACHINE = """\
machine @cluster {
  device { compute bf16 = 312 TFLOP/s, f32 = 19.5 TFLOP/s; memory = 40 GB @ 1.555 TB/s }
  level node[2] { port =   8 GB/s, latency = 20 us }
  level gpu[4]  { port = 270 GB/s, latency =  3 us }
}"""

SMALL_MESHES = {
    "moe": "data = gpu:2, expert = node:2 * gpu:2",
    "megatron": "data = node:2, model = gpu:4",
}
"""Meshes of 8 devices for the programs that have more axes than one."""


QUICK = ("megatron", "moe", "zero3")
"""The programs that passes take seconds for."""


def programs(*fast: str) -> list[object]:
    """Return all programs as parameters; those that are not named are slow."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]


@cache
def text_of(name: str) -> str:
    """Return the text of a program."""
    return MODELS[name].read_text(encoding="utf-8")


def smaller(size: int) -> int:
    """Return about a 32nd of a size, divided by the same powers of 2 up to 8."""
    return 8 * max(1, size // 8 // 32) + size % 8 if size >= 8 else size


def on_8_devices(name: str) -> ModuleOp:
    """Return a program on a smaller machine, with smaller sizes."""
    mesh = SMALL_MESHES.get(name, "data = node:2 * gpu:4")
    text = text_of(name)
    for line, replacement in (
        ("machine", SMALL_MACHINE),
        ("mesh", f"mesh @m on @cluster {{ {mesh} }}"),
    ):
        text, replaced = re.subn(rf"^{line} @.*$", replacement, text, flags=re.MULTILINE)
        assert replaced == 1
    module = parse(text, f"{name}.coll")
    resize(module, {size: smaller(size) for size in dimensions(module)})
    return module


def test_they_are_what_the_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["generate.py", str(tmp_path)])
    runpy.run_path(str(FOLDER / "generate.py"), run_name="__main__")
    assert {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == {
        name: text_of(name) for name in MODELS
    }


@pytest.mark.parametrize(
    ("name", "tensors", "numbers"),
    [
        ("gpt2_xl", 48 * 5 + 3, 1_557_611_200),
        ("zero1", 12 * 5 + 3, 124_439_808),
        ("zero2", 12 * 5 + 3, 124_439_808),
        ("zero3", 12 * 5 + 3, 124_439_808),
    ],
)
def test_parameters_are_as_many_as_published(name: str, tensors: int, numbers: int) -> None:
    """For ZeRO the shards are counted: gradients exist once for each microbatch."""
    [function] = functions_of(parse(text_of(name)))
    types = [dist_type(x) for x in function.args if x.name_hint != "x"]
    counted = [x for x in types if bool(x.partial) != name.startswith("zero")]
    assert len(counted) == tensors
    assert sum(math.prod(x.shape) for x in counted) == numbers


@pytest.mark.parametrize("name", programs(*chosen(QUICK, 1, "slower")))
def test_no_pass_makes_them_slower(name: str) -> None:
    """Programs keep their true sizes; the printed programs read back."""
    module = parse(text_of(name))
    costs = collir.pass_costs(module, PIPELINES[name])
    for done, saved, before in costs.saved:
        assert saved >= -1e-9 * before, done
    printed = write(module)
    assert write(parse(printed)) == printed


@pytest.mark.parametrize("name", programs(*chosen(QUICK, 1, "meaning")))
def test_pipelines_keep_what_they_compute(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The programs run on 8 devices in numpy, and are compared with a run on a single device."""
    path = tmp_path / f"{name}.coll"
    path.write_text(write(on_8_devices(name)), encoding="utf-8")
    status = collrun.main(["-p", PIPELINES[name], str(path)])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err


@pytest.mark.parametrize("name", programs("moe"))
def test_they_run_on_ranks(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The programs run on 8 MPI ranks, and every rank's buffers are compared with numpy's."""
    # Compilers take a minute to optimise functions that are as long as these.
    monkeypatch.setattr(mpi_run, "run", partial(mpi_run.run, flags=("-O0",)))
    path = tmp_path / f"{name}.coll"
    path.write_text(write(on_8_devices(name)), encoding="utf-8")
    status = collrun.main(["--engine", "mpi", "-n", "8", "-p", PIPELINES[name], str(path)])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err
    assert "every rank's buffers are equal" in printed.out


# --- how other systems issue them -----------------------------------------------------------------

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "passes.py"))


@pytest.mark.parametrize(
    ("name", "packing"),
    [
        ("megatron", "Alone"),
        ("moe", "XLA"),
        ("zero3", "XLA"),
    ],
)
def test_baselines_compute_the_same(name: str, packing: str) -> None:
    module = BENCHMARK["baseline"](MODELS[name], BENCHMARK[packing]())
    for comparison in compare_modules(parse(MODELS[name]), module):
        assert (comparison.verdict.outcome, comparison.verdict.how) == (Outcome.SAME, "proof")


def buffers(name: str, packing: str, kind: type[DistOp]) -> list[list[int]]:
    """Return the bytes of the tensors in each buffer, in the order in which they are issued."""
    module = BENCHMARK["baseline"](MODELS[name], BENCHMARK[packing]())
    [function] = functions_of(module)
    sizes: list[list[int]] = []
    for op in function.body.ops:
        if isinstance(op, kind):
            assert "async" in op.properties
            owner = op.operands[0].owner
            tensors = owner.operands if isinstance(owner, OPERATIONS["concat"]) else op.operands
            sizes.append([dist_type(tensor).local_bytes(mesh_of(op)) for tensor in tensors])
    return sizes


def test_xla_packs_until_a_limit_would_be_exceeded() -> None:
    buckets = buffers("gpt2_xl", "XLA", OPERATIONS["all_reduce"])
    assert sum(map(sum, buckets)) == 2 * 1_557_611_200
    assert all(sum(bucket) <= 30 * 2**20 + 7 or len(bucket) == 1 for bucket in buckets)
    for bucket, following in pairwise(buckets):
        assert sum(bucket) + following[0] > 30 * 2**20 + 7


@pytest.mark.parametrize("name", programs("moe"))
def test_pipelines_are_as_fast_as_other_systems(name: str) -> None:
    for function, (*baselines, ours) in BENCHMARK["rows_of"](name):
        assert ours <= min(baselines) * 1.001, function


@pytest.mark.slow
def test_the_page_has_what_the_benchmark_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["passes.py"])
    BENCHMARK["main"]()
    page = (FOLDER.parents[1] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out in page
