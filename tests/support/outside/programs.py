"""Random sharded programs with loops, calls, places and gradients, and what torch computes.

Values are matrices of one shape. A program says where each lies, and moves it by collectives.
"""

import random
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from support.outside.cases import Case, Result, sample
from support.outside.layouts import Layout, Mesh, distributed

MAPS = {
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "relu": torch.relu,
    "neg": torch.neg,
    "silu": torch.nn.functional.silu,
}
PAIRS = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum}


@dataclass
class Value:
    """A value of a program: its name, its type, and a function of the arguments to it."""

    name: str
    layout: Layout
    tensor: Any


@dataclass
class Body:
    """The steps of a function or loop, and the values that it knows.

    Attributes:
        mesh: the mesh.
        rng: the choices.
        values: the values that steps may use.
        lines: the steps.
        counter: a number for names, shared by the bodies inside.
    """

    mesh: Mesh
    rng: random.Random
    values: list[Value]
    lines: list[str] = field(default_factory=list)
    counter: list[int] = field(default_factory=lambda: [0])

    def add(self, text: str, layout: Layout, tensor: Any) -> Value:
        """Add a step, and return its result."""
        self.counter[0] += 1
        value = Value(f"%v{self.counter[0]}", layout, tensor)
        self.lines.append(f"{value.name} = {text}")
        self.values.append(value)
        return value

    # --- steps -----------------------------------------------------------------------------------

    def map(self, x: Value) -> Value:
        name = self.rng.choice([*MAPS, "softmax", "cumsum", "scale"])
        open_dims = [d for d in (0, 1) if not x.layout.shards[d]]
        if name in ("softmax", "cumsum") and open_dims:
            dim = self.rng.choice(open_dims)
            text = (
                f"softmax {x.name} dims [{dim}]"
                if name == "softmax"
                else f"cumsum {x.name} dim {dim}"
            )
            made = (
                torch.softmax(x.tensor, dim)
                if name == "softmax"
                else torch.cumsum(x.tensor, dim) * 0.1
            )
            y = self.add(text, x.layout, made if name == "softmax" else torch.cumsum(x.tensor, dim))
            return y if name == "softmax" else self.add(f"scale {y.name} by 0.1", y.layout, made)
        if name in MAPS:
            return self.add(f"{name} {x.name}", x.layout, MAPS[name](x.tensor))
        return self.add(f"scale {x.name} by -0.5", x.layout, x.tensor * -0.5)

    def pair(self, x: Value, y: Value) -> Value:
        name = self.rng.choice(list(PAIRS))
        return self.add(f"{name} {x.name}, {y.name}", x.layout, PAIRS[name](x.tensor, y.tensor))

    def product(self, x: Value, w: Value) -> Value:
        """Return x w, or of weights that lie otherwise, x transposed weights."""
        right = self.rng.random() < 0.5
        text = f'"i k, {"k j" if right else "j k"} -> i j"'
        k, j = (0, 1) if right else (1, 0)
        rows, inner = x.layout.shards
        if w.layout.shards[k] != inner or w.layout.place != x.layout.place:
            return self.moved(x)
        columns = w.layout.shards[j]
        if {*rows, *inner} & {*columns}:
            return self.moved(x)
        made = x.tensor @ (w.tensor if right else w.tensor.T)
        layout = replace(x.layout, shards=[rows, columns], partial=inner)
        y = self.add(f"einsum {text} {x.name}, {w.name}", layout, made)
        return self.whole(self.add(f"scale {y.name} by 0.125", layout, made * 0.125))

    def whole(self, x: Value) -> Value:
        """Reduce what is partial, some of it into shards."""
        if not x.layout.partial:
            return x
        axes = x.layout.partial
        rest = replace(x.layout, partial=(), shards=list(x.layout.shards))
        if self.rng.random() < 0.4:
            dim = self.rng.randrange(2)
            rest.shards[dim] = (*rest.shards[dim], *axes)
            return self.add(
                f"reduce_scatter {x.name} over {', '.join(axes)} dim {dim}", rest, x.tensor
            )
        return self.add(f"all_reduce {x.name} over {', '.join(axes)}", rest, x.tensor)

    def moved(self, x: Value) -> Value:
        """Move a value to another layout."""
        shards, dim = list(x.layout.shards), self.rng.randrange(2)
        if shards[dim]:
            *rest, last = shards[dim]
            shards[dim] = tuple(rest)
            if self.rng.random() < 0.5:
                shards[1 - dim] = (*shards[1 - dim], last)
                text = f"all_to_all {x.name} over {last} dim {dim} to {1 - dim}"
            else:
                text = f"all_gather {x.name} over {last} dim {dim}"
            return self.add(text, replace(x.layout, shards=shards), x.tensor)
        used = {axis for axes in shards for axis in axes} | {*x.layout.place}
        free = [axis for axis in self.mesh.axes if axis not in used]
        if not free:
            return x
        axis = self.rng.choice(free)
        if self.rng.random() < 0.3:
            return self.away(x, axis)
        shards[dim] = (*shards[dim], axis)
        return self.add(
            f"slice {x.name} over {axis} dim {dim}", replace(x.layout, shards=shards), x.tensor
        )

    def away(self, x: Value, axis: str) -> Value:
        """Compute something at one place, and bring it back from another."""
        size = self.mesh.axes[axis]
        here = self.rng.randrange(size)
        there = self.rng.randrange(size)
        at = replace(x.layout, place={**x.layout.place, axis: here})
        y = self.add(f"keep {x.name} at {axis} = {here}", at, x.tensor)
        y = self.map(y)
        if there != here:
            at = replace(y.layout, place={**x.layout.place, axis: there})
            y = self.add(f"send {y.name} over {axis} from {here} to {there}", at, y.tensor)
        back = replace(y.layout, place=dict(x.layout.place))
        return self.add(f"broadcast {y.name} over {axis}", back, y.tensor)

    def to(self, x: Value, layout: Layout) -> Value:
        """Move a value to a layout, through one that is whole."""
        if x.layout == layout:
            return x
        for dim in (0, 1):
            if axes := x.layout.shards[dim]:
                rest = list(x.layout.shards)
                rest[dim] = ()
                text = f"all_gather {x.name} over {', '.join(axes)} dim {dim}"
                x = self.add(text, replace(x.layout, shards=rest), x.tensor)
        for dim in (0, 1):
            if axes := layout.shards[dim]:
                more = list(x.layout.shards)
                more[dim] = axes
                text = f"slice {x.name} over {', '.join(axes)} dim {dim}"
                x = self.add(text, replace(x.layout, shards=more), x.tensor)
        return x

    def step(self, last: Value, weights: list[Value]) -> Value:
        """Add a random step on the last value."""
        what = self.rng.random()
        if what < 0.3:
            return self.map(last)
        if what < 0.5:
            like = [v for v in self.values if v.layout == last.layout]
            return self.pair(last, self.rng.choice(like))
        if what < 0.8 and weights:
            return self.product(last, self.rng.choice(weights))
        return self.moved(last)


