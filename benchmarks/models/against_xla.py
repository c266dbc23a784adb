"""Compare ``propagate`` with XLA's partitioner: ``python benchmarks/models/against_xla.py``.

The training steps of examples/models/styles.coll and xla/programs.coll are compiled by jax for as
many CPU devices as their mesh has, with the shardings of the types of arguments and results
(xla/steps.py, xla/compile.py). The table has the collectives of XLA beside those of ``propagate``:
how many run in a step, the bytes of a device before a reduction or behind a gather, and the time
that the cost model predicts for both on the machine of the page, one collective after another.

Where a type names no axis, XLA chooses, as ``propagate`` does. In the rows ``whole``, XLA has to
keep these arguments and results whole.

    --write     compile, and write what XLA sends to data/xla_collectives.json
    --json      print numbers in place of the table
    --page      print the table of docs/parallelism.md
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
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
from collir.synthesis.propagation.propagate import make_explicit
from collir.targets.reports.text import bytes_text, seconds_text, table

sys.path.insert(0, str(Path(__file__).parent / "xla"))
import hlo

ROOT = Path(__file__).parents[2]
DATA = ROOT / "benchmarks" / "data" / "xla_collectives.json"
COMPILE = Path(__file__).parent / "xla" / "compile.py"
PAGES = (ROOT / "examples" / "models" / "styles.coll", COMPILE.parent / "programs.coll")
MESH = {"data": 2, "model": 4}
MACHINE = """\
machine @box = @dgx_a100(nodes = 1)
mesh @m on @box { data = gpu:2, model = gpu:4 }
"""
STEPS = (
    "data_parallel",
    "zero_1",
    "fully_sharded",
    "tensor_parallel",
    "sequence_parallel",
    "context_parallel",
    "mixed",
    "microbatches",
    "words",
    "experts",
)
DTYPES = {"f32": "float32", "i32": "int32"}
VARIANTS = {"XLA": False, "XLA, whole": True}
"""Column -> whether what has no axes in its type stays whole."""


@dataclass(frozen=True)
class Sent:
    """Collectives of a program that are alike.

    Attributes:
        kind: the name of the collective.
        axes: the axes of the mesh that it runs over.
        size: the bytes of a device before a reduction, or behind a gather.
        times: how often it runs in a step.
    """

    kind: str
    axes: tuple[str, ...]
    size: int
    times: int


# --- XLA -----------------------------------------------------------------------------------------


def question(whole: bool) -> dict[str, Any]:
    """Return what compile.py is asked: shapes, dtypes and shardings of all steps."""

    def spec(x: DistType) -> list[list[str]] | None:
        if not x.axes and not whole:
            return None
        return [[axis.split(".")[0] for axis in dim.axes] for dim in x.dims]

    steps: dict[str, Any] = {}
    for path in PAGES:
        for function in functions_of(collir.parse(path)):
            name = function.sym_name.data
            if name not in STEPS:
                continue
            arguments = [dist_type(x) for x in function.args]
            outputs = function.function_type.outputs
            results = [x.data for x in outputs if isinstance(x, DistTensorType)]
            steps[name] = {
                "arguments": [
                    ([*map(int, x.shape)], DTYPES[x.dtype.value], spec(x)) for x in arguments
                ],
                "results": [spec(x) for x in results],
            }
    return {"mesh": MESH, "steps": steps}


def compiled(whole: bool) -> dict[str, Any]:
    """Return the answer of compile.py: the programs of XLA, as text."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    answer = subprocess.run(
        [sys.executable, str(COMPILE)],
        input=json.dumps(question(whole)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
    )
    return json.loads(answer.stdout)


def sent_by_xla(text: str) -> list[Sent]:
    """Return what a program of XLA sends."""
    return [
        Sent(x.kind, hlo.axes_of(MESH, x.groups), x.size, x.times) for x in hlo.collectives(text)
    ]


def write() -> None:
    """Compile all steps, and write what XLA sends."""
    written: dict[str, Any] = {}
    for variant, whole in VARIANTS.items():
        answer = compiled(whole)
        programs = answer.pop("programs")
        written |= answer
        written[variant] = {name: rows_of(sent_by_xla(programs[name])) for name in STEPS}
    DATA.write_text(text_of(written), encoding="utf-8")


def rows_of(sent: Sequence[Sent]) -> list[str]:
    """Return collectives as text, those that are alike together."""
    times = Counter[tuple[str, str, int]]()
    for x in sent:
        times[x.kind, " ".join(x.axes), x.size] += x.times
    return [f"{count} {kind} {size} {axes}" for (kind, axes, size), count in times.items()]


def text_of(written: Mapping[str, Any]) -> str:
    """Return what is recorded as JSON, with a line for each step."""
    return json.dumps(written, indent=1).replace("\n   ", " ").replace("\n  ]", " ]") + "\n"


@cache
def recorded() -> dict[str, Any]:
    """Return what was written."""
    return json.loads(DATA.read_text(encoding="utf-8"))


def of_xla(variant: str, name: str) -> list[Sent]:
    """Return what XLA sends in a step."""
    sent: list[Sent] = []
    for row in recorded()[variant][name]:
        times, kind, size, *axes = row.split()
        sent.append(Sent(kind, tuple(axes), int(size), int(times)))
    return sent


