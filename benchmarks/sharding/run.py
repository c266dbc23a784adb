"""How long ``shard`` takes, and how many rounds and nodes its search needs.

    python benchmarks/sharding/run.py [--tables models,layers,devices,axes,published]

The training steps of examples/models are made those of a single device by ``unshard``. Then the
tables of costs are built and the least sum is found, in CPU seconds of one process. The tables:

    models      all example models, on their own machines and meshes
    layers      ViT with more and more layers: in a loop, where a layer is one step and a count, and
                unrolled, where equal layers are found and searched once if there are many
    devices     Llama 3 8B on 8 to 4,096 devices
    axes        ViT and Llama 3 8B on meshes of one, two and three axes
    published   beside the times that papers and repositories give of their searches; they were
                measured on other computers, and are not measured here

The column ``step`` has the time of the program that was found, as predicted, without a limit of its
memory.
"""

import argparse
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.synthesis.propagation.graph import TensorGraph
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.sharding.rounds import SumRounds
from collir.synthesis.sharding.shard import sharding_of
from collir.synthesis.sharding.solver import VariableValues, least_sum
from collir.targets.reports.text import seconds_text, table

MODELS = Path(__file__).parents[2] / "examples" / "models"
EXAMPLES = ("mlp", "vit", "bert", "gpt", "llama", "mixtral", "vgg19", "resnet50", "switch")
IN_LOOP, UNROLLED = (4, 12, 24, 48), (2, 4, 8, 12)
NODES = (1, 8, 64, 512)


@dataclass(frozen=True)
class Mesh:
    """A machine and its axes, as they are written.

    Attributes:
        machine: the machine.
        axes: the axes of the mesh.
    """

    machine: str
    axes: str

    def put(self, text: str) -> str:
        """Return a page on this machine."""
        text = re.sub(r"(?m)^(machine @\w+ = ).*$", rf"\1{self.machine}", text)
        return re.sub(r"(?m)^(mesh @\w+ on @\w+ ).*$", rf"\1{{ {self.axes} }}", text)


BOX = "@dgx_a100(nodes = 1)"
AXES = (
    Mesh(BOX, "data = gpu:8"),
    Mesh("@dgx_a100_80gb(nodes = 8)", "data = node:8, model = gpu:8"),
    Mesh("@dgx_a100_80gb(nodes = 8)", "data = node:8, x = gpu:4, y = gpu:2"),
)


@dataclass(frozen=True)
class Row:
    """The search for the layouts of a step.

    Attributes:
        variables: how many layouts and ways are chosen.
        build: the CPU seconds to build the tables of costs.
        solve: those to find the least sum.
        rounds: the number of rounds of bounds, before branching.
        solution: what was found.
    """

    variables: int
    build: float
    solve: float
    rounds: int
    solution: VariableValues

    def cells(self) -> list[str]:
        """Return the columns of a table."""
        found = self.solution
        gap = 1 - found.bound / found.sum
        return [
            f"{self.variables:,}",
            f"{self.build:.2f}",
            f"{self.solve:.2f}",
            f"{self.build + self.solve:.2f}",
            str(self.rounds),
            f"{found.nodes:,}",
            f"gap {100 * gap:.1g} %" if found.ended else "proven",
            seconds_text(found.sum),
        ]


HEADS = ("variables", "build s", "solve s", "total s", "rounds", "nodes", "least", "step")


def alone(name: str, **sizes: int) -> ModuleOp:
    """Return the training step of a model on a single device, with some sizes."""
    module = collir.parse(MODELS / f"{name}.coll", functions=("step",))
    return collir.run_passes(collir.instantiate(module, "", **sizes), "unshard")


def on(mesh: Mesh, module: ModuleOp) -> ModuleOp:
    """Return a program of a single device on another mesh."""
    return collir.parse(mesh.put(collir.emit(module, "coll")))


def search(module: ModuleOp, seconds: float) -> Row:
    """Return the search for the layouts of the step of a module, which is changed."""
    rows: list[Row] = []

    def measure(function: FuncOp, closed: bool) -> None:
        if function.sym_name.data == "step":
            rows.append(_search(function, closed, seconds))

    lay_out(module, measure, callees=False)
    (row,) = rows
    return row


