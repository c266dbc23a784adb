"""The programs of a training step in ``.coll``, and what their simulation says of its parts.

A program is simulated once for each width, number of heads, length, degree of tensor parallelism
and microbatch. It has one layer; stages have several, and the parts of the program are what they
are put together from.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from measured.rows import NODE, Row
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.dialects.machine import MachineOp, meshes_remembered
from collir.ir.functions import functions_of
from collir.ir.rotation import as_run
from collir.machine import Machine

FOLDER = Path(__file__).parents[1] / "models" / "training"
PADDED = 128
"""Megatron-LM makes the vocabulary a multiple of this for each tensor-parallel device."""

WORDS = 50257
"""The vocabulary of GPT-2."""

FUSED = "(%scores) fused"
"""The call of Megatron-LM's kernel of a softmax, which it has for multiples of 4 matrices."""


@dataclass(frozen=True)
class Cost:
    """The seconds of a part of a step: those of the device, and those of the host that issues its
    kernels. Both run at the same time."""

    device: float = 0.0
    host: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.device + other.device, self.host + other.host)

    def __mul__(self, count: float) -> "Cost":
        return Cost(count * self.device, count * self.host)

    @property
    def seconds(self) -> float:
        """The seconds of the part alone."""
        return max(self.device, self.host)


@dataclass(frozen=True)
class Parts:
    """The parts of a microbatch: a layer, what is before the first, and what is behind the last."""

    layer: Cost
    layer_back: Cost
    embedding: Cost
    embedding_back: Cost
    head: Cost


@dataclass(frozen=True)
class Sizes:
    """The sizes of a program of one microbatch."""

    micro: int
    seq: int
    hidden: int
    heads: int
    tensor: int

    @staticmethod
    def of(row: Row) -> "Sizes":
        """Return those of a row."""
        return Sizes(row.micro, row.seq, row.hidden, row.heads, row.tensor)

    @property
    def fuses_softmax(self) -> bool:
        """Whether Megatron-LM's kernel of a softmax takes these matrices of scores."""
        return self.micro * self.heads // self.tensor % 4 == 0

    @property
    def vocab(self) -> int:
        """The words of the vocabulary, which one device alone does not pad."""
        step = PADDED * self.tensor
        return WORDS if self.tensor == 1 else step * math.ceil(WORDS / step)


@lru_cache
def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@lru_cache
def machine(name: str = "a100.coll") -> Machine:
    """Return a fitted machine of one node."""
    module = collir.parse(_text(name), name)
    return next(op for op in module.ops if isinstance(op, MachineOp)).value()


def _module(page: str, mesh: str, nodes: int, gpus: int, run: str) -> ModuleOp:
    """Return the module of a function ``run`` that is written behind a page of programs."""
    head = f"machine @c = @a100(nodes = {nodes}, gpus = {gpus})\nmesh @p on @c {{ {mesh} }}\n"
    return collir.parse(page + _text("a100.coll") + head + run, "training.coll", functions=["run"])


def _alone(module: ModuleOp) -> ModuleOp:
    """Return the function ``run`` of a module, without calls of others."""
    module = as_run(module)
    for function in functions_of(module):
        if function.sym_name.data != "run":
            function.detach()
    return module


def _simulation(module: ModuleOp) -> Simulation:
    with meshes_remembered():
        return simulate_function(functions_of(module)[0], CostModel())


def _axis(name: str, nodes: int, gpus: int) -> str:
    factors = [f"{level}:{size}" for level, size in (("node", nodes), ("gpu", gpus)) if size > 1]
    return f"{name} = {' * '.join(factors) or 'gpu:1'}"


@cache
def _program(tensor: int, fused: bool) -> ModuleOp:
    """Return the program of a microbatch on a layer, forward and backward, for any sizes."""
    nodes, inner = math.ceil(tensor / NODE), min(tensor, NODE)
    mesh = f"{_axis('data', 1, NODE // inner)}, {_axis('model', nodes, inner)}"
    start = f"batch = 1, seq = 16, hidden = {4 * tensor}, heads = {tensor}, layers = 1"
    text = f"func @run = @microbatch({start}, vocab = {PADDED * tensor}) on @p\n"
    page = _text("megatron.coll")
    module = _module(page if fused else page.replace(FUSED, "(%scores)"), mesh, nodes, NODE, text)
    collir.run_passes(module, "differentiate")
    return _alone(module)


@cache
def microbatch(sizes: Sizes) -> Simulation:
    """Return the simulation of one microbatch on a layer, forward and backward."""
    module = _program(sizes.tensor, sizes.fuses_softmax).clone()
    given = {"seq": sizes.seq, "hidden": sizes.hidden, "heads": sizes.heads, "vocab": sizes.vocab}
    return _simulation(collir.instantiate(module, function="run", batch=sizes.micro, **given))


