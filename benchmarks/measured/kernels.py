"""Kernels that were measured alone, products and attention, and their times on shipped machines."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import collir

MACHINES = {
    "a100": ("dgx_a100_80gb", "nodes", 8),
    "h100": ("dgx_h100", "nodes", 8),
    "h200": ("dgx_h200", "nodes", 8),
    "b200": ("dgx_b200", "nodes", 8),
    "gb200": ("gb200_nvl72", "racks", 72),
    "mi300x": ("mi300x", "nodes", 8),
    "mi355x": ("mi355x", "nodes", 8),
}
"""The machine of each device that ships with collir, its parameter and its devices."""

DTYPES = {"bf16", "fp16", "bf16/fp16"}

PASSES = {"fwd": 2.0, "bwd": 5.0, "fwd+bwd": 7.0}
"""The products of each pass of attention, each of 2 operations for an element of the scores and one
of a head."""

PRODUCT = """
machine @all = @{machine}({parameter} = 1)
mesh @m on @all {{ d = gpu:{devices} }}
func @forward(%x: bf16[{rows}, {length}], %w: bf16[{length}, {columns}]) -> bf16[{rows}, {columns}]
    on @m {{
  %y = einsum "i k, k j -> i j" %x, %w
  return %y
}}
"""

ATTENTION = """
machine @all = @{machine}({parameter} = 1)
mesh @m on @all {{ d = gpu:{devices} }}
{function}
func @forward({operands}) -> {whole} on @m {{
  %y = call @attention({sizes})(%q, %k, %v) fused
  return %y
}}
func @loss({operands}) -> f32[] on @m {{
  %y = call @attention({sizes})(%q, %k, %v) fused
  %x = cast %y to f32
  %z = sum %x dims [0, 1, 2, 3]
  return %z
}}
func @step({operands}) -> ({whole}, {whole}, {whole}) on @m {{
  %l, %a, %b, %c = gradient @loss(%q, %k, %v) wrt %q, %k, %v
  return %a, %b, %c
}}
"""


CAUSAL = "func @attention = @causal_attention on any"
WHOLE = """\
func @attention(size = 64)(%q: float[...], %k: float[...], %v: float[...]) -> float[...] on any {
  %number = constant value size to float[]
  %factor = rsqrt %number
  %scaled = mul %q, %factor
  %scores = einsum "b i a d, b j a d -> b a i j" %scaled, %k
  %exact = cast %scores to wide
  %shares = softmax %exact dims [3]
  %weights = cast %shares to float
  %mixed = einsum "b a i j, b j a d -> b i a d" %weights, %v
  return %mixed
}"""


@dataclass(frozen=True)
class Kernel:
    """A kernel that was measured.

    Attributes:
        machine: its device, as in ``MACHINES``.
        software: the library or kernel, and what it computes.
        sizes: of a product, rows, columns and the length of the sum; of attention, sequences,
            their length, heads and the size of a head.
        seconds: the time that was measured.
    """

    machine: str
    software: str
    sizes: tuple[int, ...]
    seconds: float
    causal: bool = False
    passes: str = "fwd"

    @property
    def is_attention(self) -> bool:
        """True if it is no product."""
        return len(self.sizes) == 4

    @property
    def predicted(self) -> float:
        """Seconds on the machine that ships with collir."""
        if not self.is_attention:
            return _product(self.machine, *self.sizes)
        forward, step = _attention(self.machine, self.causal, *self.sizes)
        return {"fwd": forward, "bwd": step - forward, "fwd+bwd": step}[self.passes]


def products(path: Path) -> Iterator[Kernel]:
    """Yield the products of 16-bit matrices of a table."""
    for row in _rows(path):
        sides = [row["M"], row["N"], row["K"]]
        if all(map(str.isdigit, sides)) and row["tflops"]:
            rows, columns, length = map(int, sides)
            rate = float(row["tflops"]) * 1e12
            seconds = 2 * rows * columns * length / rate
            yield Kernel(row["gpu"], row["library"], (rows, columns, length), seconds)


def attentions(path: Path) -> Iterator[Kernel]:
    """Yield the kernels of attention on 16-bit numbers of a table."""
    for row in _rows(path):
        sides = [row[name] for name in ("batch", "seq", "heads", "head_dim")]
        is_complete = all(map(str.isdigit, sides)) and row["pass"] in PASSES and row["causal"]
        if not is_complete or "sliding window " in row["note"]:
            continue
        batch, length, heads, size = map(int, sides)
        causal = row["causal"] in ("1", "yes", "true")
        flops = 2 * PASSES[row["pass"]] * batch * heads * length**2 * size / (2 if causal else 1)
        seconds = flops / float(row["tflops"]) / 1e12
        sizes = (batch, length, heads, size)
        yield Kernel(row["gpu"], row["version"], sizes, seconds, causal, row["pass"])


def _rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of 16-bit numbers on devices with a machine."""
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            gpu = row["gpu"].partition(" ")[0]
            if gpu in MACHINES and row["dtype"] in DTYPES:
                yield row | {"gpu": gpu}


@cache
def _product(device: str, rows: int, columns: int, length: int) -> float:
    machine, parameter, devices = MACHINES[device]
    sizes = {"rows": rows, "columns": columns, "length": length}
    text = PRODUCT.format(machine=machine, parameter=parameter, devices=devices, **sizes)
    return _seconds(text)["forward"]


@cache
def _attention(
    device: str, causal: bool, batch: int, length: int, heads: int, size: int
) -> tuple[float, float]:
    """Return the seconds of the forward pass, and of both."""
    machine, parameter, devices = MACHINES[device]
    whole = f"bf16[{batch}, {length}, {heads}, {size}]"
    text = ATTENTION.format(
        machine=machine,
        parameter=parameter,
        devices=devices,
        function=CAUSAL if causal else WHOLE,
        operands=", ".join(f"%{name}: {whole}" for name in "qkv"),
        whole=whole,
        sizes=f"seq = {length}, size = {size}" if causal else f"size = {size}",
    )
    times = _seconds(text)
    return times["forward"], times["step"]


def _seconds(text: str) -> dict[str, float]:
    return {found.name: found.time for found in collir.simulate(collir.parse(text))}
