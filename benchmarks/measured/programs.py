"""The programs of a training step in ``.coll``, and what their simulation says of its parts.

A program is simulated once for each width, number of heads, length, degree of tensor parallelism
and microbatch. It has one layer; stages have several, and the parts of the program are what they
are put together from.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from pathlib import Path

from measured.rows import NODE, Row
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.model import CostModel
from collir.cost.programs.local_steps import LocalStep, local_times
from collir.cost.programs.simulate import simulate_function
from collir.cost.programs.simulation import SimulatedStep, Simulation
from collir.dialects.machine import MachineOp, mesh_of, meshes_remembered
from collir.dialects.nested import RepeatOp
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.layout import DType
from collir.machine import Device, Machine
from collir.transforms.as_run import as_run

FOLDER = Path(__file__).parents[1] / "models" / "training"
PADDED = 128
"""Megatron-LM makes the vocabulary a multiple of this for each tensor-parallel device."""

WORDS = 50257
"""The vocabulary of GPT-2."""

CORE = "(%q, %k, %v, %mask_a)"
"""The call of attention in a layer."""

_NORM_1 = "call @norm(%x, %gain_1, %bias_1) fused"
_NORM_2 = "call @norm(%h, %gain_2, %bias_2) fused"
GATHER = "all_gather %own_{} over model dim 0"
_LAST = "call @norm(%y, %gain, %bias) fused"
_AT = "%at = reshape %positions to"
SEQUENCE = (
    *(
        (f"{mask}: bool[{of}seq, batch,", f"{mask}: bool[{of}seq@model, batch,")
        for mask, of in (
            ("%mask_o", "layers, "),
            ("%mask_d", "layers, "),
            ("%mask_o", ""),
            ("%mask_d", ""),
            ("%mask_e", ""),
        )
    ),
    ("(%x: f16[seq, batch, hidden]", "(%x: f16[seq@model, batch, hidden]"),
    ("-> f16[seq, batch, hidden] on any", "-> f16[seq@model, batch, hidden] on any"),
    *(
        (f"%{name} = {norm}", f"%own_{name} = {norm}\n  %{name} = {GATHER.format(name)}")
        for name, norm in (("n", _NORM_1), ("m", _NORM_2), ("last", _LAST))
    ),
    ("%o = all_reduce %o_0 over model", "%o = reduce_scatter %o_0 over model dim 0"),
    ("%d = all_reduce %d_0 over model", "%d = reduce_scatter %d_0 over model dim 0"),
    ("%words = all_reduce %part over model", "%words = reduce_scatter %part over model dim 0"),
    (_AT, "%own = slice %positions over model dim 0\n  %at = reshape %own to"),
)
"""The changes of the program for sequence parallelism."""


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
    """The parts of a microbatch.

    Attributes:
        layer, layer_back: a layer, forward and backward.
        embedding, embedding_back: what is before the first layer.
        head, head_back: what is behind the last layer.
        words: the sum of the gradients of the words, which the first stage and the last have.
    """

    layer: Cost
    layer_back: Cost
    embedding: Cost
    embedding_back: Cost
    head: Cost
    head_back: Cost
    words: Cost


@dataclass(frozen=True)
class Sizes:
    """The sizes of a program of one microbatch, and what differs in it.

    Attributes:
        core: how attention runs: "recompute" again in the backward pass, or "fused" in one kernel.
        sequence: whether the sequence is divided between the products.
        words: the vocabulary.
    """

    micro: int
    seq: int
    hidden: int
    heads: int
    tensor: int
    core: str = ""
    sequence: bool = False
    words: int = WORDS

    @staticmethod
    def of(row: Row) -> "Sizes":
        """Return those of a row."""
        core = "recompute" if row.recompute == "core" else ""
        return Sizes(row.micro, row.seq, row.hidden, row.heads, row.tensor, core, row.sequence)

    @property
    def fuses_softmax(self) -> bool:
        """True if Megatron-LM's kernel of a softmax takes these matrices of scores."""
        return self.micro * self.heads // self.tensor % 4 == 0

    @property
    def vocab(self) -> int:
        """The words of the vocabulary, which one device alone does not pad."""
        return self.words if self.tensor == 1 else self.padded(self.words)

    def padded(self, words: int) -> int:
        """Return a vocabulary as Megatron-LM pads it."""
        step = PADDED * self.tensor
        return step * math.ceil(words / step)

    @property
    def page(self) -> str:
        """The text of its program."""
        text = _text("megatron.coll")
        edits = SEQUENCE if self.sequence and self.tensor > 1 else ()
        if not self.fuses_softmax:
            edits = (*edits, ("(%scores) fused", "(%scores)"))
        if self.core:
            edits = (*edits, (CORE, f"{CORE} {self.core}"))
        for old, new in edits:
            assert old in text, old
            text = text.replace(old, new)
        return text


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
def _program(page: str, tensor: int) -> ModuleOp:
    """Return the program of a microbatch on a layer, forward and backward, for any sizes."""
    nodes, inner = math.ceil(tensor / NODE), min(tensor, NODE)
    mesh = f"{_axis('data', 1, NODE // inner)}, {_axis('model', nodes, inner)}"
    start = f"batch = 2, seq = {16 * tensor}, hidden = {4 * tensor}, heads = {tensor}, layers = 1"
    text = f"func @run = @microbatch({start}, vocab = {PADDED * tensor}) on @p\n"
    module = _module(page, mesh, nodes, NODE, text)
    collir.run_passes(module, "differentiate")
    return _alone(module)


