"""Throughputs of MPT with FSDP (llm-foundry): the fitted software on other models and devices."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from measured.memory import number
from measured.programs import REFERENCE, Layout, Sizes, machine, parts_of, repriced, update_text
from measured.rows import records
from measured.scores import Measured

from collir.cost.programs.simulation import Simulation
from collir.machine import Machine

SHAPES = {
    "125m": (768, 12, 12), "350m": (1024, 16, 24), "760m": (1536, 12, 24), "1b": (2048, 16, 24),
    "3b": (2560, 20, 32), "7b": (4096, 32, 32), "13b": (5120, 40, 40), "30b": (7168, 56, 48),
    "70b": (8192, 64, 80),
}  # fmt: skip
"""The width, heads and layers of each model."""

WORDS = 50368

PORTS = {"a100": (200e9, 212e9), "h100": (400e9, 360e9)}
"""Bytes/second of a node's port and of a GPU's NVLinks."""


COMPUTE = {"a100": 0.78, "h100": 0.59}
"""The efficiency of compute: the one number that is fitted to these rows, for each device."""


FUSED = {"a100": 0.47, "h100": 0.58}
"""The rate of products within attention, of that of others: kernels reach 0.37 of the peak of an
A100 (FlashAttention 0.25 to 0.40: Dao 2023, arXiv 2307.08691), and 0.34 of that of an H100
(FlashAttention-2: Shah 2024, arXiv 2407.08608), over ``COMPUTE``."""


def on_device(name: str) -> Machine:
    """Return the fitted machine with the rates and links of a device: A100 or H100 SXM."""
    fitted = machine()
    assert fitted.device is not None
    node, gpu = PORTS[name[:4]]
    device = fitted.device
    if name.startswith("h100"):
        device = replace(
            device, compute=(("f16", 989e12), ("f32", 67e12)), memory_bandwidth=3.35e12
        )
        device = replace(device, efficiency=replace(device.efficiency, units=132))
    elif name.endswith("40gb"):
        device = replace(device, memory_bandwidth=1.555e12)
    kind = name[:4]
    efficiency = replace(device.efficiency, compute=COMPUTE[kind], fused=FUSED[kind])
    device = replace(device, efficiency=efficiency)
    outer, inner = fitted.levels
    return replace(
        fitted, levels=(replace(outer, port=node), replace(inner, port=gpu)), device=device
    )


@cache
def _sharded(layout: Layout, function: str) -> Simulation:
    run = f"func @run = @{function}(count = {REFERENCE * layout.data}) on @p\n"
    return layout.simulation(update_text(), run)


def layer_seconds(layout: Layout, function: str, weights: float, on: Machine) -> float:
    """Return the seconds in which the weights of a layer are gathered, or scattered."""
    if layout.data == 1:
        return 0.0
    own = weights / layout.data / REFERENCE
    return repriced(_sharded(layout, function).scaled(own), on).time


def throughputs(path: Path) -> Iterator[Measured]:
    """Yield tokens per second and GPU of models in 16 bits.

    Raises:
        DataError: the table cannot be read.
    """
    for line, record in records(path):
        if "fp8" in record["precision"]:
            continue
        hidden, heads, layers = SHAPES[record["model"]]
        gpus, seq, micro = (
            int(number(path, line, record, n)) for n in ("gpus", "seq_len", "micro_batch")
        )
        on, layout = on_device(record["gpu"]), Layout(gpus, 1, gpus, 1)
        parts = parts_of(Sizes(micro, seq, hidden, heads, 1, "fused", words=WORDS), on)
        back = parts.layer_back
        if record["act_checkpoint"] == "True":
            back += parts.layer
        weights = 12 * hidden**2
        gather = layer_seconds(layout, "gathered", weights, on)
        scatter = layer_seconds(layout, "scattered", weights, on)
        forward = max(
            layers * parts.layer.seconds + (parts.embedding + parts.head).seconds, layers * gather
        )
        ends = (parts.head_back + parts.embedding_back).seconds
        backward = max(layers * back.seconds + ends, layers * (gather + scatter))
        tokens = number(path, line, record, "tokens_per_s_per_gpu")
        yield Measured(line, record["gpu"], tokens, micro * seq / (forward + backward))
