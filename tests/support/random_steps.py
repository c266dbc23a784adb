"""Random training steps of small networks, as text, with options of the pass `pipeline`."""

import math
import random
from dataclasses import dataclass, field

SIZES = {"seq": 2, "hidden": 4, "vocab": 5}
"""The sizes of a step, but for the batch and the layers."""


@dataclass(frozen=True)
class RandomStep:
    """A training step, ``@step``.

    Attributes:
        text: the program.
        options: the options of the pass.
        rows: the chunks at each place.
    """

    text: str
    options: str
    rows: int


@dataclass(eq=False)
class _Weight:
    name: str
    dims: list[str]
    stacked: bool
    trained: bool = True


@dataclass(eq=False)
class _Lines:
    """Steps of a block, with names that are not used twice."""

    lines: list[str] = field(default_factory=list[str])
    count: int = 0

    def add(self, text: str) -> str:
        """Add a step and return the name of its result."""
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"


class _Network:
    """The loss of a random network."""

    def __init__(self, rng: random.Random, axes: dict[str, int], auto: bool):
        self.rng, self.axes, self.auto = rng, axes, auto
        self.dtype = rng.choice(["f32", "f32", "bf16"])
        self.data: list[tuple[str, str, list[str]]] = []
        self.weights: list[_Weight] = []
        self.helpers: set[str] = set()
        self.aux: list[str] = []
        self.chance = lambda p=0.5: rng.random() < p

    # --- pieces ---------------------------------------------------------------------------------

    def weight(self, name: str, *dims: str, stacked: bool = False) -> str:
        if all(w.name != name for w in self.weights):
            whole = ["layers", *dims] if stacked else [*dims]
            self.weights.append(_Weight(name, whole, stacked, self.chance(0.9)))
        return f"%{name}"

    def input(self, name: str, dtype: str, *dims: str) -> str:
        if all(own != name for own, _, _ in self.data):
            self.data.append((name, dtype, [*dims]))
        return f"%{name}"

    def summed(self, lines: _Lines, value: str) -> str:
        """Return a number that was reduced over the batch, on every device."""
        return (
            value
            if self.auto or "data" not in self.axes
            else lines.add(f"all_reduce {value} over data")
        )

    def front(self, lines: _Lines) -> str:
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

    def layers(self, lines: _Lines, x: str) -> list[str]:
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
        body = _Lines()

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

    def behind(self, lines: _Lines, x: str, carries: list[str]) -> list[str]:
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


_BLOCK = """func @block(%x: float[...], %w: float[...]) -> float[...] on any {
  %y = einsum "b s h, h i -> b s i" %x, %w
  %z = gelu %y
  return %z
}
"""


