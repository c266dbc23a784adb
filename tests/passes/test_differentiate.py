"""Gradients: of every operation and of random programs, against finite differences."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM
from support.semantics.checks import functions_of
from support.semantics.differentiated import (
    inputs_of,
    on_all_devices,
    on_one_device,
    wrong_gradients,
)
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import ReturnOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import dist_type
from collir.layout.gradients import nothing
from collir.syntax.writer import write
from collir.transforms.gradients.differentiation import gradient_function, gradients_as_calls
from collir.transforms.terms import BlockSteps

MESH = """
machine @box { level gpu[4] { port = 300 GB/s, latency = 3 us } }
mesh @m on @box { a = gpu:2, b = gpu:2 }
"""

LAYOUTS = ["6, 4", "6@a, 4", "6, 4@b", "6@a, 4@b", "6@b, 4@a", "6@(a, b), 4"]
"""Layouts of the operands of a step, all in the same one."""

CASES: dict[str, list[str]] = {
    "einsum": [
        '%r = einsum "i j, i j -> i j" %x, %y',
        '%r = einsum "i j -> i" %x',
        '%r = einsum "i j, k j -> i k" %x, %w',
        '%r = einsum "i j, i j, j -> j" %x, %y, %z',
    ],
    "sum": ["%r = sum %x dims [0]", "%r = sum %x dims [1] keepdims", "%r = sum %x dims [0, 1]"],
    "max": ["%r = max %x dims [0]", "%r = max %x dims [0, 1] keepdims"],
    "min": ["%r = min %x dims [1]"],
    "mean": ["%r = mean %x dims [0]", "%r = mean %x dims [0, 1] keepdims"],
    "layer_norm": [
        "%r = layer_norm %x, %z, %y1 dims [1] eps 1e-3",
        "%g = reshape %w1 to [4, 6]\n  %r = layer_norm %x, %g, %g dims [1, 0] eps 1e-3",
    ],
    "rms_norm": ["%r = rms_norm %x, %z dims [1] eps 1e-3"],
    "cumsum": ["%r = cumsum %x dim 0", "%r = cumsum %x dim 1 reverse"],
    "linear_scan": [
        "%r = linear_scan %x, %y dim 0",
        "%r = linear_scan %x, %y dim 1 reverse",
        "%r = linear_scan %x, %x dim 1",
    ],
    "take": [
        "%r = take %x, %i dim 0",
        "%r = take %x, %i dim 1",
        "%i2 = reshape %i to [2, 3]\n  %r = take %z, %i2 dim 0",
    ],
    "take_transpose": [
        "%r = take_transpose %x, %i dim 0 to f64[3, {z}]",
        "%r = take_transpose %x, %j dim 1 to f64[{r}, 3]",
    ],
    "take_along_dim": [
        "%t = reshape %i to [6, 1]\n  %b = broadcast_to %t to i32[{r}, {z}]\n"
        "  %r = take_along_dim %x, %b dim 1",
    ],
    "take_along_dim_transpose": [
        "%t = reshape %j to [4]\n  %b = broadcast_to %t to i32[6, {z}]\n"
        "  %r = take_along_dim_transpose %x, %b dim 0 to f64[3, {z}]",
    ],
    "grouped_matmul": [
        "%v = reshape %w1 to [2, 4, 3]\n  %k = reshape %i to [6]\n  %r = grouped_matmul %x, %v, %k",
        "%v = reshape %w1 to [2, 3, 4]\n  %r = grouped_matmul %x, %v, %i transposed",
    ],
    "grouped_matmul_transpose": [
        "%r = grouped_matmul_transpose %x, %y, %i to f64[3, {z}, {z}]",
        "%v = transpose %w order [1, 0]\n  %n = neg %j\n"
        "  %r = grouped_matmul_transpose %v, %v, %n to f64[2, 3, 3]",
    ],
    "top_k": ["%r = top_k %x k 2 dim 0", "%r = top_k %x k 3 dim 1"],
    "cross_entropy": [
        "%r = cross_entropy %x, %i dim 1",
        "%n = neg %j\n  %l = cross_entropy %x, %n dim 0\n  %r = sub %l, %z",  # some out of range
    ],
    "softmax": ["%r = softmax %x dims [1]", "%r = softmax %x dims [0, 1]"],
    "log_softmax": ["%r = log_softmax %x dims [0]"],
    **{
        name: [f"%h = reshape %x to [2, 3, {{z}}]\n  %r = {name} %h window [2] {steps}"]
        for name in ("max_pool", "avg_pool")
        for steps in ("stride [1] padding [1]",)
    },
    "avg_pool_transpose": [
        "%h = reshape %x to [2, 3, {z}]\n"
        "  %r = avg_pool_transpose %h window [2] stride [2] padding [1] to f64[2, 5, {z}]"
    ],
    "conv": [
        "%h = reshape %x to [2, 3, {z}]\n  %f = reshape %y to [2, {z}, 3]\n"
        "  %r = conv %h, %f stride [2] padding [1]"
    ],
    "conv_transpose": [
        "%h = reshape %x to [2, 3, {z}]\n  %f = reshape %y to [2, 3, {z}]\n"
        "  %r = conv_transpose %h, %f stride [2] padding [1] to f64[2, 5, 3]"
    ],
    "conv_filter": [
        "%h = reshape %x to [2, 3, {z}]\n  %f = reshape %y to [2, 3, {z}]\n"
        "  %r = conv_filter %h, %f stride [1] padding [1] to f64[3, {z}, {z}]"
    ],
    "where": ["%c = greater %x, %y\n  %r = where %c, %x, %z"],
    "add": ["%r = add %x, %y"],
    "scale": ["%r = scale %x by -0.5"],
    "cast": ["%h = cast %x to f64\n  %r = mul %h, %x"],
    "transpose": ["%r = transpose %x order [1, 0]"],
    "reshape": ["%r = reshape %x to [6, 2, 2]"],
    "split": ["%r = split %x dim 0 into [2, 3]"],
    "merge": ["%r = merge %x dim 0"],
    "pad": ["%r = pad %x dim 1 low 1 high -2 value 3", "%r = pad %x dim 0 low -2"],
    "concat": ["%r = concat %x, %y, %x dim 1", "%r = concat %x, %y dim 0"],
    "shift": [
        f"%h = redistribute %x to f64[6@a, 4]\n  %r = shift %h over a by {steps}"
        for steps in ("1", "-1 open")
    ],
    "barrier": ["%r = barrier %x"],
    "broadcast_to": ["%h = sum %x dims [0]\n  %r = broadcast_to %h to f64[3, {z}]"],
    **{
        name: [f"%r = {name} %x, %y", f"%r = {name} %x, %z"]
        for name in ("mul", "sub", "div", "maximum", "minimum")
    },
    **{
        name: [f"%r = {name} %x"]
        for name in (
            *("neg", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid"),
            *("sin", "cos", "relu", "silu", "gelu"),
        )
    },
}
"""Steps that make ``%r`` of ``%x`` and ``%y``, of 6 rows and 4 columns, ``%z`` and ``%y1``, rows,
``%w1`` of 24 elements, and ``%i`` and ``%j``, an integer for each row and column."""


def test_every_gradient_has_a_case() -> None:
    gradients = {name: op.KIND.gradient for name, op in OPERATIONS.items()}
    assert CASES.keys() == {name for name, g in gradients.items() if g not in (None, nothing)}


def test_nothing_depends_on_what_a_gradient_stops_at() -> None:
    """The derivative of the sum of stop(x) x is x, and not 2 x."""
    module = collir.parse(
        MESH + "func @f(%x: f64[6@a]) -> f64[] on @m {\n  %h = stop_gradient %x\n  %s = sin %h\n"
        '  %p = einsum "i, i ->" %s, %x\n  %l = all_reduce %p over a\n  return %l\n}\n'
    )
    [function] = functions_of(module)
    gradient = gradient_function(function, [0])
    tensors = inputs_of(function, 0)
    _, d_x = on_all_devices(module, gradient, tensors)
    assert np.allclose(d_x, np.sin(tensors[0]))
    assert [op.mnemonic for op in gradient.body.ops if isinstance(op, DistOp)].count("sin") == 1


def test_an_all_to_all_is_reversed_by_one() -> None:
    module = collir.parse(
        MESH + "func @f(%x: f64[4, 6@a]) -> f64[] on @m {\n  %h = all_to_all %x over a dim 1 to 0\n"
        "  %s = sin %h\n  %t = sum %s dims [0, 1]\n  %l = all_reduce %t over a\n"
        "  return %l\n}\n"
    )
    [function] = functions_of(module)
    gradient = gradient_function(function, [0])
    steps = [op.mnemonic for op in gradient.body.ops if isinstance(op, DistOp)]
    assert steps.count("all_to_all") == 2
    assert "redistribute" not in steps


@pytest.mark.parametrize("reduction", ["sum", "prod"])
def test_the_parts_of_a_partial_constant_are_the_constant_together(reduction: str) -> None:
    x = f"f64[2] partial({reduction}: a, b)"
    module = collir.parse(MESH + f"func @f(%x: {x}) -> {x} on @m {{ return %x }}")
    [function] = functions_of(module)
    block = function.body.block
    assert block.last_op is not None
    block.erase_op(block.last_op)
    made = BlockSteps(mesh_of(function), block).constant(dist_type(function.args[0]), 3)
    block.add_op(ReturnOp(made))
    module.verify()
    [result] = on_all_devices(module, function, inputs_of(function, 0))
    assert np.array_equal(result, [3, 3])


@pytest.mark.turns
@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_an_operation(name: str) -> None:
    """Check each case in every layout that it is well typed in."""
    for number, steps in enumerate(CASES[name]):
        modules = {layout: with_loss(steps, layout) for layout in LAYOUTS}
        assert modules[LAYOUTS[0]] is not None, steps
        for layout, module in modules.items():
            if module is not None:
                [function] = functions_of(module)
                assert wrong_gradients(module, function, number) == [], (steps, layout)


def with_loss(steps: str, layout: str) -> ModuleOp | None:
    """Return a program that sums the squares of what some steps make; None if these are not well
    typed."""
    rows, columns = (part.strip() for part in layout.rsplit(",", 1))
    text = MESH + (
        f"func @f(%x: f64[{layout}], %y: f64[{layout}], %z: f64[{columns}], %w: f64[3, {columns}], "
        f"%y1: f64[{columns}], %w1: f64[24], %i: i32[{rows}], %j: i32[{columns}]) "
        f"-> f64[{layout}] on @m {{\n  {steps.format(z=columns, r=rows)}\n"
        "  return %x\n}\n"
    )
    try:
        module = collir.parse(text)
    except collir.DiagnosticError:
        return None
    [function] = functions_of(module)
    block = function.body.block
    result = next(
        op.results[0] for op in block.ops if op.results and op.results[0].name_hint == "r"
    )
    assert block.last_op is not None
    block.erase_op(block.last_op)
    add = BlockSteps(mesh_of(function), block)
    value = add.laid_out(result, dist_type(result).whole)
    value = add.step("mul", (value, value), {})
    if rank := len(dist_type(value).dims):
        value = add.step("sum", (value,), {"dims": tuple(range(rank))})
    value = add.laid_out(value, dist_type(value).whole)
    block.add_op(ReturnOp(value))
    inputs = [arg.type for arg in function.args]
    function.properties["function_type"] = FunctionType.from_lists(inputs, [value.type])
    return module


# ---------------------------------------------------------------------------------------------
# Random programs
# ---------------------------------------------------------------------------------------------

STATE = "f64[4@a, 8]"


def random_steps(rng: random.Random, known: list[str], depth: int, used: list[int]) -> list[str]:
    """Return random steps on values of one layout; their results are added to those known."""
    lines: list[str] = []
    for _ in range(rng.randint(1, 4)):
        used[0] += 1
        new, x, y = f"%v{used[0]}", rng.choice(known), rng.choice(known)
        kind = rng.choice(["map", "map", "map", "product", "layer", "loop", "call", "fused"])
        if kind == "loop" and depth:
            lines += random_loop(rng, known, depth - 1, used)
        elif kind == "call" and depth:
            word = rng.choice(["", " recompute"])
            lines.append(f"{new} = call @layer({x}, %w, %u){word}")
            known.append(new)
        elif kind == "fused":
            callee = rng.choice(["kernel", "kernels"])
            lines.append(f"{new}, {new}b = call @{callee}({x}, {y}) fused")
            known += [new, f"{new}b"]
        elif kind == "layer":
            i = used[0]
            lines += [
                f'%h{i} = einsum "b h, h f -> b f" {x}, %w',
                f"%g{i} = {rng.choice(['gelu', 'tanh', 'silu'])} %h{i}",
                f'%p{i} = einsum "b f, f h -> b h" %g{i}, %u',
                f"%r{i} = all_reduce %p{i} over b",
                f"{new} = scale %r{i} by 0.1",  # keeps derivatives small
            ]
            known.append(new)
        else:
            step = rng.choice(["tanh", "sin", "softmax", "sigmoid"])
            line = f"{step} {x}{' dims [1]' * (step == 'softmax')}"
            if kind == "product":
                lines.append(f"{new}s = {rng.choice(['mul', 'add', 'sub'])} {x}, {y}")
                line = f"tanh {new}s"
            lines.append(f"{new} = {line}")
            known.append(new)
    return lines


def random_loop(rng: random.Random, known: list[str], depth: int, used: list[int]) -> list[str]:
    """Return a loop over the weights of three layers, with a carry, and a stack in some cases."""
    used[0] += 1
    new, stack, start, fixed = f"%v{used[0]}", f"%s{used[0]}", rng.choice(known), rng.choice(known)
    inner = ["%c", "%k"]
    body = random_steps(rng, inner, depth, used)
    last = [line for line in inner if line not in ("%c", "%k")] or inner
    stacked = rng.random() < 0.5
    body.append(f"%t{used[0]} = tanh {last[-1]}")  # keeps values small
    body.append(f"yield %t{used[0]}" + f", {rng.choice(inner)}" * stacked)
    words = rng.choice(["", " reverse"]) + rng.choice(["", "", " recompute"])
    lines = [
        f"{new}{f', {stack}' * stacked} = repeat 3 carry(%c = {start}) slice(%w = %ws, %u = %us) "
        f"with(%k = {fixed}, %ws = %ws, %us = %us){words} {{",
        *(f"  {line}" for line in body),
        "}",
    ]
    if stacked:
        lines.append(f"{new}s = sum {stack} dims [0]")
        known.append(f"{new}s")
    known.append(new)
    return lines


def random_program(rng: random.Random) -> str:
    known, used = ["%x"], [0]
    steps = random_steps(rng, known, 2, used)
    weights = "f64[8, 4@b]", "f64[4@b, 8]"
    stacks = "f64[3, 8, 4@b]", "f64[3, 4@b, 8]"
    head = f"%w: {weights[0]}, %u: {weights[1]}"
    first, gathered = f"%ws: {stacks[0]}", ""
    if rng.random() < 0.5:
        first, gathered = "%shards: f64[3, 8@a, 4@b]", "%ws = all_gather %shards over a dim 1"
    return MESH + "\n".join(
        [
            f"func @kernel(%x: {STATE}, %y: {STATE}) -> ({STATE}, {STATE}) on @m {{",
            "%a = tanh %x",
            "%b = mul %a, %y",
            "%c = softmax %b dims [1]",
            "return %c, %a",
            "}",
            f"func @kernels(%x: {STATE}, %y: {STATE}) -> ({STATE}, {STATE}) on @m {{",
            "%a, %b = call @kernel(%y, %x)",
            "%c = sin %a",
            "return %c, %b",
            "}",
            f"func @layer(%x: {STATE}, {head}) -> {STATE} on @m {{",
            *random_steps(rng, inner := ["%x"], 0, used),
            f"return {inner[-1]}",
            "}",
            f"func @f(%x: {STATE}, {head}, {first}, %us: {stacks[1]}) -> f64[] on @m {{",
            gathered,
            *steps,
            f"%loss = sum {known[-1]} dims [0, 1]",
            "%l = all_reduce %loss over a",
            "return %l",
            "}",
            "",
        ]
    )


@given(rng=RANDOM)
@settings(max_examples=12)
def test_gradients_of_random_programs(rng: random.Random) -> None:
    """Check loops in loops, calls and what is computed again."""
    module = collir.parse(random_program(rng))
    function = functions_of(module)[-1]
    assert wrong_gradients(module, function, rng.randrange(100)) == []


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=12)
def test_gradients_print_and_read_back(rng: random.Random) -> None:
    """Print the functions that the pass adds, and read them, in both forms."""
    module = collir.run_passes(collir.parse(random_program(rng)), "differentiate{of=f}")
    module.verify()
    text = write(module)
    assert write(collir.parse(text)) == text


TWICE = """
machine @k { level a[1] { port = 1 GB/s, latency = 1 us } }
mesh @m on @k { x = a:1 }
func @largest(%x: f64[3], %y: f64[3]) -> f64[] on @m {
  %m = maximum %x, %y
  %s = sum %m dims [0]
  return %s
}
func @f(%x: f64[3], %y: f64[3]) -> (f64[3], f64[3], f64[3]) on @m {
  %s, %dx = gradient @largest(%x, %y) wrt %x
  %t, %du, %dv = gradient @largest(%x, %y) wrt %x, %y
  return %dx, %du, %dv
}
"""


def test_a_tie_is_shared_and_each_call_has_the_gradients_that_it_seeks() -> None:
    module = collir.parse(TWICE)
    _ = gradients_as_calls(module)
    function = next(f for f in functions_of(module) if f.sym_name.data == "f")
    x = inputs_of(function, 0)[0]
    for gradient in on_one_device(function, [x, x]):
        assert gradient.tolist() == [0.5, 0.5, 0.5]


WITHIN = """
machine @k { level a[1] { port = 1 GB/s, latency = 1 us } }
mesh @m on @k { x = a:1 }
func @inner(%x: f64[3]) -> f64[3] on @m {
  %y = exp %x
  return %y
}
func @outer(%x: f64[3]) -> f64[] on @m {
  %y = call @inner(%x)
  %s = sum %y dims [0]
  return %s
}
func @loss(%x: f64[3]) -> f64[] on @m {
  %s = call @outer(%x) recompute
  return %s
}
func @f(%x: f64[3]) -> (f64[], f64[3]) on @m {
  %s, %dx = gradient @loss(%x) wrt %x
  return %s, %dx
}
"""


def test_what_a_call_calls_is_computed_again_with_it() -> None:
    (made,) = gradients_as_calls(collir.parse(WITHIN))
    assert [op.mnemonic for op in made.walk() if isinstance(op, DistOp)].count("exp") == 2
