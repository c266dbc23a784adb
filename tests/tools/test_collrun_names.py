"""The arrays of collrun: each belongs to one argument or one result, before and after passes."""

from pathlib import Path

import numpy as np
import pytest

from collir.tools import collrun

HEAD = """
machine @box { level node[2] { port = 25 GB/s, latency = 5 us } }
mesh @m on @box { pipe = node:2 }
"""

STAGED = f"""{HEAD}
func @loss(batch = 4, layers = 4)(%x: f32[batch, 3], %w: f32[layers, 3]) -> f32[] on @m auto {{
  %y = repeat layers carry(%h = %x) slice(%w = %w) {{
    %z = mul %h, %w
    yield %z
  }}
  %l = sum %y dims [0, 1]
  return %l
}}

func @step(batch = 4, layers = 4)(%x: f32[batch, 3], %w: f32[layers, 3] parameter)
    -> (f32[], f32[layers, 3] parameter) on @m auto {{
  %l, %d = gradient @loss(batch = batch, layers = layers)(%x, %w) wrt %w
  %new = sub %w, %d
  return %l, %new
}}
"""


def run(tmp_path: Path, text: str, *words: str) -> int:
    """Return the exit status of collrun on a program."""
    (tmp_path / "program.coll").write_text(text)
    return collrun.main([str(tmp_path / "program.coll"), *words])


def saved(path: Path, array: object) -> str:
    """Save an array of f32, and return the path."""
    np.save(path, np.asarray(array, np.float32))
    return str(path)


@pytest.mark.parametrize("schedule", ["interleaved", "zb-v"])
def test_each_row_of_a_stack_has_an_array(schedule: str, tmp_path: Path) -> None:
    """Chunks 0 and 1 of four layers are at the two places in one row, 2 and 3 in the other."""
    layers = np.array([[2, 3, 5], [7, 11, 13], [17, 19, 23], [29, 31, 37]], np.float32)
    x = np.ones((4, 3), np.float32)
    rows = [0, 1, 2, 3] if schedule == "interleaved" else [0, 1, 3, 2]
    words = ["--function", "step", "--output", str(tmp_path / "out")]
    files = {"x": x, "w": layers[rows[:2]], "w_1": layers[rows[2:]]}
    for name, array in files.items():
        words += ["--input", f"{name}={saved(tmp_path / f'{name}.npy', array)}"]
    passes = f"pipeline{{schedule={schedule} microbatches=2}}"
    assert run(tmp_path, STAGED, "-p", passes, *words) == 0
    found = {path.stem: np.load(path) for path in (tmp_path / "out").iterdir()}
    assert found.keys() == {"step.l", "step.new", "step.new_1"}
    gradient = 4 * np.prod(layers, axis=0) / layers
    new = (layers - gradient)[rows]
    np.testing.assert_allclose(found["step.l"], 4 * np.prod(layers, axis=0).sum(), rtol=1e-6)
    np.testing.assert_allclose(found["step.new"], new[:2], rtol=1e-6)
    np.testing.assert_allclose(found["step.new_1"], new[2:], rtol=1e-6)


ENDS = """
machine @box {
  device { compute f32 = 19.5 TFLOP/s; memory = 40 GB @ 1555 GB/s }
  level node[2] { port = 25 GB/s, latency = 5 us }
  level gpu[2] { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = node:2 * gpu:2 }
func @f(%g_1: f32[64] partial(avg: data), %g_2: f32[64]) -> (f32[64@data], f32[64], f32[64]) on @m {
  %s = all_reduce %g_1 over data
  %h = scale %s by 0.5
  %k = slice %h over data dim 0
  %j = slice %g_2 over data dim 0
  %r = sub %k, %j
  %r_1 = scale %g_2 by 1
  %t = scale %g_2 by 3
  return %r, %r_1, %t
}
"""


@pytest.mark.parametrize("passes", ["", "default", "canonicalize,cse", "decompose"])
def test_names_with_numbers_are_names(passes: str, tmp_path: Path) -> None:
    one, two = 4 * np.arange(64.0), np.full(64, 7.0)
    words = ["--output", str(tmp_path / "out"), "-p", passes]
    words += ["--input", f"g_1={saved(tmp_path / 'a.npy', one)}"]
    words += ["--input", f"%g_2={saved(tmp_path / 'b.npy', two)}"]
    assert run(tmp_path, ENDS, *words) == 0
    found = {path.stem: np.load(path) for path in (tmp_path / "out").iterdir()}
    assert found.keys() == {"f.r", "f.r_1", "f.t"}
    np.testing.assert_allclose(found["f.r"], one / 2 - two)
    np.testing.assert_array_equal(found["f.r_1"], two)
    np.testing.assert_array_equal(found["f.t"], 3 * two)


def test_one_value_twice_is_two_results(tmp_path: Path) -> None:
    text = f"{HEAD}func @f(%x: f32[4]) -> (f32[4], %y: f32[4], f32[4]) on @m {{\n"
    text += "  %r = scale %x by 2\n  return %r, %r, %x\n}\n"
    assert run(tmp_path, text, "--output", str(tmp_path / "out")) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"f.r.npy", "f.y.npy", "f.x.npy"}
