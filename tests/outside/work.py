"""FLOPs and bytes of each operation, as collir counts them and as XLA does: ``python work.py``.

The columns are the operations and bytes of collir, and those of XLA's cost analysis for the same
function of jax: its flops and transcendentals. The last rows are losses of models with gradients.
"""

import json
import re
import runpy
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support.programs.model_pages import with_gradients

import collir
from collir.cost.model import CostModel
from collir.cost.programs.local_steps import LocalStep
from collir.cost.programs.simulate import simulate_function
from collir.dialects.tensor import dist_type
from collir.transforms.as_run import function_as_run

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")

Function = Callable[[Any], Any] | Callable[[Any, Any], Any] | Callable[[Any, Any, Any], Any]


HEAD = """
machine @box {
  device { compute f32 = 1 TFLOP/s; memory = 100 GB @ 1 TB/s }
  level gpu[1] { port = 1 GB/s, latency = 1 us }
}
mesh @m on @box { a = 1 }
"""
X, Y, V = (64, 96, 128), (128, 80), (128,)
IMAGE, FILTER = (8, 32, 32, 16), (3, 3, 16, 24)


def _pool(x: Any, start: float, function: Any) -> Any:
    return jax.lax.reduce_window(x, start, function, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _conv(x: Any, w: Any, pad: int = 1, stride: int = 1) -> Any:
    names = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), [(pad, pad)] * 2, dimension_numbers=names
    )


def _norm(x: Any, g: Any, b: Any) -> Any:
    c = x - x.mean(-1, keepdims=True)
    return c * jax.lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5) * g + b


def _pulled_back(function: Callable[[Any], Any], at: Any, gradient: Any) -> Any:
    """Return the gradient of the argument of a function from that of its result."""
    return jax.vjp(function, at)[1](gradient)[0]


STEPS = "stride [1, 1] padding [1, 1]"
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": jnp.negative,
    "relu": lambda x: jnp.maximum(x, 0),
    "exp": jnp.exp,
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "tanh": jnp.tanh,
    "erf": jax.lax.erf,
    "sigmoid": jax.nn.sigmoid,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}
