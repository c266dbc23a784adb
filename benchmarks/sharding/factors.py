"""The table of what is sent for the gradient of VGG19's 25088 x 4096 weights, for many batches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from unittest.mock import patch

from searched import sharded
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.model import CostModel
from collir.ir.roles import Role
from collir.synthesis.propagation.graph import Layout, Relation, Tensor
from collir.synthesis.sharding.ways import StepWay, Ways
from collir.targets.reports.text import table

LAYER = """machine @cluster {{
  device any {{ compute f32 = 1000000000 TFLOP/s; memory = 1000000 GB @ 1000000000000 GB/s }}
  level gpu[8] {{ port = 1.3 GB/s, latency = {latency} us, fabric = network, devices = [8 any] }}
}}
mesh @m on @cluster {{ data = gpu:8 }}
func @step(%x: f32[{batch}@data, 25088], %g: f32[{batch}@data, 4096],
           %w: f32[25088, 4096] parameter) -> f32[25088, 4096] parameter on @m auto {{
  %d = einsum "b k, b j -> k j" %x, %g
  %u = scale %d by 0.01
  %new = sub %w, %u
  return %new
}}
"""


@contextmanager
def whole_weights(two: bool = False) -> Iterator[None]:
    """Let the weights of the layer lie whole on all devices; with ``two``, let the product run
    either on all devices alike or along the batch."""
    own, ways = Ways.layouts, Ways.of

    def layouts(self: Ways, tensor: Tensor) -> list[Layout]:
        whole = tensor.role is Role.PARAMETER or tensor.value.name_hint in ("w", "new")
        return [((), ())] if whole else own(self, tensor)

    def of(self: Ways, relation: Relation) -> list[StepWay]:
        found, op = ways(self, relation), relation.op
        if op is None or op.name != "nn.einsum" or not two:
            return found
        result = relation.indices[-1]
        return [way for way in found if not any(way.axes.get(index) for index in result)]

    with patch.object(Ways, "layouts", layouts), patch.object(Ways, "of", of):
        yield


def collectives(module: ModuleOp) -> str:
    """Return the steps of a program that send."""
    sent = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
    lines = collir.emit(module, "coll").splitlines()
    return " + ".join(w for line in lines for w in line.split()[2:3] if w in sent)


def factor_rows(seconds: float) -> None:
    """Print what is sent, up to which batch of a device."""
    rows: list[list[str]] = []
    for latency, costs in ((0, "ring"), (0, "auto"), (20, "auto")):

        @cache
        def sends(n: int, latency: int = latency, costs: str = costs) -> str:
            page = LAYER.format(batch=8 * n, latency=latency)
            return collectives(sharded(page, "", seconds, model=CostModel(algorithm=costs))[1])

        free = (("whole, two ways", whole_weights(True)), ("whole", whole_weights()))
        for name, limits in (*free, ("free", nullcontext())):
            sends.cache_clear()
            with limits:
                edges = [*_edges(sends, 10, 2000), 2000]
                found = "; ".join(f"{sends(n)} to {n}" for n in edges)
            rows.append([name, costs, f"{latency} us", found])
            print("  ", *rows[-1], sep=" | ", file=sys.stderr, flush=True)
    print("\nfactors: equal bytes of two ways at n = 880")
    print("\n".join(table(["weights", "algorithms", "latency", "sent"], rows, 4)), flush=True)


def _edges(sends: Callable[[int], str], low: int, high: int) -> Iterator[int]:
    """Yield the last batches ahead of another way, none of which comes again."""
    if sends(low) == sends(high):
        return
    if high - low == 1:
        yield low
        return
    middle = (low + high) // 2
    yield from _edges(sends, low, middle)
    yield from _edges(sends, middle, high)
