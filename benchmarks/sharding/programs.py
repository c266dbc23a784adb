"""The machines and programs on which plans by amounts of data are measured."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

from run import alone
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.synthesis.propagation.graph import TensorGraph
from collir.synthesis.propagation.propagate import lay_out

MODELS: dict[str, dict[str, int]] = {
    "mlp": {"batch": 1024, "width": 2048, "layers": 8},
    "switch": {"groups": 64, "words": 512, "hidden": 512, "experts": 64, "places": 16, "layers": 4},
    "transformer": {"batch": 64, "seq": 512, "hidden": 1024, "heads": 16, "layers": 4},
}


def step_of(module: ModuleOp) -> tuple[FuncOp, TensorGraph]:
    """Return the step of a module, without calls, and its graph."""
    found: list[tuple[FuncOp, TensorGraph]] = []

    def keep(function: FuncOp, closed: bool) -> None:
        if function.sym_name.data == "step":
            found.append((function, TensorGraph.build(function, closed)))

    lay_out(module, keep, callees=False)
    return found[0]


class Level(NamedTuple):
    """A level of a machine.

    Attributes:
        count: how many parts it has.
        bandwidth: that of a device on it, in GB/s.
        latency: in microseconds.
    """

    count: int
    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Machine:
    """A machine of one or more levels, each an axis.

    Attributes:
        levels: from the outermost.
        rate: the operations of a device, in TFLOP/s.
        memory: the bandwidth of its memory, in GB/s.
    """

    levels: tuple[Level, ...] = (Level(8, 25, 14), Level(8, 200, 5))
    rate: float = 19.5
    memory: float = 1560.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The counts of its levels."""
        return tuple(level.count for level in self.levels)

    @property
    def ratio(self) -> float:
        """The bandwidth of its fastest level by that of its slowest."""
        bandwidths = [level.bandwidth for level in self.levels]
        return max(bandwidths) / min(bandwidths)

    @property
    def text(self) -> str:
        """The machine as it is written; a network has a rail for each device below."""
        levels: list[str] = []
        for number, (count, bandwidth, latency) in enumerate(self.levels):
            rails = math.prod(self.shape[number + 1 :])
            fabric = "network" if number < len(self.levels) - 1 else "nvlink"
            levels.append(
                f"level l{number}[{count}] {{ port = {bandwidth * rails:.4g} GB/s, "
                f"latency = {latency:.4g} us, rails = {rails}, fabric = {fabric} }}"
            )
        return (
            f"machine @box {{ device {{ compute f32 = {self.rate:.4g} TFLOP/s; "
            f"memory = 1000000 GB @ {self.memory:.4g} GB/s }} {' '.join(levels)} }}"
        )

    def module(self, text: str) -> ModuleOp:
        """Return a program on this machine."""
        axes = ", ".join(f"x{n} = l{n}:{count}" for n, count in enumerate(self.shape))
        return collir.parse(f"{self.text}\nmesh @m on @box {{ {axes} }}\n{text}")

    def without_latency(self) -> "Machine":
        """Return the machine with hardly any latency: proportions alone decide."""
        levels = tuple(level._replace(latency=1e-3) for level in self.levels)
        return replace(self, levels=levels)

    def with_one_bandwidth(self) -> "Machine":
        """Return the machine with the geometric mean of the bandwidths on all levels."""
        mean = geometric_mean(level.bandwidth for level in self.levels)
        levels = tuple(level._replace(bandwidth=mean) for level in self.levels)
        return replace(self, levels=levels)


def random_machine(seed: int) -> Machine:
    """Return a machine of one to three levels, with rates over two orders of magnitude; inner
    levels are not slower than outer ones."""
    rng = random.Random(seed)

    def any_of(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    depth = rng.choice((1, 1, 2, 2, 2, 2, 2, 3))
    bandwidths = sorted(any_of(2, 200) for _ in range(depth))
    latencies = sorted((any_of(1, 30) for _ in range(depth)), reverse=True)
    counts = [rng.choice((2, 4, 8) if depth < 3 else (2, 4)) for _ in range(depth)]
    rate = any_of(1, 100)
    levels = zip(counts, bandwidths, latencies, strict=True)
    return Machine(tuple(Level(*x) for x in levels), rate, 80 * rate)


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

_NEAR, _INPUTS = 36, 0.3
"""How far back a random step takes its operands from, and how many inputs a long program has for
each step."""


def random_program(seed: int, axes: int = 2, count: int | None = None) -> ModuleOp:
    """Return a random program of products, maps and reductions, for some axes; None: 5 to 30."""
    rng = random.Random(seed)
    sizes = rng.sample(DIMS, 3)
    shapes: list[tuple[int, ...]] = []
    inputs: list[int] = []
    lines: list[str] = []
    used: set[int] = set()
    for step in range(6 + (rng.randint(5, 30) if count is None else count)):
        if step < 6 or (count is not None and rng.random() < _INPUTS):
            inputs.append(len(shapes))
            shapes.append(tuple(rng.choice(sizes) for _ in range(rng.choice((2, 2, 3)))))
        if step >= 6:
            text, shape, operands = _random_step(rng, shapes)
            lines.append(f"  %v{len(shapes)} = {text}")
            shapes.append(shape)
            used.update(operands)
    arguments = ", ".join(f"%v{n}: f32[{', '.join(map(str, shapes[n]))}]" for n in inputs)
    last = sorted({*range(len(shapes))} - used - {*inputs})
    results = ", ".join(f"f32[{', '.join(map(str, shapes[n]))}]" for n in last)
    returned = ", ".join(f"%v{n}" for n in last)
    counts = [rng.choice((2, 4)) for _ in range(axes - 1)] + [rng.choice((2, 4, 8))]
    body = "\n".join([*lines, f"  return {returned}"])
    return _on(counts, f"func @step({arguments}) -> ({results}) on @m auto {{\n{body}\n}}\n")


def _on(counts: Sequence[int], function: str) -> ModuleOp:
    """Return a function on a machine with levels of some counts."""
    return Machine(tuple(Level(count, 100, 5) for count in counts)).module(function)


def _random_step(
    rng: random.Random, shapes: Sequence[tuple[int, ...]]
) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Return the text of a step, the shape of its result, and its operands: rather new values."""
    near = range(max(0, len(shapes) - _NEAR), len(shapes))
    a = max(rng.choice(near), rng.choice(near))
    kind = rng.choice(("product", "product", "map", "add", "sum"))
    if kind == "add":
        alike = [n for n in near if shapes[n] == shapes[a]]
        b = rng.choice(alike)
        return f"add %v{a}, %v{b}", shapes[a], (a, b)
    if kind == "sum" and len(shapes[a]) > 1:
        d = rng.randrange(len(shapes[a]))
        return f"sum %v{a} dims [{d}]", (*shapes[a][:d], *shapes[a][d + 1 :]), (a,)
    others = [n for n in near if n != a and {*shapes[n]} & {*shapes[a]}]
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


def layered_program(layers: int) -> ModuleOp:
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
    body = "\n".join([*lines, f"  return %{last}"])
    head = f"func @step({', '.join(arguments)}) -> f32[256, 512] on @m auto"
    return _on((4, 8), f"{head} {{\n{body}\n}}\n")
