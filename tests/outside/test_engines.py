"""Cases in which what runs a program tends to do something else than the language says."""

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.targets.python_ranks import results_on_ranks

import collir
from collir.ir.functions import functions_of
from collir.semantics.reference.executor import execute
from collir.tools import jax_run, mpi_run

COUNT = 3000
TEXT = """
machine @box { level gpu[1] { port = 1 GB/s, latency = 1 us } }
mesh @m on @box { data = 1 }
func @added(%x: bf16[3000], %i: i32[3000]) -> (bf16[], bf16[], bf16[3000], bf16[2]) on @m {
  %a = sum %x dims [0]
  %b = einsum "a -> " %x
  %c = cumsum %x dim 0
  %d = take_transpose %x, %i dim 0 to bf16[2]
  return %a, %b, %c, %d
}
func @positions(%x: f32[5]) -> (i32[5], i32[]) on @m {
  %i = top_k_indices %x k 5 dim 0
  %j = argmax %x dim 0
  return %i, %j
}
func @small(%x: f16[2]) -> (f16[2], f16[]) on @m {
  %g = gelu %x
  %label = constant value 0 to i32[]
  %l = cross_entropy %x, %label dim 0
  return %g, %l
}
func @largest(%x: bf16[3000]) -> bf16[] on @m {
  %r = max %x dims [0]
  return %r
}
func @shared(%x: bf16[3000]) -> (bf16[], bf16[3000]) on @m {
  %l, %d = gradient @largest(%x) wrt %x
  return %l, %d
}
"""


def _run(engine: str, module: Any, functions: Any, inputs: Any, folder: Path) -> Any:
    if engine == "executor":
        return [execute(module, f, x) for f, x in zip(functions, inputs, strict=True)]
    calls = list(zip(functions, inputs, strict=True))
    if engine == "jax":
        return [results for results, _ in jax_run.run(module, calls, folder)]
    if engine == "mpi":
        return [results for results, _ in mpi_run.run(module, calls, folder, ("-O0",))]
    return results_on_ranks(engine, module, functions, folder, inputs=inputs)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "engine",
    [
        "executor",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("jax", "mpi", "mpi4py", "torch")),
    ],
)
def test_what_engines_differ_in(engine: str, tmp_path: Path) -> None:
    """In bf16, 256 and 1 are 256: a sum in bf16 would end there. 0 and -0 are equal. What is
    nearly 0 is not the difference of rounded numbers."""
    module = collir.parse(TEXT)
    functions = [f for f in functions_of(module) if f.sym_name.data != "largest"]
    ones, at = np.ones(COUNT, ml_dtypes.bfloat16), np.ones(COUNT, np.int32)
    zeros, few = np.array([-0.0, 0, -1, 0, -0.0], np.float32), np.array([4.5, -3.75], np.float16)
    inputs = [[[ones], [at]], [[zeros]], [[few]], [[ones]]]
    added, positions, small, shared = _run(engine, module, functions, inputs, tmp_path)
    total = float(ml_dtypes.bfloat16(COUNT))
    assert [float(np.asarray(added[n][0]).flat[-1]) for n in range(4)] == [total] * 4
    assert np.all(shared[1][0] == ml_dtypes.bfloat16(1 / total))
    assert positions[0][0].tolist() == [0, 1, 3, 4, 2] and positions[1][0] == 0
    inner = math.sqrt(2 / math.pi) * (-3.75 - 0.044715 * 3.75**3)
    assert small[0][0][1] == pytest.approx(-3.75 / 2 * (1 + math.tanh(inner)), rel=2e-3)
    assert small[1][0] == pytest.approx(math.log1p(math.exp(-8.25)), rel=2e-3)


def test_an_infinite_gradient_stays_at_the_largest_element() -> None:
    text = (
        TEXT[: TEXT.index("func")]
        + """
    func @pooled(%g: f32[1, 2, 1], %x: f32[1, 4, 1]) -> f32[1, 4, 1] on @m {
      %d = max_pool_transpose %g, %x window [2] stride [2] padding [0]
      return %d
    }
    """
    )
    module = collir.parse(text)
    g = np.array([np.inf, 2], np.float32).reshape(1, 2, 1)
    x = np.array([1, 3, 4, 3], np.float32).reshape(1, 4, 1)
    [[found]] = execute(module, functions_of(module)[0], [[g], [x]])
    assert found is not None and found.ravel().tolist() == [0, np.inf, 2, 0]


@pytest.mark.parametrize(("name", "x", "slope"), [("silu", 300.0, 1.0), ("sigmoid", 6.0, 0.003891)])
def test_slopes_in_bf16(name: str, x: float, slope: float) -> None:
    """In bf16 a difference of large numbers would be 0 or 2, or off by a half; the sigmoid of 6 is
    1 - 2^-8 there."""
    text = (
        TEXT[: TEXT.index("func")]
        + f"""
    func @loss(%x: bf16[], %c: bf16[]) -> bf16[] on @m {{
      %y = {name} %x
      %l = mul %y, %c
      return %l
    }}
    func @step(%x: bf16[], %c: bf16[]) -> bf16[] on @m {{
      %l, %d = gradient @loss(%x, %c) wrt %x
      return %d
    }}
    """
    )
    module = collir.parse(text)
    inputs: list[Any] = [[np.array(n, ml_dtypes.bfloat16)] for n in (x, 1.37)]
    [[found]] = execute(module, functions_of(module)[1], inputs)
    assert found is not None
    assert float(found) == pytest.approx(1.37 * slope, rel=0.01)
