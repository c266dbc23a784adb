"""Tests of the generated programs in examples/models/: published sizes, times under pipelines,
results on ranks."""

import math
import re
import runpy
import sys
from functools import cache, partial
from pathlib import Path

import pytest
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
    "resnet50": "ddp",
}
"""Program -> the pipeline for it."""

MODELS = {name: FOLDER / f"{name}.coll" for name in PIPELINES}

SMALL_MACHINE = """\
machine @cluster {
  device { compute bf16 = 312 TFLOP/s, f32 = 19.5 TFLOP/s; memory = 40 GB @ 1.555 TB/s }
  level node[2] { port =   8 GB/s, latency = 20 us }
  level gpu[4]  { port = 270 GB/s, latency =  3 us }
}"""


@cache
def text_of(name: str) -> str:
    """Return the text of a program."""
    return MODELS[name].read_text(encoding="utf-8")


def smaller(size: int) -> int:
    """Return about a 32nd of a size, divided by the same powers of 2 up to 8."""
    return 8 * max(1, size // 8 // 32) + size % 8 if size >= 8 else size


def on_8_devices(name: str) -> ModuleOp:
    """Return a program on a smaller machine, with smaller sizes."""
    text = text_of(name)
    for line, replacement in (
        ("machine", SMALL_MACHINE),
        ("mesh", "mesh @m on @cluster { data = node:2 * gpu:4 }"),
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
        ("resnet50", 161, 25_557_032),
    ],
)
def test_parameters_are_as_many_as_published(name: str, tensors: int, numbers: int) -> None:
    [function] = functions_of(parse(text_of(name)))
    counted = [x for x in map(dist_type, function.args) if x.partial]
    assert len(counted) == tensors
    assert sum(math.prod(x.shape) for x in counted) == numbers


def test_resnet50_computes_what_was_published() -> None:
    """torchvision: 4.089 billion multiplications and additions forwards, for an image."""
    forward, first = 4.089e9, 112**2 * 64 * 3 * 7 * 7
    flops = sum(map(int, re.findall(r" flops (\d+)", text_of("resnet50"))))
    # Twice that, of 2 operations each, but not for the input of the first layer.
    assert flops == pytest.approx(32 * 2 * (2 * forward - first), rel=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_no_pass_makes_them_slower(name: str) -> None:
    """Programs keep their true sizes; the printed programs read back."""
    module = parse(text_of(name))
    costs = collir.pass_costs(module, PIPELINES[name])
    for done, saved, before in costs.saved:
        assert saved >= -1e-9 * before, done
    printed = write(module)
    assert write(parse(printed)) == printed


@pytest.mark.parametrize("name", MODELS)
def test_pipelines_keep_what_they_compute(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The programs run on 8 devices in numpy, and are compared with a run on a single device."""
    path = tmp_path / f"{name}.coll"
    path.write_text(write(on_8_devices(name)), encoding="utf-8")
    status = collrun.main(["-p", PIPELINES[name], str(path)])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
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
    [("resnet50", "DDP")],
)
def test_baselines_compute_the_same(name: str, packing: str) -> None:
    module = BENCHMARK["baseline"](parse(MODELS[name]), BENCHMARK[packing]())
    for comparison in compare_modules(parse(MODELS[name]), module):
        assert (comparison.verdict.outcome, comparison.verdict.how) == (Outcome.SAME, "proof")


def buffers(name: str, packing: str, kind: type[DistOp]) -> list[list[int]]:
    """Return the bytes of the tensors in each buffer, in the order in which they are issued."""
    module = BENCHMARK["baseline"](parse(MODELS[name]), BENCHMARK[packing]())
    [function] = functions_of(module)
    sizes: list[list[int]] = []
    for op in function.body.ops:
        if isinstance(op, kind):
            assert "async" in op.properties
            owner = op.operands[0].owner
            tensors = owner.operands if isinstance(owner, OPERATIONS["concat"]) else op.operands
            sizes.append([dist_type(tensor).local_bytes(mesh_of(op)) for tensor in tensors])
    return sizes


def test_ddp_packs_until_a_limit_is_reached() -> None:
    buckets = buffers("resnet50", "DDP", OPERATIONS["all_reduce"])
    assert sum(map(sum, buckets)) == 4 * 25_557_032
    assert sum(map(len, buckets)) == 161
    for number, bucket in enumerate(buckets[:-1]):
        limit = (25 if number else 1) * 2**20
        assert sum(bucket) >= limit > sum(bucket[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_pipelines_are_as_fast_as_other_systems(name: str) -> None:
    for function, (*baselines, ours) in BENCHMARK["rows_of"](name):
        assert ours <= min(baselines) * 1.001, function
