"""The functions that ship with collir, on weights of several ranks and layouts, against numpy."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.semantics.differentiated import on_all_devices, on_one_device, wrong_gradients

import collir
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.syntax.imports import LIBRARY, shipped_functions
from collir.syntax.parsing import parse
from collir.syntax.writer import write
from collir.tools import collopt
from collir.transforms.inlining import function_without_calls

Numbers = NDArray[np.float64]

MESH = """
machine @box {
  device { compute f32 = 19.5 TFLOP/s, bf16 = 312 TFLOP/s; memory = 40 GB @ 1555 GB/s }
  level gpu[8] { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = gpu:2, model = gpu:2, pipe = gpu:2 }
"""

LAYOUTS = ["", "16", "16@data", "4@model, 6", "4@(data, model), 3", "2, 4@data, 6@model"]
"""Shapes and layouts of weights."""

PLACED = "8@data, 4"
"""The layout of a weight that is held at one coordinate of `pipe`."""


def module_with(name: str, operands: Sequence[str], results: Sequence[str], given: str = "") -> Any:
    """Return a program with a function that calls one of the library."""
    arguments = ", ".join(f"%x{n}: {x}" for n, x in enumerate(operands))
    names = ", ".join(f"%x{n}" for n in range(len(operands)))
    made = ", ".join(f"%y{n}" for n in range(len(results)))
    return collir.parse(
        f"{MESH}\nfunc @{name} = @{name} on any\n"
        f"func @main({arguments}) -> ({', '.join(results)}) on @m {{\n"
        f"  {made} = call @{name}{given}({names})\n  return {made}\n}}\n"
    )


def run(module: Any, tensors: Sequence[Any]) -> list[Any]:
    """Return the results of the caller on all devices, which are those on one."""
    (caller,) = (f for f in functions_of(module) if f.sym_name.data == "main")
    values: list[Any] = []
    for tensor, arg in zip(tensors, caller.args, strict=True):
        name = str(dist_type(arg).dtype)
        assert name in ("f32", "bf16")
        values.append(np.asarray(tensor).astype(np.float32 if name == "f32" else BF16))
    results = on_all_devices(module, caller, values)
    alone = on_one_device(function_without_calls(caller), values)
    for a, b in zip(results, alone, strict=True):
        assert a.dtype == b.dtype
        tolerance = 1e-6 if a.dtype == np.float32 else 0.02
        assert np.allclose(a.astype(float), b.astype(float), rtol=tolerance, atol=tolerance)
    return results


BF16 = __import__("ml_dtypes").bfloat16


# --- optimisers: written from the papers, in f64 -------------------------------------------------


def sgd(w: Numbers, g: Numbers, rate: float) -> list[Numbers]:
    return [w - rate * g]


def momentum(w: Numbers, g: Numbers, m: Numbers, rate: float, mu: float = 0.9) -> list[Numbers]:
    velocity = mu * m + g
    return [w - rate * velocity, velocity]


def adam(
    w: Numbers,
    g: Numbers,
    m: Numbers,
    v: Numbers,
    rate: float,
    step: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    decay: float = 0.0,
) -> list[Numbers]:
    """Algorithm 2 of Loshchilov and Hutter with a schedule multiplier of 1 and decay times rate."""
    first = beta1 * m + (1 - beta1) * g
    second = beta2 * v + (1 - beta2) * g**2
    whole_first, whole_second = first / (1 - beta1**step), second / (1 - beta2**step)
    new = w - rate * (whole_first / (np.sqrt(whole_second) + epsilon) + decay * w)
    return [new, first, second]


def adamw(*operands: Any) -> list[Numbers]:
    return adam(*operands, *(0.9, 0.999, 1e-8, 0.01)[len(operands) - 6 :])


def mixed(*operands: Any) -> list[Numbers]:
    new, first, second = adamw(*operands)
    return [new, new, first, second]


OPTIMISERS: dict[str, tuple[Callable[..., list[Numbers]], str, list[float]]] = {
    "sgd": (sgd, "wg", [0.1]),
    "momentum": (momentum, "wgm", [0.1]),
    "momentum_with": (momentum, "wgm", [0.1, 0.8]),
    "adam": (adam, "wgmv", [0.01, 3]),
    "adam_with": (adam, "wgmv", [0.01, 1, 0.8, 0.95, 1e-6]),
    "adamw": (adamw, "wgmv", [0.01, 1]),
    "adamw_with": (adamw, "wgmv", [0.01, 20, 0.8, 0.95, 1e-6, 0.1]),
    "adamw_mixed": (mixed, "wgmv", [0.01, 2]),
    "adamw_mixed_with": (mixed, "wgmv", [0.01, 2, 0.8, 0.95, 1e-6, 0.1]),
}
"""Each optimiser: the same in numpy, the tensors that it takes, and values of its scalars."""


def weights(shape: tuple[int, ...], names: str, seed: int) -> list[Numbers]:
    """Return random tensors; that of squares has positive numbers."""
    rng = np.random.default_rng(seed)
    tensors = [rng.normal(size=shape) for _ in names]
    return [abs(x) if name == "v" else x for name, x in zip(names, tensors, strict=True)]


@pytest.mark.turns
@pytest.mark.parametrize("layout", [*LAYOUTS, PLACED])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser(name: str, layout: str) -> None:
    reference, names, scalars = OPTIMISERS[name]
    place = " at(pipe = 1)" if layout == PLACED else ""
    short = "bf16" if "mixed" in name else "f32"
    x, low = f"f32[{layout}]{place}", f"{short}[{layout}]{place}"
    operands = [low if n == "g" else x for n in names] + [f"f32[]{place}"] * len(scalars)
    results = [low] * ("mixed" in name) + [x] * len(names.replace("g", ""))
    module = module_with(name, operands, results)
    shape = dist_type(functions_of(module)[-1].args[0]).shape
    tensors = weights(shape, names, len(layout))
    if short == "bf16":
        tensors[1] = tensors[1].astype(BF16).astype(np.float64)
    expected = reference(*(t.astype(np.float32).astype(np.float64) for t in tensors), *scalars)
    for result, right in zip(run(module, [*tensors, *scalars]), expected, strict=True):
        tolerance = 2e-5 if result.dtype == np.float32 else 2**-8
        assert np.allclose(result.astype(float), right, rtol=tolerance, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "adamw_mixed"])
def test_an_optimiser_is_costed_and_needs_no_collective(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, names, scalars = OPTIMISERS[name]
    short = "bf16" if "mixed" in name else "f32"
    x, low = "f32[64@data, 6]", f"{short}[64@data, 6]"
    operands = [low if n == "g" else x for n in names] + ["f32[]"] * len(scalars)
    results = [low] * ("mixed" in name) + [x] * len(names.replace("g", ""))
    path = tmp_path / "step.coll"
    path.write_text(write(module_with(name, operands, results)), encoding="utf-8")
    for target, words in (("simulate", "memory of a device"), ("cost", "100%")):
        assert collopt.main([str(path), "-t", target]) == 0
        printed = capsys.readouterr()
        main = printed.out[printed.out.index("@main") :]
        assert words in main
        assert "reduce" not in main
        assert "gather" not in main


def test_the_correction_of_the_first_steps_keeps_its_digits() -> None:
    """1 - 0.999^1 in f32 has four digits; the library has seven."""
    module = module_with("one_minus_power", ["f32[]", "f32[]"], ["f32[]"])
    for beta, step in [(0.999, 1), (0.999, 2), (0.9, 1), (0.95, 1000), (0.9999, 7)]:
        exact = 1 - float(np.float32(beta)) ** step
        (result,) = run(module, [np.float32(beta), np.float32(step)])
        assert math.isclose(float(result), exact, rel_tol=1e-6)


def test_optimisers_agree_with_optax() -> None:
    optax = pytest.importorskip("optax")
    named = {
        "sgd": optax.sgd(0.1),
        "momentum": optax.sgd(0.1, momentum=0.9),
        "adam": optax.adam(0.1),
        "adamw": optax.adamw(0.1, weight_decay=0.01),
    }
    rng = np.random.default_rng(0)
    for name, optimiser in named.items():
        names = OPTIMISERS[name][1]
        steps = len(OPTIMISERS[name][2]) > 1
        scalars = ["f32[]"] * (1 + steps)
        states = ["f32[8@data]"] * (len(names) - 2)
        operands = ["f32[8@data]", "f32[8@data]", *states, *scalars]
        module = module_with(name, operands, ["f32[8@data]", *states])
        w = rng.normal(size=8).astype(np.float32)
        right, state = w, optimiser.init(w)
        own: list[Any] = [w, *(np.zeros_like(w) for _ in states)]
        for step in range(1, 6):
            g = rng.normal(size=8).astype(np.float32)
            change, state = optimiser.update(g, state, right)
            right = right + np.asarray(change)
            own = run(module, [own[0], g, *own[1:], 0.1, *([step] * steps)])
        assert np.allclose(own[0], right, rtol=2e-5, atol=2e-6)


def test_gradients_are_clipped_by_their_norm() -> None:
    """The squares of a sharded gradient are summed over all devices."""
    shapes = {"16@data": (16,), "4@model, 6": (4, 6), "2, 4@data, 6@model": (2, 4, 6)}
    total = 0.0
    for layout, shape in shapes.items():
        g = np.random.default_rng(1).normal(size=shape)
        (squared,) = run(module_with("squared_norm", [f"f32[{layout}]"], ["f32[]"]), [g])
        assert math.isclose(float(squared), float((g**2).sum()), rel_tol=1e-5)
        total += float(squared)
    factor = module_with("clip_factor", ["f32[]", "f32[]"], ["f32[]"])
    for limit in (1.0, 100.0):
        (clip,) = run(factor, [np.float32(total), np.float32(limit)])
        assert math.isclose(float(clip), min(1.0, limit / math.sqrt(total)), rel_tol=1e-5)
    g = np.random.default_rng(2).normal(size=16)
    (scaled,) = run(
        module_with("scaled", ["bf16[16@data]", "f32[]"], ["bf16[16@data]"]), [g, np.float32(0.5)]
    )
    assert np.allclose(scaled.astype(float), g / 2, rtol=0.01)


def test_a_record_of_gradients_is_clipped_and_used() -> None:
    """The new weights are those of a step of sgd with all gradients over their norm."""
    module = collir.parse(
        f"{MESH}\nfunc @clipped = @clipped on any\nfunc @sgd = @sgd on any\n"
        "record @part { a: f32[4@model, 6], b: f32[2] }\n"
        "record @net { first: f32[16@data], parts: @part[2], last: @part }\n"
        "func @main(%w: @net, %g: @net, %rate: f32[], %limit: f32[]) -> @net on @m {\n"
        "  %c = call @clipped(%g, %limit)\n  %y = call @sgd(%w, %c, %rate)\n  return %y\n}\n"
    )
    rng = np.random.default_rng(3)
    shapes = [(16,), (2, 4, 6), (2, 2), (4, 6), (2,)]
    w, g = ([rng.normal(size=shape) for shape in shapes] for _ in range(2))
    norm = math.sqrt(sum(float((x**2).sum()) for x in g))
    new = run(module, [*w, *g, np.float32(0.1), np.float32(1.5)])
    for x, own, gradient in zip(new, w, g, strict=True):
        assert np.allclose(x, own - 0.1 * gradient * 1.5 / norm, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_step_that_is_not_finite_is_skipped(bad: float) -> None:
    finite = module_with("is_finite", ["f32[3]"], ["bool[3]"])
    (counts,) = run(finite, [np.array([1.0, bad, -3e38], np.float32)])
    assert list(counts) == [True, False, True]
    chosen = collir.parse(
        f"{MESH}\nfunc @is_finite = @is_finite on any\nfunc @chosen = @chosen on any\n"
        "func @next_scale = @next_scale on any\n"
        "func @main(%n: f32[], %new: f32[16@data], %old: f32[16@data]) -> (f32[16@data], f32[]) "
        "on @m {\n  %c = call @is_finite(%n)\n  %y = call @chosen(%c, %new, %old)\n"
        "  %eight = constant value 8 to f32[]\n  %s = call @next_scale(%c, %eight)\n"
        "  return %y, %s\n}\n"
    )
    new, old = np.full(16, 2.0), np.full(16, 1.0)
    for number, value, scale in ((bad, old, 4.0), (5.0, new, 8 * 2 ** (1 / 2000))):
        kept, next_scale = run(chosen, [np.float32(number), new, old])
        assert np.array_equal(kept, value)
        assert math.isclose(float(next_scale), scale, rel_tol=1e-6)


def test_a_rate_rises_and_falls() -> None:
    module = module_with("warmup_cosine", ["f32[]"] * 4, ["f32[]"])
    for step in (1, 10, 50, 100, 5_000, 10_000, 20_000):
        way = min(1.0, (step - 100) / 9_900)
        right = 0.1 * (step / 100 if step < 100 else (1 + math.cos(math.pi * way)) / 2)
        (rate,) = run(module, [np.float32(step), 0.1, 100.0, 10_000.0])
        assert math.isclose(float(rate), right, rel_tol=1e-5, abs_tol=1e-7)


# --- layers: written from their definitions, in f64 ----------------------------------------------

BATCH, SEQ, WIDTH, HEADS = 2, 6, 8, 4


def layer_norm(x: Numbers, gain: Numbers, bias: Numbers) -> Numbers:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * gain + bias


def linear(x: Numbers, w: Numbers, b: Numbers) -> Numbers:
    return x @ w + b


def mlp(x: Numbers, up: Numbers, a: Numbers, down: Numbers, b: Numbers) -> Numbers:
    h = x @ up + a
    h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    return h @ down + b


def swiglu(x: Numbers, gate: Numbers, up: Numbers, down: Numbers) -> Numbers:
    g = x @ gate
    return (g / (1 + np.exp(-g)) * (x @ up)) @ down


def causal_attention(q: Numbers, k: Numbers, v: Numbers) -> Numbers:
    """Attention as a loop over queries, which sees the keys up to its own."""
    out = np.zeros_like(q)
    for b, i, head in np.ndindex(q.shape[:3]):
        scores = np.array([q[b, i, head] @ k[b, j, head] for j in range(i + 1)])
        shares = np.exp(scores / np.sqrt(q.shape[-1]))
        values = np.array([v[b, j, head] for j in range(i + 1)])
        out[b, i, head] = (shares[:, None] * values).sum(0) / shares.sum()
    return out


def attention(x: Numbers, *weights: Numbers) -> Numbers:
    q, a, k, b, v, c, out, d = weights
    parts = [linear(x, *pair) for pair in ((q, a), (k, b), (v, c))]
    heads = [part.reshape(*x.shape[:2], HEADS, -1) for part in parts]
    return linear(causal_attention(*heads).reshape(x.shape), out, d)


def gpt_block(x: Numbers, *weights: Numbers) -> Numbers:
    h = x + attention(layer_norm(x, *weights[:2]), *weights[2:10])
    return h + mlp(layer_norm(h, *weights[10:12]), *weights[12:])


X, V, B = f"{BATCH}@data, {SEQ}, {WIDTH}", f"{WIDTH}", f"{WIDTH}@model"
UP, DOWN = f"{WIDTH}, {WIDTH}@model", f"{WIDTH}@model, {WIDTH}"
WIDE, WIDE_UP = f"{4 * WIDTH}@model", f"{WIDTH}, {4 * WIDTH}@model"
WIDE_DOWN = f"{4 * WIDTH}@model, {WIDTH}"
HEAD = f"{BATCH}@data, {SEQ}, {HEADS}@model, {WIDTH // HEADS}"
MIXING, GIVEN = [UP, B, UP, B, UP, B, DOWN, V], f"seq = {SEQ}, size = {WIDTH // HEADS}"
MLP = [WIDE_UP, WIDE, WIDE_DOWN, V]

LAYERS: dict[str, tuple[Callable[..., Numbers], str, list[str], str]] = {
    "linear": (linear, "", [X, UP, B], f"{BATCH}@data, {SEQ}, {WIDTH}@model"),
    "mlp": (mlp, "", [X, *MLP], X),
    "swiglu": (swiglu, "", [X, WIDE_UP, WIDE_UP, WIDE_DOWN], X),
    "causal_attention": (causal_attention, f"({GIVEN})", [HEAD, HEAD, HEAD], HEAD),
    "attention": (attention, f"(heads = {HEADS}, {GIVEN})", [X, *MIXING], X),
    "gpt_block": (gpt_block, f"(heads = {HEADS}, {GIVEN})", [X, V, V, *MIXING, V, V, *MLP], X),
}
"""Each layer: the same in numpy, values of parameters, and the layouts of operands and result."""


PRECISIONS = {"f64": 1e-13, "f32": 1e-5, "bf16": 0.04}


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(name: str, dtype: str) -> None:
    """Weights are sharded over one axis, as in Megatron-LM, and the batch over another."""
    reference, given, layouts, result = LAYERS[name]
    module = module_with(name, [f"{dtype}[{x}]" for x in layouts], [f"{dtype}[{result}]"], given)
    rng = np.random.default_rng(len(name))
    (main,) = (f for f in functions_of(module) if f.sym_name.data == "main")
    shapes = [dist_type(arg).shape for arg in main.args]
    numbers = {"f64": np.float64, "f32": np.float32, "bf16": BF16}[dtype]
    tensors = [rng.normal(size=shape).astype(numbers) for shape in shapes]
    expected = reference(*(x.astype(np.float64) for x in tensors))
    (actual,) = run_layer(module, tensors)
    largest = np.abs(actual.astype(float) - expected).max()
    assert largest < PRECISIONS[dtype] * np.abs(expected).max()


def run_layer(module: Any, tensors: Sequence[Any]) -> list[Any]:
    """Return the results of the caller on all devices."""
    (main,) = (f for f in functions_of(module) if f.sym_name.data == "main")
    return on_all_devices(module, main, list(tensors))


def test_gradients_of_layers_are_those_of_finite_differences() -> None:
    """In f64, of a layer with both of its weights sharded."""
    module = collir.parse(
        f"{MESH}\nfunc @mlp = @mlp on any\n"
        f"func @loss(%x: f64[{X}], %v: f64[{WIDE_UP}], %a: f64[{WIDE}], %w: f64[{WIDE_DOWN}], "
        f"%b: f64[{V}]) -> f64[] on @m {{\n  %y = call @mlp(%x, %v, %a, %w, %b)\n"
        "  %s = mul %y, %y\n  %t = sum %s dims [...]\n  %l = all_reduce %t over data\n"
        "  return %l\n}\n"
    )
    (loss,) = (f for f in functions_of(module) if f.sym_name.data == "loss")
    assert wrong_gradients(module, loss, 1) == []


# --- the library as a whole ----------------------------------------------------------------------


def test_the_files_of_the_library_have_no_errors_and_no_name_twice() -> None:
    names: list[str] = []
    for path in LIBRARY.glob("*.coll"):
        tree, errors, _ = parse(path.read_text(encoding="utf-8"), str(path))
        assert not errors
        names += [str(function.children[0])[1:] for function in tree.children]
    assert sorted(names) == sorted(shipped_functions())
    assert len(set(names)) == len(names)


def test_every_function_of_the_library_is_tested() -> None:
    """Those that are not named here are called by one that is."""
    named = {*OPTIMISERS, *LAYERS, "one_minus_power", "squared_norm", "clip_factor", "scaled"}
    named |= {"clipped", "is_finite", "chosen", "next_scale"}
    called = {"adam_direction", "linear_like", "warmup_cosine"}
    called |= {"rotate", "grouped_attention", "sink_attention", "latent_attention", "seen_scores"}
    called |= {"expert_swiglu", "combined"}
    called |= {"best_experts", "best_experts_of_parts", "places", "dispatched"}  # test_families.py
    assert named | called == set(shipped_functions())


def test_the_page_of_the_library_lists_every_function_as_it_is() -> None:
    """A call in its tables has the names of the operands, the number of results, the parameters."""
    page = (Path(__file__).parents[2] / "docs" / "library.md").read_text(encoding="utf-8")
    listed = {
        name: (results.count("%"), parameters or "", re.findall(r"%\w+", operands))
        for results, name, parameters, operands in re.findall(
            r"^\| `(.*) = call @(\w+)(\([^%)]*\))?\((.*)\)` \|", page, re.MULTILINE
        )
    }
    there: dict[str, tuple[int, str, list[str]]] = {}
    for path in LIBRARY.glob("*.coll"):
        text = path.read_text(encoding="utf-8")
        for name, parameters, operands, results in re.findall(
            r"^func @(\w+)(\([^%)]*\))?\((.*?)\)\s*-> (.*?) on any \{",
            text,
            re.MULTILINE | re.DOTALL,
        ):
            names = re.findall(r"%\w+(?=:)", operands)
            sizes = re.sub(r"\s+", " ", parameters or "")
            there[name] = (len(re.findall(r"\w+[\[{]", results)), sizes, names)
    assert listed == there
