"""Random training steps whose layers are loops of all kinds, as text, with options of `pipeline`.

A loop has one to three carries, slices, invariants and stacked results. Weights are sliced, shared
by all layers, used in front of the layers and behind them, or several of these; any of them may be
frozen. Layers may go backward, stand side by side, or not matter for the loss.
"""

import random
from dataclasses import dataclass, field

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", "optimal")


@dataclass(frozen=True)
class LayerLoops:
    """A training step, ``@step``.

    Attributes:
        text: the program.
        options: the options of the pass.
    """

    text: str
    options: str


def random_layer_loops(rng: random.Random) -> LayerLoops:
    """Return a random training step, with options that mostly fit."""
    places = rng.choice([2, 2, 3])
    schedule = rng.choice(SCHEDULES)
    if schedule == "dualpipe":
        places = 2
    rows = 2 if schedule == "zb-v" else 1
    if schedule == "interleaved" or (schedule == "optimal" and rng.random() < 0.3):
        rows = rng.choice([2, 2, 3])
    count = rng.randint(1, 5)
    if schedule == "interleaved":
        count = places * rng.choice([1, 2])
    elif schedule == "dualpipe":
        count = 2 * rng.choice([places, places + 1])
    options = [f"schedule={schedule}"]
    options += [f"chunks={rows}"] if schedule in ("interleaved", "optimal") and rows > 1 else []
    options += ["limit=1"] if schedule == "optimal" else []
    split = schedule in ("gpipe", "1f1b", "interleaved") and rng.random() < 0.6
    options += ["split=true"] if split else []
    layers = places * rows * rng.choice([1, 1, 2])
    if rows == 1 and rng.random() < 0.2:
        each = [rng.randint(1, 2) for _ in range(places)]
        layers = sum(each)
        options.append(f"layers={','.join(map(str, each))}")
    elif schedule != "dualpipe" and rng.random() < 0.1:
        options.append("layers=balanced")
    loop = rng.random() < 0.3
    options += [] if loop else [f"microbatches={count}"]
    data = rng.random() < 0.2
    step = _Step(rng, layers, count, loop, data)
    devices = "gpu:2" if data else ""
    machine = (
        "machine @box { device { compute f64 = 1 TFLOP/s; memory = 1 GiB @ 1 TB/s } "
        f"level node[{places}] {{ port = 8 GB/s, latency = 3 us }} "
        + ("level gpu[2] { port = 80 GB/s, latency = 1 us } " if devices else "")
        + "}\n"
        + f"mesh @m on @box {{ pipe = node:{places}{', data = gpu:2' if data else ''} }}\n"
    )
    return LayerLoops(machine + step.text(), " ".join(options))


@dataclass
class _Lines:
    prefix: str
    lines: list[str] = field(default_factory=list[str])

    def add(self, text: str) -> str:
        name = f"%{self.prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name