def random_step(rng: random.Random) -> RandomStep:
    """Return a random training step, with options that mostly fit."""
    places = rng.choice([2, 2, 2, 3, 4])
    axes: dict[str, int] = {"pipe": places}
    auto = rng.random() < 0.75
    if rng.random() < 0.6:
        axes["data"] = 2
    if rng.random() < 0.4 and places < 4:
        axes["model"] = 2
    names = ["gpipe", "1f1b", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"]
    schedule = rng.choice([*names, *(["dualpipe"] if places % 2 == 0 else [])])
    rows = 2 if schedule == "zb-v" else rng.choice([2, 2, 3]) if schedule == "interleaved" else 1
    count = places * rng.choice([1, 2]) if schedule == "interleaved" else rng.choice([1, 2, 3, 4])
    count = 2 * rng.choice([places, places + 1]) if schedule == "dualpipe" else count
    options = [f"schedule={schedule}"]
    options += [f"chunks={rows}"] if schedule == "interleaved" else []
    options += ["split=true"] if schedule in ("gpipe", "1f1b") and rng.random() < 0.4 else []
    network = _Network(rng, axes, auto)
    lines = _Lines()
    x = network.front(lines)
    carries = network.layers(lines, x)
    results = network.behind(lines, x, carries)
    if not any(w.trained for w in network.weights):
        network.weights[0].trained = True
    layers = places * rows * rng.choice([1, 1, 2])
    written = _Step(rng, network, axes, auto, layers, count)
    loop = rng.random() < 0.5
    options += [] if loop else [f"microbatches={count}"]
    text = "\n".join(
        [
            _mesh(rng, axes),
            *_taken(network),
            written.loss(lines, results),
            written.step(results, loop),
        ]
    )
    return RandomStep(text, " ".join(options), rows)


def _mesh(rng: random.Random, axes: dict[str, int]) -> str:
    """Return a machine of one or two levels, and a mesh with the axes in any order."""
    names = rng.sample(list(axes), len(axes))
    devices = math.prod(axes.values())
    inside = {name: f"gpu:{size}" for name, size in axes.items()}
    form = rng.random()
    if form < 0.3 and axes["pipe"] == 4:
        nodes, inside["pipe"] = 2, "node:2 * gpu:2"
    elif form < 0.7 and len(axes) > 1:
        outer = "pipe" if rng.random() < 0.7 else rng.choice(names)
        nodes = axes[outer]
        inside[outer] = f"node:{nodes}"
    else:
        nodes = 1
    levels = f"level node[{nodes}] {{ port = 8 GB/s, latency = 3 us }} " if nodes > 1 else ""
    levels += f"level gpu[{devices // nodes}] {{ port = 80 GB/s, latency = 1 us }}"
    listed = ", ".join(f"{name} = {inside[name]}" for name in names)
    rates = "compute f32 = 19.5 TFLOP/s, bf16 = 300 TFLOP/s"
    device = f"device {{ {rates}; memory = 40 GB @ 1555 GB/s }}"
    return f"machine @box {{ {device} {levels} }}\nmesh @m on @box {{ {listed} }}\n"


def _taken(network: _Network) -> list[str]:
    names = ["sgd", "momentum", "adamw", "squared_norm", "clip_factor", "scaled"]
    helpers = [_BLOCK] if "block" in network.helpers else []
    return [*(f"func @{name} = @{name} on any\n" for name in names), *helpers]


class _Step:
    """The text of the functions."""

    def __init__(
        self,
        rng: random.Random,
        network: _Network,
        axes: dict[str, int],
        auto: bool,
        layers: int,
        count: int,
    ):
        self.rng, self.network, self.axes, self.auto = rng, network, axes, auto
        self.count = count
        self.batch = 2 * rng.choice([1, 1, 2])
        self.sizes = {"batch": self.batch, **SIZES, "layers": layers}
        self.on = "on @m auto" if auto else "on @m"
        self.wide = rng.random() < 0.5  # weights of f32, for networks of bf16
        self.layouts = {w.name: self._layout(w) for w in network.weights}

    def _layout(self, w: _Weight) -> list[str]:
        dims, rng = [*w.dims], self.rng
        if not self.auto:
            if "model" in self.axes and w.name in ("up", "down"):
                dims = [d + "@model" if d == "2 * hidden" else d for d in dims]
            return dims
        for axis in ("data", "model"):
            free = [n for n, d in enumerate(dims) if "@" not in d and "hidden" in d]
            if axis in self.axes and free and rng.random() < 0.4:
                dims[rng.choice(free)] += f"@{axis}"
        return dims

    def _parameters(self, sizes: dict[str, int]) -> str:
        return ", ".join(f"{name} = {size}" for name, size in sizes.items())

    def _over_data(self, dims: list[str]) -> list[str]:
        over = "data" in self.axes
        return [
            d + "@data" if over and d in ("batch", f"{self.count} * batch") else d for d in dims
        ]

    def loss(self, lines: _Lines, results: list[str]) -> str:
        """Return the function that is differentiated."""
        net = self.network
        arguments = [
            f"%{name}: {dtype}[{', '.join(dims if self.auto else self._over_data(dims))}]"
            for name, dtype, dims in net.data
        ]
        for w in net.weights:
            dims = w.dims if self.auto else self.layouts[w.name]
            arguments.append(f"%{w.name}: {net.dtype}[{', '.join(dims)}] parameter")
        returned = ", ".join("f32[]" for _ in results)
        head = f"func @loss({self._parameters(self.sizes)})({', '.join(arguments)})"
        head += f" -> ({returned}) {self.on} {{"
        return "\n".join(
            [head, *(f"  {x}" for x in lines.lines), f"  return {', '.join(results)}", "}\n"]
        )

    def step(self, results: list[str], loop: bool) -> str:
        """Return the training step."""
        rng, net = self.rng, self.network
        trained = [w for w in net.weights if w.trained]
        dtype = "f32" if self.wide else net.dtype
        optimiser = rng.choice(["sgd", "momentum", "adamw"]) if dtype == "f32" else "plain"
        states = {"sgd": [], "plain": [], "momentum": ["m"], "adamw": ["m", "v"]}[optimiser]
        sizes = dict(self.sizes) if loop else self.sizes | {"batch": self.batch * self.count}
        if loop:
            sizes = {"count": self.count, **sizes}
        arguments: list[str] = []
        for name, own, dims in net.data:
            dims = self._over_data(dims)
            if loop and dims:
                dims = ["count", *dims]
            arguments.append(f"%{name}: {own}[{', '.join(dims)}]")
        arguments += ["%rate: f32[]", "%limit: f32[]", "%number: f32[]"]
        types = {w.name: f"{dtype}[{', '.join(self.layouts[w.name])}]" for w in net.weights}
        arguments += [f"%{w.name}: {types[w.name]} parameter" for w in net.weights]
        arguments += [f"%{s}_{w.name}: {types[w.name]} state" for w in trained for s in states]
        body = _Lines()
        used: dict[str, str] = {}
        for w in net.weights:
            same = dtype == net.dtype
            used[w.name] = f"%{w.name}" if same else body.add(f"cast %{w.name} to {net.dtype}")
        metrics, gradients = (self._loop if loop else self._call)(
            body, results, used, types, trained
        )
        if rng.random() < 0.3 and dtype == "f32":
            norms = [body.add(f"call @squared_norm({g})") for g in gradients]
            total = norms[0]
            for norm in norms[1:]:
                total = body.add(f"add {total}, {norm}")
            factor = body.add(f"call @clip_factor({total}, %limit)")
            gradients = [body.add(f"call @scaled({g}, {factor})") for g in gradients]
        returned, given = [*metrics], [self.metric_type(m) for m in metrics]
        new_states: list[tuple[str, str]] = []
        for w, g in zip(trained, gradients, strict=True):
            old = ", ".join([f"%{w.name}", g, *(f"%{s}_{w.name}" for s in states), "%rate"])
            old += ", %number" if optimiser == "adamw" else ""
            if optimiser == "plain":
                change = body.add(f"scale {g} by 0.125")
                new = body.add(f"sub %{w.name}, {change}")
            else:
                outs = [f"%new_{w.name}", *(f"%new_{s}_{w.name}" for s in states)]
                body.lines.append(f"{', '.join(outs)} = call @{optimiser}({old})")
                new = outs[0]
                new_states += [(x, f"{types[w.name]} state") for x in outs[1:]]
            returned.append(new)
            given.append(f"{types[w.name]} parameter")
        returned += [x for x, _ in new_states]
        given += [x for _, x in new_states]
        head = f"func @step({self._parameters(sizes)})({', '.join(arguments)})"
        head += f" -> ({', '.join(given)}) {self.on} {{"
        return "\n".join(
            [head, *(f"  {x}" for x in body.lines), f"  return {', '.join(returned)}", "}\n"]
        )

    def metric_type(self, name: str) -> str:
        return "f32[count]" if name.startswith("%stack") else "f32[]"

    def _gradient(self, used: dict[str, str], trained: list[_Weight]) -> str:
        given = ", ".join(f"{name} = {name}" for name in self.sizes)
        values = [f"%{name}" for name, _, _ in self.network.data]
        values += [used[w.name] for w in self.network.weights]
        wrt = ", ".join(used[w.name] for w in trained)
        return f"gradient @loss({given})({', '.join(values)}) wrt {wrt}"

    def _call(
        self,
        body: _Lines,
        results: list[str],
        used: dict[str, str],
        types: dict[str, str],
        trained: list[_Weight],
    ) -> tuple[list[str], list[str]]:
        metrics = [f"%metric{n}" for n in range(len(results))]
        found = [f"%d_{w.name}" for w in trained]
        body.lines.append(f"{', '.join([*metrics, *found])} = {self._gradient(used, trained)}")
        if self.wide and self.network.dtype != "f32":
            found = [body.add(f"cast {g} to f32") for g in found]
        return metrics, found

    def _loop(
        self,
        body: _Lines,
        results: list[str],
        used: dict[str, str],
        types: dict[str, str],
        trained: list[_Weight],
    ) -> tuple[list[str], list[str]]:
        rng, net = self.rng, self.network
        exact = self.wide or net.dtype == "f32"
        zero = body.add("constant value 0 to f32[]")
        metrics = [f"%metric{n}" for n in range(len(results))]
        kept = [rng.random() < 0.85 for _ in results]
        found = [f"%d_{w.name}" for w in trained]
        carried = [f"%c_{m[1:]} = {zero}" for m, k in zip(metrics, kept, strict=True) if k]
        for w in trained:
            like = f"%{w.name}" if exact else used[w.name]
            none = body.add(f"constant value 0 to {like}")
            carried.append(f"%c_{w.name} = {none}")
        slices = [f"%{name} = %{name}" for name, _, dims in net.data if dims]
        fixed = [f"%{name} = %{name}" for name, _, dims in net.data if not dims]
        fixed += [f"%u_{w.name} = {used[w.name]}" for w in net.weights]
        inner = _Lines()
        own = [f"%own{n}" for n in range(len(results))]
        own_d = [f"%own_{w.name}" for w in trained]
        call = self._gradient({w.name: f"%u_{w.name}" for w in net.weights}, trained)
        inner.lines.append(f"{', '.join([*own, *own_d])} = {call}")
        yields: list[str] = []
        stacked: list[str] = []
        for m, value, keep in zip(metrics, own, kept, strict=True):
            if keep:
                if rng.random() < 0.3:
                    value = inner.add(f"scale {value} by {1 / self.count}")
                yields.append(inner.add(f"add %c_{m[1:]}, {value}"))
            else:
                stacked.append(value)
        scaled = rng.random() < 0.3
        for w, value in zip(trained, own_d, strict=True):
            if self.wide and net.dtype != "f32":
                value = inner.add(f"cast {value} to f32")
            if scaled:
                value = inner.add(f"scale {value} by {1 / self.count}")
            pair = [f"%c_{w.name}", value] if rng.random() < 0.7 else [value, f"%c_{w.name}"]
            yields.append(inner.add(f"add {', '.join(pair)}"))
        sums = [m for m, k in zip(metrics, kept, strict=True) if k]
        lists = [f"%stack{n}" for n in range(len(stacked))]
        clause = f"repeat count carry({', '.join(carried)})"
        clause += f" slice({', '.join(slices)})" if slices else ""
        clause += f" with({', '.join(fixed)})"
        body.lines += [f"{', '.join([*sums, *found, *lists])} = {clause} {{"]
        body.lines += [f"  {x}" for x in inner.lines]
        body.lines += [f"  yield {', '.join([*yields, *stacked])}", "}"]
        return [*sums, *lists], found
