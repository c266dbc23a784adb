"""The machines and programs on which plans by amounts of data are measured."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from run import alone
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.synthesis.propagation.graph import Graph
from collir.synthesis.propagation.propagate import lay_out

MODELS: dict[str, dict[str, int]] = {
    "mlp": {"batch": 1024, "width": 2048, "layers": 8},
    "switch": {"groups": 64, "words": 512, "hidden": 512, "experts": 64, "places": 16, "layers": 4},
    "transformer": {"batch": 64, "seq": 512, "hidden": 1024, "heads": 16, "layers": 4},
}


def step_of(module: ModuleOp) -> tuple[FuncOp, Graph]:
    """Return the step of a module, without calls, and its graph."""
    found: list[tuple[FuncOp, Graph]] = []

    def keep(function: FuncOp, closed: bool) -> None:
        if function.sym_name.data == "step":
            found.append((function, Graph.build(function, closed)))

    lay_out(module, keep, callees=False)
    return found[0]


@dataclass(frozen=True)
class Machine:
    """A machine of nodes.

    Attributes:
        nodes, gpus: the devices of the outer and of the inner level.
        rate: the operations of a device, in TFLOP/s; its memory brings a byte for 12.5.
        outer, inner: the bandwidth of a device on both levels, in GB/s.
        far, near: the latency of both, in microseconds.
    """

    nodes: int
    gpus: int
    rate: float = 19.5
    outer: float = 25.0
    inner: float = 200.0
    far: float = 14.0
    near: float = 5.0

    @property
    def text(self) -> str:
        """The machine as it is written; its network has a rail for each device of a node."""
        return (
            f"machine @box {{ device {{ compute f32 = {self.rate:.4g} TFLOP/s; "
            f"memory = 1000000 GB @ {80 * self.rate:.4g} GB/s }} "
            f"level node[{self.nodes}] {{ port = {self.outer * self.gpus:.4g} GB/s, "
            f"latency = {self.far:.4g} us, rails = {self.gpus}, fabric = network }} "
            f"level gpu[{self.gpus}] {{ port = {self.inner:.4g} GB/s, "
            f"latency = {self.near:.4g} us, fabric = nvlink }} }}"
        )

    def module(self, text: str) -> ModuleOp:
        """Return a program on this machine."""
        mesh = f"mesh @m on @box {{ outer = node:{self.nodes}, inner = gpu:{self.gpus} }}"
        return collir.parse(f"{self.text}\n{mesh}\n{text}")


def random_machine(seed: int) -> Machine:
    """Return a machine with rates over two orders of magnitude."""
    rng = random.Random(seed)

    def any_of(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    outer, inner = sorted([any_of(2, 200), any_of(2, 200)])
    near, far = sorted([any_of(1, 30), any_of(1, 30)])
    nodes, gpus = rng.choice((2, 4, 8)), rng.choice((2, 4, 8))
    return Machine(nodes, gpus, any_of(1, 100), outer, inner, far, near)


@cache
def program(model: str, sizes: tuple[tuple[str, int], ...]) -> str:
    """Return the functions of a model with some sizes."""
    if model == "transformer":
        module = collir.parse(Path(__file__).parent / "transformer.coll")
        module = collir.instantiate(module, "", **dict(sizes))
    else:
        module = alone(model, **dict(sizes))
    text = collir.emit(module, "coll")
    return text[text.index("func ") :]


# --- written programs ----------------------------------------------------------------------------

DIMS = (64, 128, 256, 512, 1024)


def random_text(seed: int, axes: int = 2) -> str:
    """Return a random program of 5 to 30 products, maps and reductions, for one axis or two."""
    rng = random.Random(seed)
    sizes = rng.sample(DIMS, 3)
    shapes = [tuple(rng.choice(sizes) for _ in range(rng.choice((2, 2, 3)))) for _ in range(6)]
    arguments = ", ".join(f"%v{n}: f32[{', '.join(map(str, x))}]" for n, x in enumerate(shapes))
    lines: list[str] = []
    used: set[int] = set()
    for _ in range(rng.randint(5, 30)):
        text, shape, operands = _random_step(rng, shapes)
        lines.append(f"  %v{len(shapes)} = {text}")
        shapes.append(shape)
        used.update(operands)
    last = [n for n in range(6, len(shapes)) if n not in used]
    results = ", ".join(f"f32[{', '.join(map(str, shapes[n]))}]" for n in last)
    returned = ", ".join(f"%v{n}" for n in last)
    nodes, gpus = rng.choice((2, 4)) if axes > 1 else 1, rng.choice((2, 4, 8))
    mesh = f"x = node:{nodes}, " * (axes > 1) + f"y = gpu:{gpus}"
    head = f"{Machine(nodes, gpus).text}\nmesh @m on @box {{ {mesh} }}\n"
    body = "\n".join([*lines, f"  return {returned}"])
    return f"{head}func @step({arguments}) -> ({results}) on @m auto {{\n{body}\n}}\n"


def _random_step(
    rng: random.Random, shapes: Sequence[tuple[int, ...]]
) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Return the text of a step, the shape of its result, and its operands: rather new values."""
    a = max(rng.randrange(len(shapes)), rng.randrange(len(shapes)))
    kind = rng.choice(("product", "product", "map", "add", "sum"))
    if kind == "add":
        alike = [n for n, shape in enumerate(shapes) if shape == shapes[a]]
        b = rng.choice(alike)
        return f"add %v{a}, %v{b}", shapes[a], (a, b)
    if kind == "sum" and len(shapes[a]) > 1:
        d = rng.randrange(len(shapes[a]))
        return f"sum %v{a} dims [{d}]", (*shapes[a][:d], *shapes[a][d + 1 :]), (a,)
    others = [n for n in range(len(shapes)) if n != a and {*shapes[n]} & {*shapes[a]}]
    if kind == "map" or not others:
        return f"relu %v{a}", shapes[a], (a,)
    b = rng.choice(others)
    left = [*"ijk"[: len(shapes[a])]]
    right = [*"pqr"[: len(shapes[b])]]
    pairs = [(d, e) for d, x in enumerate(shapes[a]) for e, y in enumerate(shapes[b]) if x == y]
    d, e = rng.choice(pairs)
    right[e] = left[d]
    size = dict(zip([*left, *right], [*shapes[a], *shapes[b]], strict=True))
    free = [i for i in size if i != left[d] or rng.random() < 0.25]
    over = rng.sample(free, min(len(free), rng.choice((2, 2, 3)))) or [left[d]]
    text = f'einsum "{" ".join(left)}, {" ".join(right)} -> {" ".join(over)}" %v{a}, %v{b}'
    return text, tuple(size[i] for i in over), (a, b)


def layered_text(layers: int) -> str:
    """Return layers of five operations one after the other."""
    arguments = ["%h: f32[256, 512]"]
    lines: list[str] = []
    last = "h"
    for n in range(layers):
        arguments += [f"%u{n}: f32[512, 2048]", f"%w{n}: f32[2048, 512]"]
        lines += [
            f'  %a{n} = einsum "b i, i j -> b j" %{last}, %u{n}',
            f"  %b{n} = relu %a{n}",
            f'  %c{n} = einsum "b i, i j -> b j" %b{n}, %w{n}',
            f"  %d{n} = softmax %c{n} dims [1]",
            f"  %e{n} = add %d{n}, %{last}",
        ]
        last = f"e{n}"
    head = f"{Machine(4, 8).text}\nmesh @m on @box {{ x = node:4, y = gpu:8 }}\n"
    body = "\n".join([*lines, f"  return %{last}"])
    return f"{head}func @step({', '.join(arguments)}) -> f32[256, 512] on @m auto {{\n{body}\n}}\n"
