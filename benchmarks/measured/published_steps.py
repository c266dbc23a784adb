"""Published steps of training, and the configurations of a sweep that are theirs.

A row of the table says how a decoder was trained: its sizes, GPUs, batch, degrees, ZeRO, and the
seconds of a step. Each is a program of `collir new` or of examples/models, compiled and simulated
on a machine that ships with collir, as `collir sweep` does it. Nothing is fitted to the rows.
"""

import io
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from math import gcd, log2
from multiprocessing import get_context
from pathlib import Path

from measured.rows import records
from measured.scores import Measured

from collir.ir.diagnostics import DiagnosticError
from collir.machine import Machine
from collir.synthesis.sweeping.configuration import CONTEXT, UNSTAGED, Configuration
from collir.synthesis.sweeping.space import level_sizes
from collir.tools.collir import main as collir_tool
from collir.tools.machine import preset
from collir.tools.sweep_model import Model

GPT = Path(__file__).parents[2] / "examples" / "models" / "sweep.coll"
"""A decoder of two-matrix MLPs and attention of as many keys as queries."""

LLAMA = "llama-3-8b"
"""The program of `collir new` that decoders of three-matrix MLPs are sizes of."""

MACHINES = {
    "a100": "dgx_a100_80gb",
    "a100-40gb": "dgx_a100",
    "h100": "dgx_h100",
    "h200": "dgx_h200",
    "b200": "dgx_b200",
    "gb200": "gb200_nvl72",
}
"""Devices of the table, and the machines of collir that have them."""

FULL = 3
"""The stage of ZeRO that divides weights."""

EAGER = {"llm-foundry", "Megatron-DeepSpeed"}
"""Software that runs a kernel for each operation; of others, rows say so."""

SIZES = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq", "gpus", "global_batch")
_SIZES_SAID = re.compile(r"^with \w+ = (.*?, )+?(?=dimension|axis)")
_NIC = re.compile(r"(\d+)\s?x\s?(\d+) ?Gb|(\d+) Gb/s per node")


class NotPredictedError(Exception):
    """A row that is predicted by no program; the text says why."""


@dataclass(frozen=True)
class PublishedStep:
    """A published step.

    Attributes:
        line: the line in the file.
        model, machine, framework: as the table says.
        sizes: those of the model, by the names of the columns.
        degrees: the sizes of axes of tensor parallelism, stages and words.
        micro: the sequences of a microbatch.
        chunks: the chunks of a stage.
        zero: the stage of ZeRO.
        recompute: whether all of a layer is computed again.
        divided: whether sequences are divided over the axis of tensor parallelism.
        port: bytes/second of a node, where the row says them.
        eager: whether each operation is a kernel of its own, as in PyTorch without a compiler.
        seconds: the time of the step.
    """

    line: int
    model: str
    machine: str
    framework: str
    sizes: tuple[int, ...]
    degrees: tuple[int, int, int]
    micro: int
    chunks: int
    zero: int
    recompute: bool
    divided: bool
    port: float
    eager: bool
    seconds: float

    @property
    def size(self) -> dict[str, int]:
        """The sizes, by the names of the columns."""
        return dict(zip(SIZES, self.sizes, strict=True))

    @property
    def group(self) -> str:
        """The machine and the software, and the model: what rows to compare have in common."""
        return f"{self.machine}, {self.framework}, {self.model}"


