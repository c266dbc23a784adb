"""Losses of random small networks, as text: the steps that a training step differentiates."""

import random
from dataclasses import dataclass, field

SIZES = {"seq": 2, "hidden": 4, "vocab": 5}
"""The sizes of a step, but for the batch and the layers."""


@dataclass(eq=False)
class Weight:
    """A weight of a network.

    Attributes:
        dims: its dimensions as a program writes them.
        stacked: whether its first dimension is that of the layers.
        trained: whether the step takes the gradient of it.
    """

    name: str
    dims: list[str]
    stacked: bool
    trained: bool = True


@dataclass(eq=False)
class Lines:
    """Steps of a block, with names that are not used twice."""

    lines: list[str] = field(default_factory=list[str])
    count: int = 0

    def add(self, text: str) -> str:
        """Add a step and return the name of its result."""
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"


class Network:
    """The loss of a random network."""

    def __init__(self, rng: random.Random, axes: dict[str, int], auto: bool):
        self.rng, self.axes, self.auto = rng, axes, auto
        self.dtype = rng.choice(["f32", "f32", "bf16"])
        self.data: list[tuple[str, str, list[str]]] = []
        self.weights: list[Weight] = []
        self.helpers: set[str] = set()
        self.aux: list[str] = []
        self.chance = lambda p=0.5: rng.random() < p

    # --- pieces ---------------------------------------------------------------------------------

    def weight(self, name: str, *dims: str, stacked: bool = False) -> str:
        if all(w.name != name for w in self.weights):
            whole = ["layers", *dims] if stacked else [*dims]
            self.weights.append(Weight(name, whole, stacked, self.chance(0.9)))
        return f"%{name}"

    def input(self, name: str, dtype: str, *dims: str) -> str:
        if all(own != name for own, _, _ in self.data):
            self.data.append((name, dtype, [*dims]))
        return f"%{name}"

    def summed(self, lines: Lines, value: str) -> str:
        """Return a number that was reduced over the batch, on every device."""
        return (
            value
            if self.auto or "data" not in self.axes
            else lines.add(f"all_reduce {value} over data")
        )

    def front(self, lines: Lines) -> str:
        rng, dtype = self.rng, self.dtype
        self.words = self.chance()
        if self.words:
            words = self.input("words", "i32", "batch", "seq")
            table = self.weight("embedding", "vocab", "hidden")
            x = lines.add(f"take {table}, {words} dim 0")
            self.tied = self.chance()
        else:
            x = self.input("x", dtype, "batch", "seq", "hidden")
            self.tied = False
        if self.chance(0.4):
            x = lines.add(f"add {x}, {self.weight('positions', 'seq', 'hidden')}")
        if self.chance(0.3):
            x = lines.add(f"mul {x}, {self.weight('gain', 'hidden')}")
        if self.chance(0.2):
            x = lines.add(f"mul {x}, {self.weight('factor', '1')}")
        if self.chance(0.2):
            number = lines.add(f"cast {self.input('heat', 'f32')} to {dtype}")
            x = lines.add(f"mul {x}, {number}")
        if self.chance(0.2):
            w = self.weight("in", "hidden", "hidden")
            x = lines.add(f'einsum "b s h, h i -> b s i" {x}, {w}')
            x = lines.add(f"{rng.choice(['tanh', 'gelu'])} {x}")
        return x

    def layers(self, lines: Lines, x: str) -> list[str]:
        """Add the loop, and return its carries."""
        rng, chance = self.rng, self.chance
        self.two = chance(0.3)
        start = lines.add(f"tanh {x}") if self.two and chance() else x
        carried = ["%h = " + x] + (["%c = " + start] if self.two else [])
        self.aux_carry = chance(0.2)
        self.reduction = rng.choice(["mean", "mean", "sum"])
        if self.aux_carry:
            carried.append("%a = " + lines.add(f"constant value 0 to {self.dtype}[]"))
        slices: list[str] = []
        fixed: list[str] = []
        body = Lines()

        def sliced(name: str, *dims: str) -> str:
            slices.append(f"%l_{name} = {self.weight(name, *dims, stacked=True)}")
            return f"%l_{name}"

        def given(outer: str, name: str) -> str:
            if f"%{name} = {outer}" not in fixed:
                fixed.append(f"%{name} = {outer}")
            return f"%{name}"

        h = "%h"
        if chance(0.3):
            h = body.add(f"mul {h}, {given(self.weight('gain', 'hidden'), 'g')}")
        if chance(0.3):
            h = body.add(f"rms_norm {h}, {sliced('norm', 'hidden')} dims [2] eps 1e-6")
        if chance(0.25) and self.words:
            bias = body.add(
                f"take {given(self.weight('embedding', 'vocab', 'hidden'), 'e')}, "
                f"{given('%words', 'words')} dim 0"
            )
            h = body.add(f"add {h}, {bias}")
        if chance(0.25):
            mask = given(self.input("mask", self.dtype, "batch", "seq", "hidden"), "mask")
            h = body.add(f"mul {h}, {mask}")
        if chance(0.2):
            h = body.add(f"add {h}, {given(x, 'x0')}")
        kind = rng.choice(["square", "mlp", "call", "mix"])
        if kind == "square":
            w = sliced("w", "hidden", "hidden")
            y = body.add(f'einsum "b s h, h i -> b s i" {h}, {w}')
            y = body.add(f"{rng.choice(['tanh', 'gelu', 'relu'])} {y}")
        elif kind == "mlp":
            up, down = sliced("up", "hidden", "2 * hidden"), sliced("down", "2 * hidden", "hidden")
            y = body.add(f'einsum "b s h, h f -> b s f" {h}, {up}')
            y = body.add(f"gelu {y}")
            y = body.add(f'einsum "b s f, f h -> b s h" {y}, {down}')
            if not self.auto and "model" in self.axes:
                y = body.add(f"all_reduce {y} over model")
        elif kind == "call":
            self.helpers.add("block")
            how = rng.choice(["", " fused", " recompute"])
            y = body.add(f"call @block({h}, {sliced('w', 'hidden', 'hidden')}){how}")
        else:
            scores = body.add(f'einsum "b s h, b t h -> b s t" {h}, {h}')
            scores = body.add(f"softmax {scores} dims [2]")
            y = body.add(f'einsum "b s t, b t h -> b s h" {scores}, {h}')
            y = body.add(f'einsum "b s h, h i -> b s i" {y}, {sliced("w", "hidden", "hidden")}')
        if chance(0.2):
            y = body.add(f"add {y}, {sliced('bias', 'hidden')}")
        if chance(0.2):
            y = body.add(f"mul {y}, {sliced('scale')}")
        z = body.add(f"add {y}, %h") if chance(0.7) else body.add(f"tanh {y}")
        yields = [z]
        if self.two:
            c = (
                body.add(f"mul %c, {given(self.weight('decay', 'hidden'), 'd')}")
                if chance()
                else "%c"
            )
            choice = rng.choice(["sum", "same", "swap"])
            if choice == "sum":
                yields.append(body.add(f"add {c}, {y}"))
            elif choice == "swap":
                yields = [body.add(f"add {z}, {c}"), z]
            else:
                yields.append(c)
        if self.aux_carry:
            squares = body.add(f"mul {y}, {y}")
            number = self.summed(body, body.add(f"{self.reduction} {squares} dims [0, 1, 2]"))
            yields.append(body.add(f"add %a, {number}"))
        stacks: list[str] = []
        if chance(0.3):
            stacks.append("number")
            squares = body.add(f"mul {y}, {y}")
            number = body.add(f"{self.reduction} {squares} dims [0, 1, 2]")
            yields.append(self.summed(body, number))
        if chance(0.2):
            stacks.append("whole")
            yields.append(rng.choice([z, y, "%h"]))
        names = ["%y"] + (["%c_last"] if self.two else [])
        names += (["%a_last"] if self.aux_carry else []) + [f"%s_{s}" for s in stacks]
        clause = f"repeat layers carry({', '.join(carried)})"
        clause += f" slice({', '.join(slices)})" if slices else ""
        clause += f" with({', '.join(fixed)})" if fixed else ""
        clause += " recompute" if chance(0.3) else ""
        lines.lines += [f"{', '.join(names)} = {clause} {{", *(f"  {x}" for x in body.lines)]
        lines.lines += [f"  yield {', '.join(yields)}", "}"]
        self.stacks = stacks
        return names[: 2 if self.two else 1]

    def behind(self, lines: Lines, x: str, carries: list[str]) -> list[str]:
        """Add the loss, and return the results."""
        chance, dtype = self.chance, self.dtype
        y = carries[0]
        if self.two and chance(0.8):
            y = lines.add(f"add {y}, {carries[1]}")
        if chance(0.3):
            y = lines.add(f"add {y}, {x}")
        elif chance(0.2):
            both = lines.add(f"concat {y}, {x} dim 2")
            w = self.weight("join", "2 * hidden", "hidden")
            y = lines.add(f'einsum "b s h, h i -> b s i" {both}, {w}')
        if chance(0.3):
            y = lines.add(f"mul {y}, {self.weight('gain', 'hidden')}")
        if chance(0.2):
            y = lines.add(f"mul {y}, {self.weight('factor', '1')}")
        if self.words:
            table = self.weight("embedding" if self.tied else "head", "vocab", "hidden")
            logits = lines.add(f'einsum "b s h, v h -> b s v" {y}, {table}')
            exact = logits if dtype == "f32" else lines.add(f"cast {logits} to f32")
            labels = "%words" if chance() else self.input("next", "i32", "batch", "seq")
            if labels == "%words" and chance():
                labels = lines.add("pad %words dim 1 low -1 high 1 value 0")
            terms = lines.add(f"cross_entropy {exact}, {labels} dim 2")
            dims = "[0, 1]"
        else:
            target = self.input("target", dtype, "batch", "seq", "hidden") if chance() else "%x"
            off = lines.add(f"sub {y}, {target}")
            off = off if dtype == "f32" else lines.add(f"cast {off} to f32")
            terms = lines.add(f"mul {off}, {off}")
            dims = "[0, 1, 2]"
        loss = self.summed(lines, lines.add(f"{self.reduction} {terms} dims {dims}"))
        results = [loss]
        if self.aux_carry:
            aux = "%a_last" if dtype == "f32" else lines.add("cast %a_last to f32")
            results[0] = lines.add(f"add {loss}, {aux}")
        if "number" in self.stacks and chance(0.8):
            aux = lines.add("sum %s_number dims [0]" if chance() else "mean %s_number dims [0]")
            aux = aux if dtype == "f32" else lines.add(f"cast {aux} to f32")
            results[0] = lines.add(f"add {results[0]}, {aux}")
            if chance():
                results.append(aux)
        if "whole" in self.stacks and chance(0.8):
            squares = lines.add("mul %s_whole, %s_whole")
            each = lines.add(f"{self.reduction} {squares} dims [1, 2, 3]")
            each = self.summed(lines, each)
            aux = lines.add(f"sum {each} dims [0]")
            aux = aux if dtype == "f32" else lines.add(f"cast {aux} to f32")
            results[0] = lines.add(f"add {results[0]}, {aux}")
        if chance(0.3):
            results[0] = lines.add(f"scale {results[0]} by 0.5")
        if chance(0.3):
            largest = lines.add(f"tanh {y}")
            largest = largest if dtype == "f32" else lines.add(f"cast {largest} to f32")
            results.append(self.summed(lines, lines.add(f"mean {largest} dims [0, 1, 2]")))
        return results


BLOCK = """func @block(%x: float[...], %w: float[...]) -> float[...] on any {
  %y = einsum "b s h, h i -> b s i" %x, %w
  %z = gelu %y
  return %z
}
"""
"""The function of a layer that some networks call."""