# --- propagate -----------------------------------------------------------------------------------


def _collectives(function: FuncOp, block: Block, times: int = 1) -> Iterator[Sent]:
    mesh = mesh_of(function)
    for op in block.ops:
        if isinstance(op, RepeatOp):
            yield from _collectives(function, op.body.block, times * op.times)
        elif isinstance(op, DistOp) and op.kind.sends:
            size = max(dist_type(x).local_bytes(mesh) for x in (op.input, op.result))
            if size > 4:
                yield Sent(op.mnemonic, tuple(mesh.short(op.over)), size, times)


@cache
def ours() -> Mapping[str, list[Sent]]:
    """Return what all steps send after ``propagate``."""
    sent: dict[str, list[Sent]] = {}
    for path in PAGES:
        module = collir.parse(path)
        make_explicit(module)
        for function in functions_of(module):
            if function.sym_name.data in STEPS:
                sent[function.sym_name.data] = [*_collectives(function, function.body.block)]
    return sent


# --- both ----------------------------------------------------------------------------------------


@cache
def seconds(kind: str, axes: tuple[str, ...], size: int) -> float:
    """Return the predicted time of a collective on the machine of the pages."""
    over, elements = ", ".join(axes), size // 4
    everything = f"f32[{elements}]"
    blocks = f"f32[{elements}@({over})]"
    partial = f"{everything} partial(sum: {over})"
    rows = size // 4 // 64
    before, after, how = {
        "all_reduce": (partial, everything, f"all_reduce %x over {over}"),
        "reduce_scatter": (partial, blocks, f"reduce_scatter %x over {over} dim 0"),
        "all_gather": (blocks, everything, f"all_gather %x over {over} dim 0"),
        "all_to_all": (
            f"f32[64@({over}), {rows * _devices(axes)}]",
            f"f32[64, {rows * _devices(axes)}@({over})]",
            f"all_to_all %x over {over} dim 0 to 1",
        ),
        "permute": (
            f"f32[{elements * _devices(axes)}@({over})]",
            f"f32[{elements * _devices(axes)}@({over})]",
            f"shift %x over {over} by 1",
        ),
    }[kind]
    text = f"{MACHINE}func @f(%x: {before}) -> {after} on @m {{\n  %r = {how}\n  return %r\n}}\n"
    return collir.simulate(collir.parse(text))[0].time


def _devices(axes: Sequence[str]) -> int:
    count = 1
    for axis in axes:
        count *= MESH[axis]
    return count


def total(sent: Sequence[Sent]) -> tuple[int, float]:
    """Return the bytes that a step sends, and the predicted seconds."""
    size = sum(x.size * x.times for x in sent)
    return size, sum(x.times * seconds(x.kind, x.axes, x.size) for x in sent)


def counts(sent: Sequence[Sent], sizes: bool = True) -> str:
    """Return the number of collectives of each kind, and their bytes, in words."""
    kinds: dict[str, list[int]] = {}
    for x in sent:
        known = kinds.setdefault(x.kind, [0, 0])
        known[0] += x.times
        known[1] += x.times * x.size
    return ", ".join(
        f"{count} {kind} {bytes_text(size)}" if sizes else f"{count} {kind}"
        for kind, (count, size) in sorted(kinds.items())
    )


def lines() -> list[str]:
    """Return the lines of the table."""
    rows: list[list[str]] = []
    for name in STEPS:
        sides = {"propagate": ours()[name]}
        sides |= {variant: of_xla(variant, name) for variant in VARIANTS}
        if sides["XLA"] == sides["XLA, whole"]:
            del sides["XLA, whole"]
        for number, (side, sent) in enumerate(sides.items()):
            size, time = total(sent)
            label = "" if number else name
            rows.append([label, side, bytes_text(size), seconds_text(time), counts(sent)])
    return table(["step", "by", "bytes", "time", "collectives"], rows, 2)


def page_lines() -> list[str]:
    """Return the lines of the table in docs/parallelism.md: XLA where it sends less."""
    lines = [
        "| step | `propagate` | bytes | time | XLA | bytes | time |",
        "|---|---|--:|--:|---|--:|--:|",
    ]
    for name in STEPS:
        cells = [f"`{name}`"]
        xla = min((of_xla(variant, name) for variant in VARIANTS), key=total)
        for sent in (ours()[name], xla):
            size, time = total(sent)
            cells += [counts(sent, sizes=False), bytes_text(size), seconds_text(time)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.write:
        write()
    if options.json:
        sides = {"propagate": ours(), **{v: {n: of_xla(v, n) for n in STEPS} for v in VARIANTS}}
        print(
            json.dumps(
                {
                    name: {
                        side: {
                            "bytes": total(sent[name])[0],
                            "seconds": total(sent[name])[1],
                            "collectives": [asdict(x) for x in sent[name]],
                        }
                        for side, sent in sides.items()
                    }
                    for name in STEPS
                },
                indent=1,
            )
        )
    else:
        print(f"jax {recorded()['jax']}, {recorded()['partitioner']}")
        print("\n".join(page_lines() if options.page else lines()))


if __name__ == "__main__":
    main()