def step_of(line: int, row: Mapping[str, str]) -> PublishedStep:
    """Return the step of a row.

    Raises:
        NotPredictedError: it lacks something, or no program is like it.
    """
    if row["precision"] != "bf16":
        raise NotPredictedError("products in 8 bits")
    if row["machine"] not in MACHINES or "slower than a normal" in row["note"]:
        raise NotPredictedError("no machine of collir has the device")
    if row["experts"]:
        raise NotPredictedError("experts")
    if "LoRA" in row["note"]:
        raise NotPredictedError("weights that stay")
    needed = (*SIZES, "micro_batch", "tp", "pp", "iteration_s")
    if missing := [name for name in needed if not row[name]]:
        raise NotPredictedError(f"no {missing[0]}")
    zero = re.search(r"zero-(\d)", row["dp_or_fsdp"])
    framework = row["framework"].split(" (")[0]
    return PublishedStep(
        line,
        row["model"],
        row["machine"],
        framework,
        tuple(int(row[name]) for name in SIZES),
        (int(row["tp"]), int(row["pp"]), int(row["cp"] or 1)),
        int(row["micro_batch"]),
        int(row["vp"]) if row["vp"].isdecimal() else 1,
        int(zero[1]) if zero else FULL if "HSDP" in row["dp_or_fsdp"] else 0,
        row["recompute"] == "full",
        row["sequence_parallel"] == "yes",
        _port(row["note"]),
        framework in EAGER or "; eager" in row["note"],
        float(row["iteration_s"]),
    )


def _port(note: str) -> float:
    found = _NIC.search(note)
    if found is None:
        return 0.0
    count, rate, node = found.groups()
    return int(node or int(count) * int(rate)) / 8 * 1e9


def steps(path: Path) -> tuple[list[PublishedStep], Counter[str]]:
    """Return the steps of a table that programs can be, and how many rows there are of which none
    is, by the reason.

    Raises:
        DataError: the table cannot be read.
    """
    found: list[PublishedStep] = []
    others = Counter[str]()
    for line, row in records(path):
        try:
            found.append(step_of(line, row))
        except NotPredictedError as error:
            others[str(error)] += 1
    return found, others


@cache
def _llama() -> str:
    text = io.StringIO()
    with redirect_stdout(text):
        collir_tool(["new", "--model", LLAMA])
    return text.getvalue()


def _machine(step: PublishedStep) -> Machine:
    machine = preset(MACHINES[step.machine]).op.value()
    outer, *inner = machine.levels
    device = machine.device
    [gpus] = inner
    count = step.size["gpus"]
    if count > gpus.size and count % gpus.size:  # parts of nodes, such as 64 GPUs of each NVL72
        own = gcd(count, 2 ** int(log2(gpus.size)))
        outer = replace(outer, rails=own, port=outer.port * own / outer.rails)
        inner = [gpus.first(own)]
        machine = replace(machine, levels=(outer, *inner))
    if step.port:
        machine = replace(machine, levels=(replace(outer, port=step.port), *inner))
    if step.eager and device is not None:
        apart = replace(device.execution, maps=True)
        machine = replace(machine, device=replace(device, execution=apart))
    return machine