CASES: dict[str, tuple[str, list[Any], Function]] = {
    "einsum": ('einsum "a b c, c d -> a b d" {0}, {1}', [X, Y], lambda x, y: x @ y),
    "einsum batched": (
        'einsum "a b c, a d c -> a b d" {0}, {1}',
        [X, X],
        lambda x, y: jnp.einsum("abc,adc->abd", x, y),
    ),
    "einsum outer": (
        'einsum "a, b -> a b" {0}, {1}',
        [(512,), (256,)],
        lambda x, y: jnp.einsum("a,b->ab", x, y),
    ),
    "einsum sum": ('einsum "a b c -> a" {0}', [X], lambda x: jnp.einsum("abc->a", x)),
    **{name: (f"{name} {{0}}", [X], function) for name, function in UNARY.items()},
    **{
        name: (f"{name} {{0}}, {{1}}", [X, V], getattr(jnp, like))
        for name, like in {
            "add": "add",
            "sub": "subtract",
            "mul": "multiply",
            "div": "divide",
            "maximum": "maximum",
            "minimum": "minimum",
            "greater": "greater",
            "equal": "equal",
        }.items()
    },
    "sum": ("sum {0} dims [2]", [X], lambda x: x.sum(2)),
    "mean": ("mean {0} dims [2]", [X], lambda x: x.mean(2)),
    "max": ("max {0} dims [2]", [X], lambda x: x.max(2)),
    "softmax": ("softmax {0} dims [2]", [X], lambda x: jax.nn.softmax(x, 2)),
    "log_softmax": ("log_softmax {0} dims [2]", [X], lambda x: jax.nn.log_softmax(x, 2)),
    "layer_norm": ("layer_norm {0}, {1}, {2} dims [2] eps 1e-5", [X, V, V], _norm),
    "rms_norm": (
        "rms_norm {0}, {1} dims [2] eps 1e-5",
        [X, V],
        lambda x, g: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g,
    ),
    "conv": (f"conv {{0}}, {{1}} {STEPS}", [IMAGE, FILTER], _conv),
    "conv valid": (
        "conv {0}, {1} stride [1, 1] padding [0, 0]",
        [IMAGE, FILTER],
        lambda x, w: _conv(x, w, 0),
    ),
    "max_pool": (
        "max_pool {0} window [2, 2] stride [2, 2] padding [0, 0]",
        [IMAGE],
        lambda x: _pool(x, -jnp.inf, jax.lax.max),
    ),
    "avg_pool": (
        "avg_pool {0} window [2, 2] stride [2, 2] padding [0, 0]",
        [IMAGE],
        lambda x: _pool(x, 0.0, jax.lax.add) / 4,
    ),
    "transpose": ("transpose {0} order [2, 0, 1]", [X], lambda x: x.transpose(2, 0, 1)),
    "scale": ("scale {0} by 0.5", [X], lambda x: x * 0.5),
    "pad": ("pad {0} dim 1 low 2 high 3", [X], lambda x: jnp.pad(x, ((0, 0), (2, 3), (0, 0)))),
    "conv_transpose": (
        "conv_transpose {0}, {1} stride [2, 2] padding [1, 1] to f32[8, 32, 32, 16]",
        [(8, 16, 16, 24), FILTER],
        lambda g, w: _pulled_back(lambda x: _conv(x, w, 1, 2), jnp.zeros(IMAGE), g),
    ),
    "conv_filter": (
        "conv_filter {0}, {1} stride [2, 2] padding [1, 1] to f32[3, 3, 16, 24]",
        [IMAGE, (8, 16, 16, 24)],
        lambda x, g: _pulled_back(lambda w: _conv(x, w, 1, 2), jnp.zeros(FILTER), g),
    ),
    "cumsum": ("cumsum {0} dim 2", [X], lambda x: jnp.cumsum(x, 2)),
    "argmax": ("argmax {0} dim 2", [X], lambda x: jnp.argmax(x, 2).astype(jnp.int32)),
    "top_k": ("top_k {0} k 4 dim 2", [X], lambda x: jax.lax.top_k(x, 4)[0]),
    "take": ("take {0}, {1} dim 0", [(4096, 64), "i32[512]"], lambda t, i: t[i]),
    "take_transpose": (
        "take_transpose {0}, {1} dim 0 to f32[4096, 64]",
        [(512, 64), "i32[512]"],
        lambda g, i: jnp.zeros((4096, 64)).at[i].add(g),
    ),
    "one_hot": ("one_hot {0} to f32[512, 256]", ["i32[512]"], lambda i: jax.nn.one_hot(i, 256)),
    "cross_entropy": (
        "cross_entropy {0}, {1} dim 1",
        [(512, 256), "i32[512]"],
        lambda x, i: -jnp.take_along_axis(jax.nn.log_softmax(x), i[:, None], 1)[:, 0],
    ),
    "concat": ("concat {0}, {1} dim 1", [X, X], lambda x, y: jnp.concatenate([x, y], 1)),
}
"""The step, the shapes of its operands, and the same in jax."""


def of_collir(text: str) -> tuple[float, float]:
    """Return the operations and the bytes of all local steps of the last function of a program."""
    simulation = collir.simulate(collir.parse(text))[-1]
    return total(simulation)


def total(simulation: Any) -> tuple[float, float]:
    """Return the operations and the bytes of all local steps."""
    flops = moved = 0.0
    for step in simulation.steps:
        does = step.does
        if isinstance(does, LocalStep):
            flops += sum(count for _, count in does.work)
            moved += does.size
        elif hasattr(does, "body"):
            more, sent = total(does.body)
            flops, moved = flops + does.times * more, moved + does.times * sent
    return flops, moved