class _Step:
    """The text of the functions of a step.

    Values are named with their shapes: `b h` a state of the network, `h` a row, `` a number.
    """

    def __init__(self, rng: random.Random, layers: int, count: int, loop: bool, data: bool):
        self.rng, self.layers, self.count, self.loop, self.data = rng, layers, count, loop, data
        self.batch = 2 * rng.choice([1, 2])
        self.weights: dict[str, str] = {}
        self.inputs: dict[str, str] = {}
        self.loops = 0

    # --- arguments ------------------------------------------------------------------------------

    def weight(self, name: str, dims: str) -> str:
        self.weights.setdefault(name, dims)
        return f"%{name}"

    def input(self, name: str, dims: str) -> str:
        self.inputs.setdefault(name, dims)
        return f"%{name}"

    # --- steps ----------------------------------------------------------------------------------

    def matrix(self, lines: _Lines, x: str, w: str) -> str:
        return lines.add(f'einsum "b i, i j -> b j" {x}, {w}')

    def front(self, lines: _Lines) -> str:
        rng = self.rng
        x = self.input("x", "b h")
        if rng.random() < 0.3:
            x = lines.add(f"mul {x}, {self.weight('gain', 'h')}")
        if rng.random() < 0.3:
            x = self.matrix(lines, x, self.weight("shared", "h h"))
        if rng.random() < 0.3:
            x = lines.add(f"tanh {x}")
        return x

    def loss(self) -> tuple[list[str], list[str]]:
        """Return the lines of the loss, and its results."""
        rng = self.rng
        lines = _Lines("a")
        x = self.front(lines)
        y, numbers = self.layer_loop(lines, x)
        if rng.random() < 0.15:
            z, more = self.layer_loop(lines, rng.choice([x, x, y]))
            y = lines.add(f"add {y}, {z}")
            numbers += more
        if rng.random() < 0.05:
            y = x  # the layers do not matter
        if rng.random() < 0.3:
            y = self.matrix(lines, y, self.weight(rng.choice(["shared", "head"]), "h h"))
        if rng.random() < 0.3:
            y = lines.add(f"mul {y}, {self.weight('gain', 'h')}")
        if rng.random() < 0.2:
            y = lines.add(f"add {y}, {x}")
        off = lines.add(f"sub {y}, {self.input('z', 'b h')}") if rng.random() < 0.7 else y
        squares = lines.add(f"mul {off}, {off}")
        kind = self.kind
        loss = lines.add(f"{kind} {squares} dims [0, 1]")
        results = [loss]
        for number in numbers:
            if rng.random() < 0.7:
                loss = lines.add(f"add {loss}, {number}")
            elif rng.random() < 0.5:
                results.append(number)
        results[0] = loss
        return lines.lines, results

    def layer_loop(self, lines: _Lines, x: str) -> tuple[str, list[str]]:
        """Add a loop over layers; return a state of the network, and numbers for the loss."""
        rng, n = self.rng, self.loops
        self.loops += 1
        carries = ["b h"] + [
            rng.choice(["b h", "b h", "", "h"]) for _ in range(rng.choice([0, 0, 1, 2]))
        ]
        carried: list[str] = []
        for index, dims in enumerate(carries):
            if dims == "b h":
                start = x if index == 0 or rng.random() < 0.5 else lines.add(f"sin {x}")
            elif dims == "h":
                start = self.weight(rng.choice(["gain", "start"]), "h")
            else:
                start = lines.add("constant value 0 to f64[]")
            carried.append(f"%c{index} = {start}")
        body = _Lines("i")
        slices: dict[str, str] = {}
        fixed: dict[str, str] = {}

        def sliced(name: str, dims: str) -> str:
            slices[f"%s_{name}"] = self.weight(name, ("l " + dims).strip())
            return f"%s_{name}"

        def given(value: str, name: str) -> str:
            fixed[f"%f_{name}"] = value
            return f"%f_{name}"

        both = rng.random() < 0.04
        state, vector = "%c0", next((f"%c{i}" for i, d in enumerate(carries) if d == "h"), None)
        for _ in range(rng.randint(1, 4)):
            kind = rng.randrange(11)
            if kind == 0:
                state = self.matrix(body, state, sliced("w", "h h"))
            elif kind == 1:
                state = body.add(f"add {state}, {sliced('bias', 'h')}")
            elif kind == 2:
                state = body.add(f"mul {state}, {sliced('rate', '')}")
            elif kind == 3:
                state = self.matrix(body, state, given(self.weight("shared", "h h"), "u"))
            elif kind == 4:
                g = given(self.weight(rng.choice(["gain", "own"]), "h"), "g")
                g = body.add(f"sin {g}") if rng.random() < 0.4 else g
                state = body.add(f"mul {state}, {g}")
            elif kind == 5:
                state = body.add(f"add {state}, {given(x, 'x')}")
            elif kind == 6:
                state = body.add(f"tanh {state}")
            elif kind == 7:
                state = body.add(f"add {state}, {given(self.input('mask', 'b h'), 'm')}")
            elif kind == 8 and vector:
                state = body.add(f"add {state}, {vector}")
            elif kind == 9:
                w, g = sliced("bias", "h"), given(self.weight("gain", "h"), "g2")
                both_ = body.add(f"mul {w}, {g}")
                state = body.add(f"mul {state}, {both_}")
            elif kind == 10 and self.inputs:
                t = lines.add(f"tanh {self.weight('own', 'h')}")
                state = body.add(f"mul {state}, {given(t, 't')}")
        if both:
            w = given(self.weight("bias", "l h"), "all")
            sliced("bias", "h")
            total = body.add(f"sum {w} dims [0]")
            state = body.add(f"add {state}, {total}")
        yields = [state]
        for index, dims in enumerate(carries[1:], 1):
            own = f"%c{index}"
            kind = rng.randrange(4)
            if dims == "b h":
                texts = [
                    own,
                    body.add(f"add {own}, {state}"),
                    body.add(f"mul {own}, {sliced('bias', 'h')}"),
                    state,
                ]
            elif dims == "h":
                texts = [
                    own,
                    body.add(f"mul {own}, {sliced('bias', 'h')}"),
                    body.add(f"tanh {own}"),
                    body.add(f"add {own}, {given(self.weight('own', 'h'), 'o')}"),
                ]
            else:
                squares = body.add(f"mul {state}, {state}")
                number = body.add(f"{self.kind} {squares} dims [0, 1]")
                texts = [own, *[body.add(f"add {own}, {number}")] * 3]
            yields.append(texts[kind])
        names = [f"%y{n}_{index}" for index in range(len(carries))]
        numbers: list[str] = []
        stacks: list[str] = []
        if rng.random() < 0.25:
            squares = body.add(f"mul {state}, {state}")
            yields.append(body.add(f"{self.kind} {squares} dims [0, 1]"))
            stacks.append(f"%k{n}_0")
        if rng.random() < 0.15:
            yields.append(rng.choice([state, "%c0"]))
            stacks.append(f"%k{n}_1")
        clause = f"repeat layers carry({', '.join(carried)})"
        if slices:
            clause += " slice(" + ", ".join(f"{a} = {b}" for a, b in slices.items()) + ")"
        if fixed:
            clause += " with(" + ", ".join(f"{a} = {b}" for a, b in fixed.items()) + ")"
        clause += " reverse" if rng.random() < 0.04 else ""
        clause += " recompute" if rng.random() < 0.25 else ""
        lines.lines += [f"{', '.join(names + stacks)} = {clause} {{"]
        lines.lines += [f"  {line}" for line in body.lines]
        lines.lines += [f"  yield {', '.join(yields)}", "}"]
        if f"%k{n}_0" in stacks:
            numbers.append(lines.add(f"{rng.choice(['sum', 'mean'])} %k{n}_0 dims [0]"))
        if f"%k{n}_1" in stacks:
            squares = lines.add(f"mul %k{n}_1, %k{n}_1")
            each = lines.add(f"{self.kind} {squares} dims [1, 2]")
            numbers.append(lines.add(f"sum {each} dims [0]"))
        y = names[0]
        for name, dims in zip(names[1:], carries[1:], strict=True):
            if dims == "" and rng.random() < 0.8:
                numbers.append(name)
            elif dims and rng.random() < 0.7:
                y = lines.add(f"add {y}, {name}")
        return y, numbers

    # --- text -----------------------------------------------------------------------------------

    def type_of(self, dims: str, step: bool = False) -> str:
        names = {"b": "batch", "h": "3", "l": "layers"}
        words = [names[dim] for dim in dims.split()]
        if "b" in dims.split() and self.data and step:
            words[0] += "@data"
        if "b" in dims.split() and self.loop and step:
            words.insert(0, "count")
        return f"f64[{', '.join(words)}]"

    def text(self) -> str:
        rng = self.rng
        self.kind = rng.choice(["sum", "mean"])
        lines, results = self.loss()
        if not self.weights:
            return self.__class__(rng, self.layers, self.count, self.loop, self.data).text()
        trained = [name for name in self.weights if rng.random() < 0.7]
        trained = trained or [rng.choice(list(self.weights))]
        arguments = self.inputs | self.weights
        listed = ", ".join(f"%{name}: {self.type_of(dims)}" for name, dims in arguments.items())
        parameters = f"batch = {self.batch}, layers = {self.layers}"
        types = ", ".join(["f64[]"] * len(results))
        loss = [
            f"func @loss({parameters})({listed}) -> ({types}) on @m auto {{",
            *(f"  {line}" for line in lines),
            f"  return {', '.join(results)}",
            "}",
        ]
        batch = self.batch if self.loop else self.batch * self.count
        sizes = f"batch = {batch}, layers = {self.layers}"
        sizes += f", count = {self.count}" if self.loop else ""
        listed = ", ".join(
            f"%{name}: {self.type_of(dims, True)}" + (" parameter" if name in self.weights else "")
            for name, dims in arguments.items()
        )
        given = ", ".join(f"%{name}" for name in arguments)
        call = f"gradient @loss(batch = batch, layers = layers)({given}) wrt "
        call += ", ".join("%" + name for name in trained)
        metrics = [f"%m{n}" for n in range(len(results))]
        gradients = [f"%d_{name}" for name in trained]
        body: list[str] = []
        if self.loop:
            carried: list[str] = []
            ends: list[str] = []
            inner = [
                f"  {', '.join(f'%n{n}' for n in range(len(metrics) + len(trained)))} = {call}"
            ]
            for n, (name, dims) in enumerate(
                [
                    *((m, "") for m in metrics),
                    *zip(gradients, (self.weights[t] for t in trained), strict=True),
                ]
            ):
                body.append(f"%o{n} = constant value 0 to {self.type_of(dims)}")
                carried.append(f"{name} = %o{n}")
                inner.append(f"  %e{n} = add {name}, %n{n}")
                ends.append(f"%e{n}")
            slices = [f"%{a} = %{a}" for a in self.inputs]
            fixed = [f"%{w} = %{w}" for w in self.weights]
            body.append(
                f"{', '.join(metrics + gradients)} = repeat count carry({', '.join(carried)}) "
                f"slice({', '.join(slices)}) with({', '.join(fixed)}) {{"
            )
            body += [*inner, f"  yield {', '.join(ends)}", "}"]
        else:
            body.append(f"{', '.join(metrics + gradients)} = {call}")
        returned: list[str] = []
        for name, gradient in zip(trained, gradients, strict=True):
            if rng.random() < 0.5:
                body += [
                    f"%u_{name} = scale {gradient} by -0.5",
                    f"%t_{name} = add %{name}, %u_{name}",
                ]
                returned.append(f"%t_{name}")
            else:
                returned.append(gradient)
        returns = ["f64[]"] * len(metrics) + [self.type_of(self.weights[t]) for t in trained]
        step = [
            f"func @step({sizes})({listed}) -> ({', '.join(returns)}) on @m auto {{",
            *(f"  {line}" for line in body),
            f"  return {', '.join(metrics + returned)}",
            "}",
        ]
        return "\n".join([*loss, *step, ""])