def model_of(step: PublishedStep) -> Model:
    """Return the program of a step's model.

    MLPs of two matrices with attention of fewer keys than queries are predicted with three of two
    thirds of the width: as many operations and weights.
    """
    size = step.size
    own = {name: size[name] for name in ("seq", "vocab", "hidden", "heads", "layers")}
    gpt = size["ffn"] == 4 * size["hidden"] and size["kv_heads"] == size["heads"]
    if gpt:
        path, program = str(GPT), GPT.read_text(encoding="utf-8")
    else:
        two = step.model.startswith("nemotron")
        path, program = f"{LLAMA}.coll", _llama()
        own |= {"kv": size["kv_heads"], "size": size["hidden"] // size["heads"]}
        own |= {"inner": size["ffn"] * 2 // 3 if two else size["ffn"], "window": size["seq"]}
    added = (CONTEXT,) * (step.degrees[2] > 1)
    return Model(path, program, "", tuple(own.items()), _machine(step), "pipe", None, added)


def placed(model: Model, devices: int, degrees: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the factors of axes at each level of a machine, the first axis innermost."""
    left = [*(level_sizes(model.machine, devices) or ())]
    factors: dict[str, tuple[int, ...]] = {}
    for name, degree in degrees.items():
        own = [1] * len(left)
        for level in reversed(range(len(left))):
            own[level] = gcd(degree, left[level])
            degree //= own[level]
            left[level] //= own[level]
        factors[name] = tuple(own)
    return factors


def configuration_of(model: Model, step: PublishedStep) -> Configuration:
    """Return the configuration of a step: tensor parallelism innermost, stages outermost.

    Raises:
        NotPredictedError: its degrees do not divide the devices or the batch.
    """
    tensor, stages, words = step.degrees
    devices, batch = step.size["gpus"], step.size["global_batch"]
    data, rest = divmod(devices, tensor * stages * words)
    microbatches, left = divmod(batch, max(data, 1) * step.micro)
    if rest or left or not data:
        raise NotPredictedError(f"{devices} devices are no {tensor} x {stages} x {words}")
    sizes = {"model": tensor, CONTEXT: words, "data": data, "pipe": stages}
    if level_sizes(model.machine, devices) is None:
        raise NotPredictedError(f"{devices} devices are no whole nodes")
    factors = placed(model, devices, sizes)
    layers = step.size["layers"]
    parts = stages * step.chunks
    uneven = layers % parts > 0
    most = -(-layers // parts)
    cut = (most - 1, *[most] * (parts - 2), most - 1)  # embedding and head count as layers
    if uneven and sum(cut) != layers:
        raise NotPredictedError(f"{layers} layers are not in {parts} parts")
    return Configuration(
        tuple((name, factors[name]) for name in model.step.axes),
        "pipe",
        batch,
        microbatches,
        UNSTAGED if stages == 1 else "interleaved" if step.chunks > 1 else "1f1b",
        step.chunks,
        step.recompute,
        step.zero,
        ("model",) * (step.divided and tensor > 1),
        cut if uneven else (),
    )


@dataclass(frozen=True)
class Prediction:
    """A simulated step: its configuration, seconds, and bytes at its peak."""

    configuration: Configuration
    seconds: float
    peak: float


def predicted(model: Model, step: PublishedStep) -> Prediction:
    """Return the simulation of a step; all layers of ZeRO-3 are computed again if the memory is
    too small otherwise.

    Raises:
        NotPredictedError: no configuration is like it.
    """
    try:
        configuration = configuration_of(model, step)
        simulation = model.simulated(configuration)
        device = model.machine.device
        memory = device.memory if device else None
        if step.zero == FULL and memory is not None and simulation.peak > memory:
            configuration = replace(configuration, recompute=True)
            simulation = model.simulated(configuration)
    except DiagnosticError as error:
        text = str(error).splitlines()[0]
        reason = _SIZES_SAID.sub("", text.rpartition("error: ")[2])
        raise NotPredictedError(reason.partition(", and layers=")[0]) from error
    return Prediction(configuration, simulation.time, simulation.peak)


_OWN = {"line": 0, "seconds": 0.0, "framework": ""}
"""Values of the fields that do not matter to a prediction."""


def _tried(step: PublishedStep) -> Prediction | str:
    """Return the prediction of a step, or why there is none."""
    try:
        return predicted(model_of(step), step)
    except NotPredictedError as error:
        return str(error).partition(":")[0]


def all_predicted(path: Path) -> tuple[list[tuple[PublishedStep, Prediction]], Counter[str]]:
    """Return the steps of a table with their predictions, and how many rows have none, by the
    reason. A step takes some seconds of a processor.

    Raises:
        DataError: the table cannot be read.
    """
    own, others = steps(path)
    keys = [replace(step, **_OWN) for step in own]
    distinct = [*dict.fromkeys(keys)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        known = dict(zip(distinct, pool.map(_tried, distinct), strict=True))
    found: list[tuple[PublishedStep, Prediction]] = []
    for step, key in zip(own, keys, strict=True):
        if isinstance(prediction := known[key], str):
            others[prediction] += 1
        else:
            found.append((step, prediction))
    return found, others


def seconds(path: Path) -> Iterator[Measured]:
    """Yield the seconds of the steps of a table, those measured and those predicted; say on
    standard error how many rows have no prediction, and why.

    Raises:
        DataError: the table cannot be read.
    """
    found, others = all_predicted(path)
    for reason, count in others.most_common():
        print(f"{count} rows are not predicted: {reason}", file=sys.stderr)
    for step, prediction in found:
        yield Measured(step.line, step.group, step.seconds, prediction.seconds)