def _struct(shape: Any) -> Any:
    """Return a shape of f32, or of the integers that a text says."""
    if isinstance(shape, str):
        return jax.ShapeDtypeStruct((int(shape[4:-1]),), jnp.int32)
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def of_xla(function: Any, *inputs: Any) -> tuple[float, float]:
    """Return the operations, with transcendentals, and the bytes that XLA counts."""
    found: Any = jax.jit(function).lower(*inputs).compile().cost_analysis()
    return found.get("flops", 0.0) + found.get("transcendentals", 0.0), found["bytes accessed"]


def rows() -> list[tuple[str, float, float, float, float]]:
    made: list[tuple[str, float, float, float, float]] = []
    for name, (step, shapes, function) in CASES.items():
        structs = list(map(_struct, shapes))
        shape = jax.eval_shape(function, *structs)
        kind = {"bool": "bool", "int32": "i32"}.get(str(shape.dtype), "f32")
        own = [s if isinstance(s, str) else f"f32{list(s)}" for s in shapes]
        types = ", ".join(f"%x{n}: {x}" for n, x in enumerate(own))
        names = [f"%x{n}" for n in range(len(shapes))]
        text = f"{HEAD}func @f({types}) -> {kind}{list(shape.shape)} on @m {{\n"
        text += f"  %r = {step.format(*names)}\n  return %r\n}}\n"
        made.append((name, *of_collir(text), *of_xla(function, *structs)))
    return made


MODELS: dict[str, dict[str, int]] = {
    "mlp": {"batch": 256, "width": 256, "layers": 2},
    "gpt": {"batch": 4, "seq": 64, "hidden": 128, "heads": 4, "layers": 1, "vocab": 512},
    "llama": {
        "batch": 4, "seq": 64, "hidden": 128, "heads": 8, "kv": 4, "inner": 352, "layers": 1,
        "vocab": 512,
    },
    "bert": {"batch": 4, "seq": 64, "hidden": 128, "heads": 4, "layers": 1, "vocab": 512},
    "vit": {
        "batch": 4, "grid": 8, "patch": 8, "hidden": 128, "heads": 4, "layers": 1, "classes": 100,
    },
    "vgg19": {"batch": 8, "side": 64, "width": 16, "hidden": 128, "classes": 10},
}  # fmt: skip
"""Sizes of each model; one layer, as XLA counts the body of a loop once."""

ROOT = Path(__file__).parents[2]


def of_model(name: str) -> tuple[float, float, float, float]:
    """Return the work of the loss of a page with all gradients, on one device, and XLA's."""
    machine, mesh = HEAD.split("mesh")[0], "mesh @m on @box { data = 1, model = 1 }"
    with TemporaryDirectory() as folder:
        for page in (ROOT / "examples" / "models").glob("*.coll"):
            text = page.read_text(encoding="utf-8").replace("bf16", "f32")
            text = re.sub(r"\nmachine @box = .*", f"\n{machine}", text)
            text = re.sub(r"\nmesh @m on @box .*", f"\n{mesh}", text)
            (Path(folder) / page.name).write_text(text, encoding="utf-8")
        module = collir.parse(Path(folder) / f"{name}.coll")
    sizes: dict[str, Any] = {**MODELS[name]}
    collir.instantiate(module, **sizes)
    function, wrt = with_gradients(module, "loss")
    types = [dist_type(argument) for argument in function.args]
    own = simulate_function(function_as_run(function), CostModel())
    loss = runpy.run_path(str(ROOT / "benchmarks" / "models" / "in_jax" / f"{name}.py"))["loss"]
    inputs = [
        jax.ShapeDtypeStruct(x.shape, jnp.float32 if x.dtype.is_float else jnp.int32) for x in types
    ]
    return (*total(own), *of_xla(jax.value_and_grad(loss, tuple(wrt)), *inputs))


if __name__ == "__main__":
    made = [*rows(), *((name, *of_model(name)) for name in MODELS)]
    if "--json" in sys.argv:
        print(json.dumps({name: numbers for name, *numbers in made}))
    else:
        for name, *numbers in made:
            print(f"{name:16}" + "".join(f"{number:12.4g}" for number in numbers))
