"""Compare the programs of ``shard`` with those that XLA's partitioner makes of the same layouts.

    python benchmarks/sharding/against_jax.py [--steps data_parallel,mlp,...] [--json]

The training steps of the pages of benchmarks/models/against_xla.py, and of a few other models, are
made those of a single device by ``unshard``, and divided by ``shard`` for 8 GPUs. The same steps,
written in jax for a single device, are compiled by XLA with the layouts that ``shard`` chose for
arguments and results alone; in the rows ``XLA, free``, XLA chooses those that ``shard`` left whole.
XLA has to find the layouts of all other values, which ``shard`` chose as well.

The table has the collectives of a step, their bytes (those of a device before a reduction or behind
a gather), and the time that the cost model predicts for them on the same machine, one after
another. ``products`` are the FLOP of the matrix products on a device: what is not divided is
computed several times.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.functions import functions_of
from collir.layout import DistType
from collir.layout.sizes import as_number
from collir.targets.reports.text import bytes_text, seconds_text, table

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from against_xla import DTYPES, MESH, PAGES, Sent, counts, sent_by_xla, total
from products import flop_of

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "models"
MODELS = ("mlp", "vit")
STYLES, PROGRAMS = PAGES
STEPS = {
    "data_parallel": (STYLES, "data_parallel"),
    "zero_1": (STYLES, "zero_1"),
    "microbatches": (PROGRAMS, "microbatches"),
    "words": (PROGRAMS, "words"),
    "experts": (PROGRAMS, "experts"),
    **{name: (EXAMPLES / f"{name}.coll", "step") for name in MODELS},
}
"""Step in jax -> its page and function. Functions of styles.coll differ in layouts alone."""

VARIANTS = {"XLA": True, "XLA, free": False}
"""Name -> whether XLA keeps arguments and results whole that ``shard`` left whole."""


@dataclass(frozen=True)
class Side:
    """A program of a step.

    Attributes:
        by: what made it.
        sent: its collectives.
        flop: the FLOP of its matrix products on a device.
    """

    by: str
    sent: list[Sent]
    flop: int


def sharded(name: str) -> FuncOp:
    """Return a step with the layouts that ``shard`` chooses."""
    page, function = STEPS[name]
    text = page.read_text(encoding="utf-8").replace("bf16", "f32")
    module = collir.parse(text, str(page), functions=(function,))
    collir.run_passes(module, "unshard,shard")
    return next(x for x in functions_of(module) if x.sym_name.data == function)


def steps_of(block: Block, times: int = 1) -> Iterator[tuple[DistOp, int]]:
    """Yield the steps of a block, and how often each runs."""
    for op in block.ops:
        if isinstance(op, RepeatOp):
            yield from steps_of(op.body.block, times * op.times)
        elif isinstance(op, DistOp):
            yield op, times


def side_of(function: FuncOp) -> Side:
    """Return what a function sends and computes."""
    mesh, sent, flop = mesh_of(function), list[Sent](), 0
    for op, times in steps_of(function.body.block):
        if op.kind.sends:
            size = max(dist_type(x).local_bytes(mesh) for x in (op.input, op.result))
            if size > 4:
                kind = "permute" if op.mnemonic == "shift" else op.mnemonic
                sent.append(Sent(kind, tuple(mesh.short(op.over)), size, times))
        elif op.mnemonic == "einsum" and op.structure is not None and op.structure.contracts:
            types = [dist_type(x) for x in op.operands]
            own = op.structure.local_flops(mesh, types, dist_type(op.result))
            flop += times * int(as_number(own))
    return Side("shard", sent, flop)


def question(functions: Mapping[str, FuncOp], whole: bool) -> dict[str, Any]:
    """Return what in_xla.py is asked: shapes, dtypes and layouts of arguments and results."""

    def spec(x: DistType) -> list[list[str]] | None:
        if not x.axes and not whole:
            return None
        return [[axis.split(".")[0] for axis in dim.axes] for dim in x.dims]

    steps: dict[str, Any] = {}
    for name, function in functions.items():
        arguments = [dist_type(x) for x in function.args]
        outputs = function.function_type.outputs
        steps[name] = {
            "arguments": [
                ([*map(int, x.shape)], DTYPES[x.dtype.value], spec(x)) for x in arguments
            ],
            "results": [spec(x.data) for x in outputs if isinstance(x, DistTensorType)],
        }
    return {"mesh": MESH, "steps": steps}


def compiled(functions: Mapping[str, FuncOp], whole: bool) -> dict[str, Any]:
    """Return the answer of in_xla.py: the programs of XLA, as text."""
    answer = subprocess.run(
        [sys.executable, str(HERE / "in_xla.py")],
        input=json.dumps(question(functions, whole)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        },
    )
    return json.loads(answer.stdout)


def sides(functions: Mapping[str, FuncOp]) -> dict[str, list[Side]]:
    """Return the programs of all steps; what XLA makes twice, once."""
    of = {name: [side_of(function)] for name, function in functions.items()}
    for variant, whole in VARIANTS.items():
        for name, text in compiled(functions, whole)["programs"].items():
            side = Side(variant, sent_by_xla(text), flop_of(text))
            if all((side.sent, side.flop) != (x.sent, x.flop) for x in of[name][1:]):
                of[name].append(side)
    return of


def lines(of: Mapping[str, Sequence[Side]]) -> list[str]:
    """Return the lines of the table."""
    rows: list[list[str]] = []
    for name, made in of.items():
        for number, side in enumerate(made):
            size, time = total(side.sent)
            cells = [bytes_text(size), seconds_text(time), f"{side.flop / 1e9:,.1f} GFLOP"]
            rows.append(["" if number else name, side.by, *cells, counts(side.sent)])
    return table(["step", "by", "bytes", "time", "products", "collectives"], rows, 2)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--json", action="store_true", help="print numbers in place of the table")
    options = parser.parse_args()
    logging.getLogger("collir").setLevel(logging.ERROR)  # no remarks
    functions = {name: sharded(name) for name in options.steps.split(",")}
    of = sides(functions)
    if not options.json:
        print("\n".join(lines(of)))
        return
    numbers = {
        name: {
            side.by: {
                "bytes": total(side.sent)[0],
                "seconds": total(side.sent)[1],
                "flop": side.flop,
                "collectives": [asdict(x) for x in side.sent],
            }
            for side in made
        }
        for name, made in of.items()
    }
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
