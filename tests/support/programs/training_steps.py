"""Random training steps of small networks, as text, with options of the pass `pipeline`."""

import math
import random
from dataclasses import dataclass

from support.programs.networks import BLOCK, SIZES, Lines, Network, Weight


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
    network = Network(rng, axes, auto)
    lines = Lines()
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


def _taken(network: Network) -> list[str]:
    names = ["sgd", "momentum", "adamw", "squared_norm", "clip_factor", "scaled"]
    helpers = [BLOCK] if "block" in network.helpers else []
    return [*(f"func @{name} = @{name} on any\n" for name in names), *helpers]


class _Step:
    """The text of the functions."""

    def __init__(
        self,
        rng: random.Random,
        network: Network,
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

    def _layout(self, w: Weight) -> list[str]:
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

    def loss(self, lines: Lines, results: list[str]) -> str:
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
        body = Lines()
        used: dict[str, str] = {}
        for w in net.weights:
            same = dtype == net.dtype
            used[w.name] = f"%{w.name}" if same else body.add(f"cast %{w.name} to {net.dtype}")
        names = [f"%metric{n}" for n in range(len(results))]
        gradients = [f"%d_{w.name}" for w in trained]
        if loop:
            metrics = self._loop(body, names, gradients, used, trained)
        else:
            metrics, gradients = names, self._call(body, names, gradients, used, trained)
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

    def _gradient(self, used: dict[str, str], trained: list[Weight]) -> str:
        given = ", ".join(f"{name} = {name}" for name in self.sizes)
        values = [f"%{name}" for name, _, _ in self.network.data]
        values += [used[w.name] for w in self.network.weights]
        wrt = ", ".join(used[w.name] for w in trained)
        return f"gradient @loss({given})({', '.join(values)}) wrt {wrt}"

    def _call(
        self,
        body: Lines,
        metrics: list[str],
        gradients: list[str],
        used: dict[str, str],
        trained: list[Weight],
    ) -> list[str]:
        """Add the gradient of a whole batch, and return the names of the gradients."""
        body.lines.append(f"{', '.join([*metrics, *gradients])} = {self._gradient(used, trained)}")
        if self.wide and self.network.dtype != "f32":
            return [body.add(f"cast {g} to f32") for g in gradients]
        return gradients

    def _loop(
        self,
        body: Lines,
        metrics: list[str],
        gradients: list[str],
        used: dict[str, str],
        trained: list[Weight],
    ) -> list[str]:
        """Add a loop over microbatches, and return the names of the metrics."""
        rng, net = self.rng, self.network
        exact = self.wide or net.dtype == "f32"
        zero = body.add("constant value 0 to f32[]")
        kept = [rng.random() < 0.85 for _ in metrics]
        carried = [f"%c_{m[1:]} = {zero}" for m, k in zip(metrics, kept, strict=True) if k]
        for w in trained:
            like = f"%{w.name}" if exact else used[w.name]
            none = body.add(f"constant value 0 to {like}")
            carried.append(f"%c_{w.name} = {none}")
        slices = [f"%{name} = %{name}" for name, _, dims in net.data if dims]
        fixed = [f"%{name} = %{name}" for name, _, dims in net.data if not dims]
        fixed += [f"%u_{w.name} = {used[w.name]}" for w in net.weights]
        inner = Lines()
        own = [f"%own{n}" for n in range(len(metrics))]
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
        body.lines += [f"{', '.join([*sums, *gradients, *lists])} = {clause} {{"]
        body.lines += [f"  {x}" for x in inner.lines]
        body.lines += [f"  yield {', '.join([*yields, *stacked])}", "}"]
        return [*sums, *lists]
