"""The pass `pipeline` on random training steps, and on loops over microbatches of all kinds."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh, one_of_each, some
from support.programs.collectives import RANDOM
from support.programs.layer_loops import random_layer_loops
from support.programs.staged_steps import SUMS, pipeline_of, step_text
from support.programs.training_steps import random_step
from support.semantics.staged_checks import assert_computes
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.programs.simulate import simulate
from collir.cost.programs.stages import stages_of
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.pipelines import Pipeline
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.double import module_in_double
from collir.semantics.reference.executor import execute
from collir.semantics.reference.meaning import meaning
from collir.transforms.microbatches.following import Following, NotSeparableError
from collir.transforms.microbatches.rows import BatchSize, Over, Rows
from collir.transforms.stages.unstaging import UnstagedError

LATER = (
    *("ddp", "fsdp", "megatron", "zero", "decompose,overlap", "bucket", "inline", "unroll"),
    *("split-backward", "canonicalize", "dce"),
)
"""Passes and pipelines that may follow."""

REFUSED = (
    "neither a sum nor a mean",
    "is not linear in what is reduced",
    "needs the layers of all places",
    "needs all layers at once in each microbatch",
)
"""The texts of errors for which a random step may be refused."""


LOOPS_REFUSED = (
    "what layers behind its own make",
    "takes these layers in reverse",
    "each layer takes all rows",
    "that its results need, and there is none",
    "around the gradient of a function with layers in a repeat",
    "needs the layers of all places",
    "is not linear in what is reduced",
)
"""The texts of errors for which random loops over layers may be refused."""


def assert_simulates(module: ModuleOp) -> None:
    """Check the times, the memory and the microbatches in flight of the places of a pipeline."""
    module = collir.run_passes(module.clone(), "decompose")
    [simulation] = [s for s in simulate(module) if s.name == "step"]
    [stages] = stages_of(simulation)
    places, count = len(stages.stages), stages.microbatches
    for number, stage in enumerate(stages.stages):
        assert simulation.time * (1 + 1e-9) >= stages.time >= stage.busy * (1 - 1e-9)
        most = {"gpipe": count, "1f1b": places - number, "zb-h1": places}.get(stages.schedule)
        assert stage.memory > 0
        assert 1 <= stage.in_flight <= (most or stage.in_flight)


def assert_cut(rng: random.Random, later: bool = True) -> bool:
    """Check a random step; return whether it is cut into stages."""
    step = random_step(rng)
    before = collir.parse(step.text, "step.coll")
    try:
        after = collir.run_passes(before.clone(), f"pipeline{{{step.options}}}")
    except DiagnosticError as error:
        [diagnostic] = error.diagnostics
        assert any(text in diagnostic.message for text in REFUSED), diagnostic.message
        return False
    assert_computes(before, after)
    assert_simulates(after)
    name = rng.choice(LATER)
    if later:
        behind = collir.run_passes(after, name)
        try:
            assert_computes(before, behind)
        except UnstagedError:  # inlined or in buckets, it is not told which chunks are in rows
            assert step.rows > 1
    return True


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=3)
def test_random_steps(rng: random.Random) -> None:
    assert_cut(rng, later=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_more_random_steps(seed: int) -> None:
    rng = fresh(seed)
    assert sum(assert_cut(rng) for _ in range(50)) > 35


@pytest.mark.parametrize("name", some(LATER, 3))
def test_passes_behind(name: str) -> None:
    """Passes leave a loop with a schedule as it is: its body has tasks and sends alone."""
    before = loop_step(_ALL)
    after = collir.run_passes(before.clone(), "pipeline")
    assert_computes(before, collir.run_passes(after, name))


@pytest.mark.parametrize("name", some(["canonicalize", "reorder-by-hierarchy", "fuse", "cse"], 1))
def test_passes_in_front(name: str) -> None:
    """Passes over the loop to come leave the axis of stages alone, and zeros of stacks and of other
    values are one."""
    before = loop_step(_ALL)
    without = "{without=pipe}" if name in ("reorder-by-hierarchy", "fuse") else ""
    assert_computes(before, collir.run_passes(before.clone(), f"{name}{without},pipeline"))


# --- loops over microbatches ----------------------------------------------------------------------

_LOOP: dict[str, object] = {
    "device": "device { compute f32 = 1 TFLOP/s; memory = 1 GB }",
    "count": 4,
    "width": 3,
    "map": "tanh",
    "loss": "%g = mul %y, %v\n  %products = mul %g, %z\n  %loss = sum %products dims [0, 1]",
    "arguments": ", %share: f32[count],\n     %words: i32[count, batch]",
    "slices": ", %share = %share, %words = %words",
    "fixed": ", %rate = %rate",
}

_ALL = SUMS + "yield %1, %2, %3"

INSIDE = {
    "sums": (_ALL, "", ""),
    "a stacked slice": (SUMS + "yield %1, %2, %3, %share", "", "f32[count]"),
    "stacked words": (SUMS + "yield %1, %2, %3, %words", "", "i32[count, batch]"),
    "a stacked invariant": (SUMS + "yield %1, %2, %3, %rate", "", "f32[count]"),
    "a stacked sum": (SUMS + "yield %1, %2, %3, %1", "", "f32[count]"),
    "a carry that stays": (SUMS + "yield %l, %2, %3", "", ""),
    "a carry that is not read": (SUMS + "yield %own, %2, %3", "", ""),
    "a counter": (
        "%one = constant value 1 to f32[]\n    %4 = add %c, %one\n    "
        + SUMS
        + "yield %1, %2, %3, %4",
        ", %c = %rate",
        "f32[]",
    ),
    "a constant": (
        "%one = constant value 1 to f32[]\n    " + SUMS + "yield %1, %2, %3, %one",
        "",
        "f32[count]",
    ),
    "weights of microbatches": (
        "%a = mul %own_w, %share\n    %b = mul %own_v, %share\n    %1 = add %l, %own\n    "
        "%2 = add %d_w, %a\n    %3 = add %d_v, %b\n    yield %1, %2, %3",
        "",
        "",
    ),
    "sums that decay": (
        "%a = scale %d_w by 0.5\n    %b = scale %d_v by 0.5\n    %1 = add %l, %own\n    "
        "%2 = add %a, %own_w\n    %3 = add %own_v, %b\n    yield %1, %2, %3",
        "",
        "",
    ),
    "a carry that is added twice": (
        "%1 = add %l, %own\n    %2 = add %d_w, %own_w\n    %a = add %d_v, %own_v\n    "
        "%3 = add %d_v, %a\n    yield %1, %2, %3",
        "",
        "",
    ),
    "norms": (
        "%a = mul %own_w, %own_w\n    %n = sum %a dims [0, 1, 2]\n    "
        + SUMS
        + "yield %1, %2, %3, %n",
        "",
        "f32[count]",
    ),
    "means over layers": (
        "%a = mean %own_w dims [0, 2]\n    " + SUMS + "yield %1, %2, %3, %a",
        "",
        "f32[count, width]",
    ),
}
"""The body of a loop behind the gradient, a further carry, and the type of a further result."""

BEHIND = {
    "the mean of layers": "%r = mean %d_w dims [0]",
    "the largest of all layers": "%r = max %d_w dims [0, 1, 2]",
    "a product over layers": '%r = einsum "l i j, l i j -> j" %w, %d_w',
    "what is repeated": "%o = constant value 2 to f32[width]\n  %s = broadcast_to %o to %w\n  "
    "%r = mul %s, %d_w",
    "rows of layers": "%r = reshape %d_w to [layers, width * width]",
    "parts of rows of layers": "%s = split %d_w dim 2 into [1, width]\n  "
    "%t = scale %s by 2\n  %r = merge %t dim 2",
    "turned layers": "%r = transpose %d_w order [0, 2, 1]",
    "numbers of layers": "%i = constant value 1 to i32[2]\n  %r = take %d_w, %i dim 0",
    "random numbers": "%i = constant value 3 to i32[]\n  %u = uniform %i to %w\n  "
    "%r = add %u, %d_w",
}
"""Steps on all layers behind the loop."""

SHAPES = {
    "the mean of layers": "width, width",
    "the largest of all layers": "",
    "a product over layers": "width",
    "rows of layers": "layers, width * width",
    "numbers of layers": "2, width, width",
}

OPTIONS = ("schedule=1f1b", "schedule=zb-v", "schedule=gpipe split=true")


def loop_step(body: str, carries: str = "", types: str = "", behind: str = "") -> ModuleOp:
    """Return a module with a step whose loop has a body behind the gradient."""
    inside = types and not behind
    text = step_text(
        **_LOOP,
        body=body,
        carries=carries,
        types=f", {types}" if types else "",
        results=", %r" if inside else "",
        behind=behind,
        returned=", %r" if types else "",
    )
    return collir.parse(text, "step.coll")


@pytest.mark.turns
@pytest.mark.parametrize(("name", "options"), one_of_each(INSIDE, OPTIONS))
def test_loops(name: str, options: str) -> None:
    before = loop_step(*INSIDE[name])
    assert_computes(before, collir.run_passes(before.clone(), f"pipeline{{{options}}}"))


@pytest.mark.turns
@pytest.mark.parametrize(("name", "options"), one_of_each(BEHIND, OPTIONS))
def test_steps_on_all_layers(name: str, options: str) -> None:
    """What needs the numbers of layers is an error if a place has several rows of them."""
    shape = SHAPES.get(name, "layers, width, width")
    before = loop_step(_ALL, types=f"f32[{shape}]", behind=BEHIND[name])
    if "zb-v" in options and name in ("numbers of layers", "random numbers"):
        with pytest.raises(DiagnosticError, match="needs the layers of all places"):
            collir.run_passes(before, f"pipeline{{{options}}}")
    else:
        assert_computes(before, collir.run_passes(before.clone(), f"pipeline{{{options}}}"))


@pytest.mark.parametrize(
    ("body", "types", "error"),
    [
        (
            "%1 = add %l, %own\n    %a = mul %own_w, %l\n    %2 = add %d_w, %a\n    "
            "%3 = add %d_v, %own_v\n    yield %1, %2, %3",
            "",
            "B1 reads a sum over microbatches that F1 adds to",
        ),
        (
            "%a = mul %own_w, %own_w\n    %n = sum %a dims [0, 1, 2]\n    %b = mul %own_w, %n\n    "
            "%1 = add %l, %own\n    %2 = add %d_w, %b\n    %3 = add %d_v, %own_v\n    "
            "yield %1, %2, %3",
            "",
            "this needs all layers at once in each microbatch",
        ),
        (
            SUMS + "yield %1, %2, %3, %own_w",
            "f32[count, layers, width, width]",
            "%own_w of each microbatch has all layers",
        ),
    ],
)
def test_loops_that_are_refused(body: str, types: str, error: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        collir.run_passes(loop_step(body, types=types), "pipeline")
    assert error in str(caught.value)


# --- layers ---------------------------------------------------------------------------------------

_LAYERS = """
machine @box {{ level gpu[2] {{ port = 100 GB/s, latency = 3 us }} }}
mesh @m on @box {{ pipe = gpu:2 }}
func @loss(batch = 4, layers = 4)
    (%x: f32[batch, 3], %w: f32[layers, 3, 3] parameter, %v: f32[layers, 3, 3] parameter)
    -> f32[] on @m {{
  {layers}
  %squares = mul %y, %y
  %loss = mean %squares dims [0, 1]
  return %loss
}}
func @step(batch = 4, layers = 4)
    (%x: f32[batch, 3], %w: f32[layers, 3, 3] parameter, %v: f32[layers, 3, 3] parameter)
    -> (f32[], f32[layers, 3, 3] parameter, f32[layers, 3, 3] parameter) on @m {{
  %l, %a, %b = gradient @loss(batch = batch, layers = layers)(%x, %w, %v) wrt %w, %v
  return %l, %a, %b
}}
"""


def loop_over(result: str, x: str, weights: str, extra: str = "") -> str:
    """Return a loop over layers, each a matrix and a tanh."""
    return (
        f"{result} = repeat layers carry(%x = {x}) slice(%w = {weights}) {extra} {{\n"
        '  %0 = einsum "b i, i j -> b j" %x, %w\n  %1 = tanh %0\n  yield %1\n}\n'
    )


def layers_step(layers: str) -> ModuleOp:
    """Return a module with a step on a batch whose loss has these layers."""
    return collir.parse(_LAYERS.format(layers=layers), "layers.coll")


LAYERS = {
    "side by side": loop_over("%a", "%x", "%w") + loop_over("%b", "%x", "%v") + "%y = add %a, %b",
    "a norm of weights": loop_over("%a", "%x", "%w")
    + "%n = mul %w, %v\n%m = mean %n dims [0, 1, 2]\n%y = add %a, %m",
    "weights made of weights": "%u = mul %w, %v\n" + loop_over("%y", "%x", "%u"),
}


@pytest.mark.parametrize(("name", "schedule"), one_of_each(LAYERS, ["1f1b", "zb-h1", "zb-v"]))
def test_layers(name: str, schedule: str) -> None:
    before = layers_step(LAYERS[name])
    options = f"microbatches=2 schedule={schedule}"
    assert_computes(before, collir.run_passes(before.clone(), f"pipeline{{{options}}}"))


@pytest.mark.parametrize(
    ("layers", "error"),
    [
        (
            loop_over("%a", "%x", "%w") + loop_over("%y", "%a", "%v"),
            "what layers behind its own make",
        ),
        (
            loop_over("%a", "%x", "%w") + loop_over("%y", "%a", "%v", "reverse"),
            "takes these layers in reverse",
        ),
        (loop_over("%y", "%x", "%w", "reverse"), "takes these layers in reverse"),
    ],
)
def test_layers_in_another_order(layers: str, error: str) -> None:
    with pytest.raises(DiagnosticError, match=error):
        collir.run_passes(layers_step(layers), "pipeline{microbatches=2}")


def assert_loops_cut(rng: random.Random) -> bool:
    """Check a step with loops over layers of any kind; return whether it is cut into stages."""
    step = random_layer_loops(rng)
    before = collir.parse(step.text, "step.coll")
    try:
        after = collir.run_passes(before.clone(), f"pipeline{{{step.options}}}")
    except DiagnosticError as error:
        [diagnostic] = error.diagnostics
        assert any(text in diagnostic.message for text in LOOPS_REFUSED), diagnostic.message
        return False
    assert_computes(before, after)
    return True


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=2)
def test_loops_over_layers(rng: random.Random) -> None:
    assert_loops_cut(rng)


@pytest.mark.slow
def test_more_loops_over_layers() -> None:
    rng = fresh("loops over layers")
    assert sum(assert_loops_cut(rng) for _ in range(100)) > 70


_SHARED = """
machine @box {{ level node[3] {{ port = 25 GB/s, latency = 20 us }} }}
mesh @m on @box {{ pipe = node:3 }}
func @loss(batch = 8, layers = 6)(%x: f64[batch, 2], %u: f64[2], %w: f64[layers, 2]) -> f64[]
    on @m auto {{
  %y, %o = repeat layers carry(%c = %x, %d = %x) slice(%w = %w) with(%u = %u) {{
    %0 = mul %c, %w
    %1 = tanh %0
    %2 = sin %u
    %3 = mul %d, %2
    yield %1, %3
  }}
  %t = mul %y, %o
  %e = mul %t, %u
  %l = mean %e dims [0, 1]
  return %l
}}
func @step(batch = 8, layers = 6)
    (%x: f64[batch, 2], %u: f64[2] parameter, %w: f64[layers, 2] parameter)
    -> ({types}) on @m auto {{
  %l, {results} = gradient @loss(batch = batch, layers = layers)(%x, %u, %w) wrt {weights}
  return %l, {results}
}}
"""


@pytest.mark.parametrize("schedule", some(["zb-v", "zb-h1", "interleaved", "1f1b"], 1))
def test_a_weight_that_all_layers_share(schedule: str) -> None:
    """No task waits for the gradient that another chunk makes: places add up their own."""
    text = _SHARED.format(types="f64[], f64[2], f64[layers, 2]", results="%a, %b", weights="%u, %w")
    before = collir.parse(text.replace("batch = 8", "batch = 24"), "step.coll")
    options = f"microbatches=12 schedule={schedule} split=true"
    after = collir.run_passes(before.clone(), f"pipeline{{{options}}}")
    graph = Pipeline.of(pipeline_of(after)).graph
    assert all(part[0] != "W" for needed in graph.needs.values() for part in needed)
    assert_computes(before, after)


@pytest.mark.parametrize("schedule", some(["zb-v", "zb-h1", "gpipe", "dualpipe"], 1))
def test_layers_whose_weights_are_not_trained(schedule: str) -> None:
    """The forward pass goes through all places, and the backward pass is at the last alone."""
    text = _SHARED.replace("%3 = mul %d, %2", "%3 = tanh %d").replace("with(%u = %u) ", "")
    text = text.replace("node[3]", "node[2]").replace("node:3", "node:2").replace("%2 = sin %u", "")
    text = text.replace("layers = 6", "layers = 4")
    before = collir.parse(
        text.format(types="f64[], f64[2]", results="%a", weights="%u"), "step.coll"
    )
    after = collir.run_passes(before.clone(), f"pipeline{{microbatches=4 schedule={schedule}}}")
    parts = Pipeline.of(pipeline_of(after)).graph.places
    assert {kind for kind, _ in parts} > {"F"}
    assert_computes(before, after)


# --- losses of a batch ----------------------------------------------------------------------------


def random_loss(rng: random.Random) -> str:
    """Return a random function of a batch, whose value is a number."""
    lines: list[str] = []
    dims = {"%x": "bsh", "%y": "bh", "%w": "h", "%c": ""}

    def add(text: str, over: str) -> str:
        lines.append(f"%v{len(lines)} = {text}")
        dims[f"%v{len(lines) - 1}"] = over
        return f"%v{len(lines) - 1}"

    def some(over: str) -> list[int]:
        return sorted(rng.sample(range(len(over)), rng.randint(1, len(over))))

    for _ in range(rng.randint(2, 9)):
        a, b = rng.choice(list(dims)[-5:]), rng.choice(list(dims))
        over, other = dims[a], dims[b]
        kind = rng.choice(["map", "pair", "pair", "reduce", "reduce", "along", "move", "einsum"])
        if kind == "map":
            add(f"{rng.choice(['tanh', 'gelu', 'exp', 'neg'])} {a}", over)
        elif kind == "pair" and (over.endswith(other) or other.endswith(over)):
            op = rng.choice(["add", "mul", "sub", "maximum", "div"])
            add(f"{op} {a}, {b}", max(over, other, key=len))
        elif kind == "reduce" and over:
            gone = some(over)
            left = "".join(x for n, x in enumerate(over) if n not in gone)
            add(f"{rng.choice(['sum', 'mean', 'max'])} {a} dims {gone}", left)
        elif kind == "along" and over:
            dim = rng.randrange(len(over))
            texts = (f"softmax {a} dims [{dim}]", f"cumsum {a} dim {dim}")
            add(rng.choice((*texts, f"pad {a} dim {dim} low -1 high 1 value 1")), over)
        elif kind == "move" and len(over) > 1:
            order = rng.sample(range(len(over)), len(over))
            add(f"transpose {a} order {order}", "".join(over[n] for n in order))
        elif kind == "einsum" and over and other:
            left = "".join(x for x in dict.fromkeys(over + other) if rng.random() < 0.5)
            add(f'einsum "{" ".join(over)}, {" ".join(other)} -> {" ".join(left)}" {a}, {b}', left)
    last = list(dims)[-1]
    while over := dims[last]:
        gone = some(over)
        left = "".join(x for n, x in enumerate(over) if n not in gone)
        last = add(f"{rng.choice(['sum', 'mean'])} {last} dims {gone}", left)
    if rng.random() < 0.3:
        last = add(f"{rng.choice(['mul', 'add', 'div'])} {last}, %c", "")
    return "\n".join(
        [
            "machine @one { level gpu[1] { port = 1 GB/s, latency = 0 us } }",
            "mesh @m on @one { a = gpu:1 }",
            "func @loss(batch = 4)",
            "    (%x: f32[batch, 2, 3], %y: f32[batch, 3], %w: f32[3], %c: f32[]) -> f32[] on @m {",
            *lines,
            f"return {last}",
            "}",
        ]
    )


def value_of(text: str, batch: int, inputs: Sequence[Array]) -> float:
    """Return the value of a function for a batch of some size."""
    module = collir.parse(text.replace("batch = 4", f"batch = {batch}"), "loss.coll")
    [function] = functions_of(module_in_double(module))
    [[value]] = execute(*meaning(function), [[x] for x in inputs])
    assert value is not None
    return float(value)


def assert_separable(rng: random.Random) -> bool:
    """Check what is found of a random loss by its values; return whether it is a sum or a mean."""
    text = random_loss(rng)
    try:
        [function] = functions_of(collir.parse(text, "loss.coll"))
        size = BatchSize("batch", "whole", {"batch": 4, "whole": 4})
        batched = {0: Rows(0), 1: Rows(0)}
        following = Following(function, {}, size, batched, range(len(function.args)))
    except (DiagnosticError, NotSeparableError):
        return False
    if following.rows or following.shared:
        return False  # a microbatch is no batch of its size
    [over] = following.results
    draws = np.random.default_rng(rng.randrange(2**32))
    x, y, *rest = (draws.normal(size=shape) for shape in ((4, 2, 3), (4, 3), (3,), ()))
    rest = [np.asarray(value) for value in rest]
    parts = [value_of(text, 2, [x[n : n + 2], y[n : n + 2], *rest]) for n in (0, 2)]
    if over is not None and np.isfinite(parts).all():
        right = sum(parts) / (2 if over is Over.MEAN else 1)
        assert value_of(text, 4, [x, y, *rest]) == pytest.approx(right, rel=1e-6, abs=1e-9), text
    return over is not None


@given(rng=RANDOM)
@settings(max_examples=15)
def test_losses_of_a_batch(rng: random.Random) -> None:
    assert_separable(rng)


@pytest.mark.slow
def test_more_losses_of_a_batch() -> None:
    rng = fresh("losses")
    assert sum(assert_separable(rng) for _ in range(2000)) > 300


@pytest.mark.turns
@pytest.mark.parametrize("chunks", [1, 2])
def test_the_best_schedule(chunks: int) -> None:
    """The microbatches are no multiple of the places."""
    text = step_text(count=3, device="device { compute f32 = 1 TFLOP/s; memory = 1 GB }")
    before = collir.parse(text, "step.coll")
    options = f"schedule=optimal chunks={chunks}"
    assert_computes(before, collir.run_passes(before.clone(), f"pipeline{{{options}}}"))