def _argument(rng: random.Random, mesh: Mesh, size: int, places: bool = False) -> Layout:
    layout = Layout("f64", [size, size], [(), ()])
    for axis in mesh.axes:
        where = rng.choice([0, 1, None])
        if where is not None:
            layout.shards[where] = (*layout.shards[where], axis)
    return layout


def program(rng: random.Random, mesh: Mesh, label: str, steps: int = 8) -> Case:
    """Return a random program that returns a loss, a value, and the gradients of its arguments."""
    unit = 1
    for axis in mesh.axes:
        unit *= sum(mesh.parts(axis))
    size = unit * (1 if unit > 3 else 2)
    numbers = np.random.default_rng(rng.getrandbits(64))
    types = [_argument(rng, mesh, size) for _ in range(3)]
    count = rng.randint(1, 3)
    stacked = replace(types[2], shape=[count, size, size], shards=[(), *types[2].shards])
    known = [*types[:2], stacked]
    drawn = [
        distributed(mesh, x, partial(sample, numbers, "f64", x.shape, "any", False)) for x in known
    ]
    leaves = [torch.from_numpy(whole.copy()).requires_grad_() for whole, _, _ in drawn]
    first = [
        Value(f"%x{n}", x, leaf)
        for n, (x, leaf) in enumerate(zip(types[:2], leaves[:2], strict=True))
    ]
    body, helpers = Body(mesh, rng, list(first)), list[str]()
    last = body.values[0]
    for _ in range(steps):
        what = rng.random()
        if what < 0.2:
            last = _loop(body, last, types[2], leaves[2], count)
        elif what < 0.35:
            last = _call(body, last, helpers, f"{label}_h{len(helpers)}")
        else:
            last = body.step(last, first)
    return _finished(rng, body, last, (label, known, leaves, drawn, helpers), numbers)