def _instance(sizes: Sizes) -> ModuleOp:
    """Return the program of a microbatch for some sizes."""
    module = _program(sizes.page, sizes.tensor).clone()
    given = {"seq": sizes.seq, "hidden": sizes.hidden, "heads": sizes.heads, "vocab": sizes.vocab}
    return collir.instantiate(module, function="run", batch=sizes.micro, **given)


@cache
def microbatch(sizes: Sizes) -> Simulation:
    """Return the simulation of one microbatch on a layer, forward and backward."""
    return _simulation(_instance(sizes))


@cache
def kept_bytes(sizes: Sizes) -> int:
    """Return the bytes that a layer keeps on a device for the backward pass of a microbatch: what
    its program stacks, and the masks of dropout that are not drawn again."""
    function = functions_of(_instance(sizes))[0]
    mesh = mesh_of(function)
    forward = next(op for op in function.body.ops if isinstance(op, RepeatOp))
    stacks = list(forward.results)[len(forward.carried) :]
    drawn_again = {"mask_e", "mask_a"} if sizes.core else {"mask_e"}
    masks = [x for x in function.args if dist_type(x).dtype is DType.BOOL]
    kept = [x for x in masks if x.name_hint not in drawn_again]
    return sum(dist_type(x).local_bytes(mesh) for x in (*stacks, *kept))


@lru_cache(maxsize=1 << 12)
def parts_of(sizes: Sizes, on: Machine) -> Parts:
    """Return the times of the parts of a microbatch on a machine."""
    assert on.device is not None
    simulation = microbatch(sizes)
    if simulation.mesh.machine.levels[0].size > 1:
        simulation = repriced(simulation, on)
    parts = {field.name: Cost() for field in fields(Parts)}
    for name, step in _named(simulation):
        seconds = _seconds(step, simulation.mesh.machine.device, on.device)
        parts[name] += Cost(seconds, on.device.execution.issue * step.issues)
    return Parts(**parts)


def _seconds(step: SimulatedStep, own: Device | None, device: Device) -> float:
    """Return the seconds of a step of a simulation on another device. Inside a node, its links are
    those of all machines here."""
    if own == device:
        return step.task.time
    if isinstance(step.does, LocalStep):
        return local_times(step.does, device).seconds
    assert own is not None
    return step.task.time + device.execution.sync - own.execution.sync


def _named(simulation: Simulation) -> Iterator[tuple[str, SimulatedStep]]:
    """Yield the steps of a microbatch with the part of the step that each is in."""
    name = "embedding"
    for step in simulation.program:
        new = step.result.removeprefix("new_")
        if step.loop:
            inner = "layer" if name == "embedding" else "layer_back"
            yield from ((inner, own) for own in step.loop.body.program if own.kind != "copy")
            name = "head" if name == "embedding" else "embedding_back"
        else:
            yield "layer_back" if new in OF_LAYERS else "words" if new in OF_ENDS else name, step
            name = "head_back" if step.result == LOSS else name


LOSS = "loss"
"""The last value of the forward pass."""

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

OF_ENDS = frozenset(("embedding", "positions", "gain", "bias"))
"""The weights in front of the layers and behind them."""


def repriced(simulation: Simulation, machine: Machine) -> Simulation:
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


@lru_cache(maxsize=1 << 12)
def update_seconds(layout: Layout, weights: float, on: Machine) -> float:
    """Return the seconds behind the last microbatch, for a number of weights of a device."""
    return repriced(_update(layout).scaled(weights / REFERENCE), on).time


@cache
def _send(layout: Layout) -> Simulation:
    """Return the simulation of activations sent to the next stage, over the network if some are."""
    inside = layout.inside[2]
    before = (inside if inside < layout.pipeline else 1) - 1
    size = f"f16[{REFERENCE}, {layout.tensor}]"
    text = (
        f"func @run(%x: {size} at(pipe = {before})) -> {size} at(pipe = {before + 1}) on @p {{\n"
        "  %part = slice %x over model dim 0\n"
        f"  %there = send %part over pipe from {before} to {before + 1}\n"
        "  %y = all_gather %there over model dim 0\n  return %y\n}\n"
    )
    return layout.simulation("", text)


@lru_cache(maxsize=1 << 12)
def send_seconds(layout: Layout, numbers: float, on: Machine) -> float:
    """Return the seconds in which a stage sends activations of 16-bit numbers to the next."""
    if layout.pipeline == 1:
        return 0.0
    return repriced(_send(layout).scaled(numbers / layout.tensor / REFERENCE), on).time


def update_text() -> str:
    """Return the page of programs around the microbatches."""
    return _text("update.coll")