def _search(function: FuncOp, closed: bool, seconds: float) -> Row:
    start = time.process_time()
    graph = TensorGraph.build(function, closed)
    whole = sharding_of(function, graph, CostModel()).sum
    build = time.process_time() - start
    start = time.process_time()
    rounds = SumRounds(whole, tuple(np.arange(size) for size in whole.sizes))
    rounds.run(time.monotonic() + seconds)
    if rounds.is_proven and rounds.best is not None:
        solution = VariableValues(rounds.best, rounds.least, rounds.least)
    else:  # the same rounds again, and the search behind them
        start = time.process_time()
        solution = least_sum(whole, seconds)
    solve = time.process_time() - start
    return Row(len(whole.sizes), build, solve, rounds.count, solution)


# --- tables --------------------------------------------------------------------------------------

Entry = tuple[tuple[str, ...], Callable[[], ModuleOp]]
"""The first cells of a row, and the program whose search it is of."""


def models() -> Iterator[Entry]:
    """Yield the example models, on their own meshes."""
    for name in EXAMPLES:
        (mesh,) = re.findall(
            r"(?m)^mesh .*\{ (.*) \}$", (MODELS / f"{name}.coll").read_text("utf-8")
        )
        yield (name, mesh), lambda name=name: alone(name)


def layers() -> Iterator[Entry]:
    """Yield ViT with more and more layers, in a loop and unrolled."""
    for count in IN_LOOP:
        yield ("in a loop", str(count)), lambda count=count: alone("vit", layers=count)
    for count in UNROLLED:
        yield ("unrolled", str(count)), lambda count=count: unrolled(count)


def unrolled(layers: int) -> ModuleOp:
    """Return ViT with all layers one after the other."""
    return collir.run_passes(alone("vit", layers=layers), "unroll")


def devices() -> Iterator[Entry]:
    """Yield Llama on more and more devices, with 8 sequences for each node."""
    for nodes in NODES:
        mesh = Mesh(f"@dgx_a100_80gb(nodes = {nodes})", f"data = node:{nodes}, model = gpu:8")
        if nodes == 1:
            mesh = Mesh(mesh.machine, "data = gpu:2, model = gpu:4")
        yield (
            (f"{8 * nodes:,}", mesh.axes),
            lambda mesh=mesh, nodes=nodes: on(mesh, alone("llama", batch=8 * nodes)),
        )


def axes() -> Iterator[Entry]:
    """Yield ViT and Llama on meshes of more and more axes."""
    for name in ("vit", "llama"):
        for mesh in AXES:
            yield (name, mesh.axes), lambda name=name, mesh=mesh: on(mesh, alone(name, batch=64))


def published() -> Iterator[Entry]:
    """Yield the models of published searches: the same architectures and numbers of axes."""
    one = Mesh(BOX, "data = gpu:8")
    two = Mesh("@dgx_a100_80gb(nodes = 8)", "data = node:8, model = gpu:8")
    yield (
        ("ViT, 24 layers, 1 axis", "HAP: 7.5 CPU s, 4,117 nodes"),
        lambda: on(one, collir.run_passes(alone("vit", layers=24), "unroll")),
    )
    yield (
        ("  in a loop", ""),
        lambda: on(one, alone("vit", layers=24)),
    )
    yield (
        ("MoE, 12 layers, 64 devices", "HAP: 11.3 s"),
        lambda: on(two, collir.run_passes(alone("switch", groups=64), "unroll")),
    )
    yield (
        ("  in a loop", ""),
        lambda: on(two, alone("switch", groups=64)),
    )
    yield (
        ("Llama 3 8B, 2 axes", "autoparallel: 46.8 s"),
        lambda: on(two, alone("llama", batch=64)),
    )


TABLES: dict[str, tuple[tuple[str, ...], Callable[[], Iterator[Entry]]]] = {
    "models": (("model", "mesh"), models),
    "layers": (("ViT", "layers"), layers),
    "devices": (("devices", "mesh"), devices),
    "axes": (("model", "mesh"), axes),
    "published": (("model", "published"), published),
}
"""Name -> the heads of its first columns, and its rows."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--seconds", type=float, default=60.0, help="the limit of each search")
    arguments = parser.parse_args()
    search(alone("mlp"), arguments.seconds)  # what is imported or made once is not measured
    for name in arguments.tables.split(","):
        heads, entries = TABLES[name]
        rows = [[*first, *search(make(), arguments.seconds).cells()] for first, make in entries()]
        print(f"\n{name}")
        print("\n".join(table([*heads, *HEADS], rows, len(heads))), flush=True)


if __name__ == "__main__":
    main()