@lru_cache(maxsize=1 << 12)
def parts_of(sizes: Sizes, on: Machine) -> Parts:
    """Return the times of the parts of a microbatch on a machine."""
    simulation = _on(microbatch(sizes), on)
    issue = on.slowest.execution.issue if on.slowest else 0.0
    parts = {name: Cost() for name in ("embedding", "layer", "head", "layer_back", "back")}
    for name, step in _named(simulation):
        cost = Cost(step.task.time, issue * step.is_issued)
        parts[name] += cost
    return Parts(
        parts["layer"], parts["layer_back"], parts["embedding"], parts["back"], parts["head"]
    )


def _named(simulation: Simulation) -> Iterator[tuple[str, SimulatedStep]]:
    """Yield the steps of a microbatch with the part of the step that each is in."""
    names = iter(("embedding", "head", "back"))
    name = next(names)
    for step in simulation.program:
        if step.loop:
            inner = "layer" if name == "embedding" else "layer_back"
            yield from ((inner, own) for own in step.loop.body.program if own.kind != "copy")
            name = next(names)
        else:
            of_layer = step.result.removeprefix("new_") in OF_LAYERS
            yield "layer_back" if of_layer else name, step


OF_LAYERS = frozenset(
    f"{kind}_{part}"
    for kind, parts in (
        ("gain", "12"),
        ("bias", "12"),
        ("w", ("qkv", "o", "up", "down")),
        ("b", ("qkv", "o", "up", "down")),
    )
    for part in parts
)
"""The weights of a layer."""


def _on(simulation: Simulation, machine: Machine) -> Simulation:
    """Return a simulation on a machine with these numbers, of as many nodes as it is on."""
    own = simulation.mesh.machine
    levels = tuple(
        replace(old, port=new.port, latency=new.latency)
        for old, new in zip(own.levels, machine.levels, strict=True)
    )
    if levels == own.levels and machine.device == own.device:
        return simulation
    return simulation.on(replace(own, levels=levels, device=machine.device))


@dataclass(frozen=True)
class Layout:
    """The devices of a job: neighbours are tensor parallel, then data parallel, then stages."""

    gpus: int
    tensor: int
    data: int
    pipeline: int

    @staticmethod
    def of(row: Row) -> "Layout":
        """Return that of a row."""
        return Layout(row.gpus, row.tensor, row.data, row.pipeline)

    @property
    def node(self) -> int:
        """The GPUs of a node."""
        return min(self.gpus, NODE)

    @property
    def inside(self) -> tuple[int, int, int]:
        """The parts of the degrees that are inside a node: tensor, data, pipeline."""
        left, inside = self.node, list[int]()
        for degree in (self.tensor, self.data, self.pipeline):
            inside.append(math.gcd(degree, left))
            left //= inside[-1]
        return inside[0], inside[1], inside[2]

    def mesh(self) -> str:
        """Return the axes of a mesh, stages outermost."""
        tensor, data, pipeline = self.inside
        axes = (
            _axis("pipe", self.pipeline // pipeline, pipeline),
            _axis("data", self.data // data, data),
            _axis("model", self.tensor // tensor, tensor),
        )
        return ", ".join(axes)

    def simulation(self, page: str, run: str) -> Simulation:
        """Return the simulation of a function ``run`` on these devices, behind a page."""
        module = _module(page, self.mesh(), self.gpus // self.node, self.node, run)
        return _simulation(_alone(module))


REFERENCE = 1 << 20
"""The weights of a device, or the numbers that it sends, in the programs that are scaled."""


@cache
def _update(layout: Layout) -> Simulation:
    count = REFERENCE * layout.tensor
    run = f"func @run = @update(count = {count}) on @p\n"
    return layout.simulation(_text("update.coll"), run)


def update_seconds(layout: Layout, weights: float, on: Machine) -> float:
    """Return the seconds behind the last microbatch, for a number of weights of a device."""
    return _on(_update(layout).scaled(weights / REFERENCE), on).time


@cache
def _send(layout: Layout) -> Simulation:
    """Return the simulation of activations sent to the next stage, over the network if some are."""
    inside = layout.inside[2]
    before = (inside if inside < layout.pipeline else 1) - 1
    size = f"f16[{REFERENCE}, {layout.tensor}]"
    text = (
        f"func @run(%x: {size} at(pipe = {before})) -> {size} at(pipe = {before + 1}) on @p {{\n"
        "  %part = slice %x over model dim 1\n"
        f"  %there = send %part over pipe from {before} to {before + 1}\n"
        "  %y = all_gather %there over model dim 1\n  return %y\n}\n"
    )
    return layout.simulation("", text)


def send_seconds(layout: Layout, numbers: float, on: Machine) -> float:
    """Return the seconds in which a stage sends activations of 16-bit numbers to the next."""
    if layout.pipeline == 1:
        return 0.0
    return _on(_send(layout).scaled(numbers / layout.tensor / REFERENCE), on).time
