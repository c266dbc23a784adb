"""Tests of the comparison with XLA's partitioner (benchmarks/models/against_xla.py)."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.programs.model_pages import function_of, inputs_of
from support.semantics.differentiated import on_one_device

import collir
from collir.semantics.reference.double import in_double
from collir.transforms.instantiation import instantiate

ROOT = Path(__file__).parents[2]
AGAINST_XLA = runpy.run_path(str(ROOT / "benchmarks" / "models" / "against_xla.py"))
HLO = runpy.run_path(str(ROOT / "benchmarks" / "models" / "xla" / "hlo.py"))
MESH = {"data": 2, "model": 4}

PROGRAM = """
HloModule jit_step

%sliced (param_0: f32[64,16], param_1: s32[]) -> f32[16,16] {
  %param_0 = f32[64,16]{1,0} parameter(0)
  %param_1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %cut = f32[16,16]{1,0} dynamic-slice(%param_0, %param_1, %zero), dynamic_slice_sizes={16,16}
}

%body (state: (s32[], f32[8,16])) -> (s32[], f32[8,16]) {
  %state = (s32[], f32[8,16]{1,0}) parameter(0)
  %n = s32[] get-tuple-element(%state), index=0
  %x = f32[8,16]{1,0} get-tuple-element(%state), index=1
  %y = f32[8,16]{1,0} all-reduce(%x), replica_groups=[2,4]<=[8], to_apply=%add
  ROOT %next = (s32[], f32[8,16]{1,0}) tuple(%n, %y)
}

ENTRY %main (a: f32[64,16], b: f32[16], c: s32[]) -> f32[16,16] {
  %a = f32[64,16]{1,0} parameter(0)
  %b = f32[16]{0} parameter(1)
  %c = s32[] parameter(2)
  %both = (f32[64,16]{1,0}, f32[16]{0}) all-reduce(%a, %b), replica_groups={{0,1,2,3},{4,5,6,7}}
  %first = f32[64,16]{1,0} get-tuple-element(%both), index=0
  %second = f32[16]{0} get-tuple-element(%both), index=1
  %own = f32[16,16]{1,0} fusion(%first, %c), kind=kLoop, calls=%sliced
  %wide = f32[32]{0} all-gather(%second), MESH, dimensions={0}
  %loop = (s32[], f32[8,16]{1,0}) while(%start), body=%body, "known_trip_count":{"n":"6"}
  ROOT %result = f32[16,16]{1,0} copy(%own)
}
""".replace("MESH", "replica_groups=mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)) {'y'}")
"""An all-reduce of two tensors, of which one is sliced, an all-gather over nodes, and a loop."""


def test_the_collectives_of_a_program_are_found() -> None:
    sent = [
        (x.kind, HLO["axes_of"](MESH, x.groups), x.size, x.times)
        for x in HLO["collectives"](PROGRAM)
    ]
    assert sent == [
        ("reduce_scatter", ("model",), 64 * 16 * 4, 1),
        ("all_reduce", ("model",), 16 * 4, 1),
        ("all_gather", ("data",), 32 * 4, 1),
        ("all_reduce", ("model",), 8 * 16 * 4, 6),
    ]


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}},", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("replica_groups=[4,2]<=[2,4]T(1,0),", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("replica_groups=[2,4]<=[8],", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("replica_groups=mesh['a'=2,'b'=4] {'b'},", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("replica_groups=mesh['a'=2,'b'=4] {'a','b'},", ((0, 1, 2, 3, 4, 5, 6, 7),)),
        ("source_target_pairs={{0,1},{1,0}}", ((0, 1), (1, 0))),
    ],
)
def test_groups_of_devices_are_read(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert HLO["_groups"](text) == groups


@pytest.mark.turns
def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "parallelism.md").read_text(encoding="utf-8")
    table = "\n".join(AGAINST_XLA["page_lines"]())
    assert table in page, "the table is old: python benchmarks/models/against_xla.py --page"


@pytest.mark.turns
def test_propagate_sends_no_more_than_xla() -> None:
    for name in AGAINST_XLA["STEPS"]:
        ours, _ = AGAINST_XLA["total"](AGAINST_XLA["ours"]()[name])
        for variant in AGAINST_XLA["VARIANTS"]:
            assert ours <= AGAINST_XLA["total"](AGAINST_XLA["of_xla"](variant, name))[0]


IN_JAX = """
import runpy, sys
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
path, name, folder = sys.argv[1:]
with np.load(folder + "/in.npz") as data:
    inputs = [data[f"arr_{n}"] for n in range(len(data.files))]
np.savez(folder + "/out.npz", *jax.jit(runpy.run_path(path)["STEPS"][name])(*inputs))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data_parallel", "zero_1", "microbatches", "words", "experts"])
def test_the_steps_in_jax_compute_the_same(name: str, tmp_path: Path) -> None:
    small = {"batch": 8, "seq": 4, "hidden": 16, "heads": 8, "layers": 2}
    page, more = AGAINST_XLA["PAGES"][0], {}
    if name in ("microbatches", "words", "experts"):
        page = AGAINST_XLA["PAGES"][1]
        more = {"count": 2, "vocab": 8, "groups": 8, "size": 4, "experts": 8, "places": 2}
    module = collir.parse(page)
    instantiate(module, {**small, **more})
    _, function = in_double(function_of(module, name))
    tensors = inputs_of(function, 8)
    tensors[-1] = np.array(0.1)
    np.savez(tmp_path / "in.npz", *tensors)
    steps = str(ROOT / "benchmarks" / "models" / "xla" / "steps.py")
    subprocess.run([sys.executable, "-c", IN_JAX, steps, name, str(tmp_path)], check=True)
    with np.load(tmp_path / "out.npz") as data:
        expected = [data[f"arr_{n}"] for n in range(len(data.files))]
    for x, y in zip(on_one_device(function, tensors), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-8)