def _loop(body: Body, start: Value, inner: Layout, stack: Any, count: int) -> Value:
    """Add a loop that carries a value, with a slice of the stack and an invariant."""
    rng, reverse = body.rng, body.rng.random() < 0.5
    fixed = rng.choice(body.values)
    tensors, carried = list[Any](), start.tensor
    lines, name = list[str](), ""
    state, before = rng.getstate(), body.counter[0]
    for number in reversed(range(count)) if reverse else range(count):
        rng.setstate(state)  # each iteration is the same text
        body.counter[0] = before
        values = [
            Value("%c", start.layout, carried),
            Value("%s", inner, stack[number]),
            Value("%k", fixed.layout, fixed.tensor),
        ]
        inside = Body(body.mesh, rng, values, counter=body.counter)
        last = values[0]
        for _ in range(3):
            last = inside.step(last, values[1:2])
        last = inside.map(last)
        carried = inside.to(last, start.layout).tensor
        end, lines = (
            inside.values[-1].name if inside.values[-1].layout == start.layout else "",
            inside.lines,
        )
        tensors.append(carried)
        name = next(v.name for v in reversed(inside.values) if v.tensor is carried)
        assert not end or end == name
    words = f"repeat {count} carry(%c = {start.name}) slice(%s = %x2) with(%k = {fixed.name})"
    body.counter[0] += 1
    made = f"%v{body.counter[0]}"
    body.lines.append(f"{made} = {words}{' reverse' * reverse} {{")
    body.lines += [f"  {line}" for line in lines] + [f"  yield {name}", "}"]
    value = Value(made, start.layout, carried)
    body.values.append(value)
    return value


def _call(body: Body, x: Value, helpers: list[str], label: str) -> Value:
    """Add a function of a value, and its call."""
    inside = Body(body.mesh, body.rng, [Value("%x", x.layout, x.tensor)])
    y = inside.values[0]
    for _ in range(2):
        y = inside.step(y, [])
    y = inside.map(y)
    head = f"func @{label}(%x: {x.layout.text()}) -> {y.layout.text()} on @{body.mesh.name} {{"
    helpers.append("\n  ".join([head, *inside.lines, f"return {y.name}"]) + "\n}\n")
    again = body.rng.choice(["", " recompute"])
    return body.add(f"call @{label}({x.name}){again}", y.layout, y.tensor)


def _finished(
    rng: random.Random, body: Body, last: Value, parts: tuple[Any, ...], numbers: Any
) -> Case:
    """Return the program with its loss and its gradients, as a case."""
    label, known, leaves, drawn, helpers = parts
    mesh = body.mesh
    draw = partial(sample, numbers, "f64", last.layout.shape, "any", False)
    c, held, _ = distributed(mesh, last.layout, draw)
    cut = [axis for axes in last.layout.shards for axis in axes]
    lines = [*body.lines, f"%p = mul {last.name}, %weights", "%t = sum %p dims [0, 1]"]
    lines.append(f"%loss = all_reduce %t over {', '.join(cut)}" if cut else "%loss = barrier %t")
    names = ["%x0", "%x1", "%x2", "%weights"]
    typed = ", ".join(f"{n}: {x.text()}" for n, x in zip(names, [*known, last.layout], strict=True))
    results = f"(f64[], {last.layout.text()})"
    text = "".join(helpers)
    text += f"func @{label}_f({typed}) -> {results} on @{mesh.name} {{\n  "
    text += "\n  ".join([*lines, f"return %loss, {last.name}"]) + "\n}\n"
    made = ", ".join(x.text() for x in known)
    text += f"func @{label}({typed}) -> (f64[], {last.layout.text()}, {made}) on @{mesh.name} {{\n"
    text += f"  %l, %y, %d0, %d1, %d2 = gradient @{label}_f({', '.join(names)}) wrt %x0, %x1, %x2\n"
    text += "  return %l, %y, %d0, %d1, %d2\n}\n"
    loss = (last.tensor * torch.from_numpy(c)).sum()
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    truths = [
        loss,
        last.tensor,
        *(torch.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves, strict=True)),
    ]
    layouts = [Layout("f64", [], []), last.layout, *known]
    case = Case(label, text, mesh, [*(buffers for _, buffers, _ in drawn), held], [])
    arrays = [truth.detach().numpy() for truth in truths]
    scale = max(1e-3, *(float(abs(x).max()) for x in arrays))
    case.results = [
        Result(x, truth, 1e4 * scale, 1.0) for x, truth in zip(layouts, arrays, strict=True)
    ]
    return case
