"""The cases of ``algorithms.py``, as programs with prices: collectives by algorithms."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from programs import MACHINES, MODEL, on
from xdsl.dialects.builtin import ModuleOp

from collir.algorithms.table import ALGORITHMS
from collir.cost.model import StepCost, step_cost
from collir.cost.programs.simulate import simulate_function
from collir.ir.functions import functions_of
from collir.machine import Machine
from collir.syntax.reader import read as read_coll

ROOT = Path(__file__).parents[2]
FILE = "algorithms.json"
OWN = ROOT / "examples" / "algorithms" / "own.coll"
OWN_NAME, OWN_NODE = "@nodes", 4
"""The algorithm of ``OWN``, and the ranks of the nodes that it is for."""
REGULAR, IRREGULAR = ("two_nodes", "four_nodes", "two_racks"), ("uneven", "ports", "lanes")
SIZES = {
    "two_nodes": (2**13, 2**18, 2**20),
    "four_nodes": (2**13, 2**18),
    "two_racks": (2**13, 2**18),
} | dict.fromkeys(IRREGULAR, (2**20,))
"""The bytes of the full buffers on each network."""
TYPES = {
    "all_reduce": ("{n}] partial(sum: a)", "{n}]", ""),
    "all_gather": ("{n}@a]", "{n}]", " dim 0"),
    "reduce_scatter": ("{n}] partial(sum: a)", "{n}@a]", " dim 0"),
    "all_to_all": ("{p}@a, {n}]", "{p}, {n}@a]", " dim 0 to 1"),
    "broadcast": ("{n}] root(a)", "{n}]", ""),
}
"""Collective -> the types of its operand and result behind `f32[`, and its dimensions."""
LIBRARY = {
    "all_reduce": (
        "ALLREDUCE",
        "recursive_doubling",
        "reduce_scatter_allgather",
        "ring",
        "recexch",
        "k_reduce_scatter_allgather",
        "recursive_multiplying",
        "tree",
    ),
    "all_gather": (
        "ALLGATHER",
        "ring",
        "recursive_doubling",
        "brucks",
        "k_brucks",
        "recexch_doubling",
        "recexch_halving",
    ),
    "reduce_scatter": (
        "REDUCE_SCATTER_BLOCK",
        "pairwise",
        "recursive_halving",
        "recursive_doubling",
        "noncommutative",
    ),
    "all_to_all": ("ALLTOALL", "pairwise", "brucks", "scattered", "k_brucks"),
    "broadcast": (
        "BCAST",
        "binomial",
        "scatter_recursive_doubling_allgather",
        "scatter_ring_allgather",
        "pipelined_tree",
        "tree",
    ),
}
"""Collective -> its name in MPICH's settings, and the algorithms that they know."""

AS_BLOCKS, APART, IN_ROUNDS = "trees", "trees, apart", "trees, in rounds"
"""Ways in which trees run: the steps of thread blocks in their order, each step as soon as it has
its data, and as the algorithm that `collir synthesize -o FILE.coll` declares."""


@dataclass(frozen=True)
class Case:
    """A collective over all ranks.

    Attributes:
        algorithm: that of `using`; empty if the library chooses.
        size: bytes of the full buffer.
        declared: the text that declares the algorithm, which is named after the collective.
    """

    kind: str
    algorithm: str
    size: int
    declared: str = ""

    @property
    def using(self) -> str:
        """The algorithm behind `using`."""
        return f"@trees_{self.kind}" if self.declared else self.algorithm


def cases(given: Machine, sizes: Sequence[int]) -> list[Case]:
    """Return all cases on a machine, those of a collective and a size one after the other; that of
    the library is first."""
    listed: list[Case] = []
    for size in sizes:
        for kind in TYPES:
            names = [name for (of, name) in ALGORITHMS if of == kind]
            if kind == "all_reduce" and given.levels[-1].size == OWN_NODE:
                names.append(OWN_NAME)
            listed += [Case(kind, name, size) for name in ("", *names)]
    return listed


def own_text() -> str:
    """Return the text of the algorithm that is declared in ``OWN``."""
    text = OWN.read_text(encoding="utf-8")
    start = text.index(f"algorithm {OWN_NAME}")
    return text[start : text.index("\nfunc", start)]


def module_of(listed: Sequence[Case], given: Machine) -> ModuleOp:
    """Return a module with a function for each case; cases on one mesh compute the same."""
    factors = " * ".join(f"{level.name}:{level.size}" for level in given.levels)
    lines = [(MACHINES / f"{given.name}.coll").read_text(encoding="utf-8"), own_text()]
    lines += dict.fromkeys(case.declared for case in listed)
    meshes = list(dict.fromkeys((case.kind, case.size) for case in listed))
    lines += [
        f"mesh @m{number} on @{given.name} {{ a = {factors} }}" for number in range(len(meshes))
    ]
    for number, case in enumerate(listed):
        source, target, dims = TYPES[case.kind]
        sizes = {"n": case.size // 4, "p": given.devices}
        using = f" using {case.using}" if case.using else ""
        lines.append(
            f"func @f{number}(%x: f32[{source.format(**sizes)}) -> f32[{target.format(**sizes)} "
            f"on @m{meshes.index((case.kind, case.size))} {{\n"
            f"  %y = {case.kind} %x over a{dims}{using}\n  return %y\n}}"
        )
    return read_coll("\n".join(lines))


def costs(listed: Sequence[Case], given: Machine, fit: Machine) -> list[StepCost]:
    """Return the price of each case with an algorithm on a machine with fitted numbers."""
    prices: list[StepCost] = []
    for function in functions_of(module_of(listed, given)):
        [step] = simulate_function(function, MODEL).collectives
        prices.append(step_cost(on(step.collective, fit), MODEL))
    return prices
