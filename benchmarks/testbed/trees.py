"""Trees of `collir synthesize` as C, which ``chunks.c`` runs on the network."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from collir.algorithms.collectives import divisions
from collir.algorithms.program import DOES, ChunkProgram, ChunkStep
from collir.machine import Machine
from collir.synthesis.trees.declared import declared_text, pieces_for
from collir.synthesis.trees.graph import graph_of_machine
from collir.synthesis.trees.program import program_of_trees
from collir.synthesis.trees.schedules import TreeProblem, TreeSchedule

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
"""The collectives that are measured."""
PIECE, MOST_PIECES = 8192, 16
"""The least bytes of a piece of a chunk, and the most pieces."""
MOST_SENDS = 4096
"""The most messages of trees that are written as rounds: the C gets long."""
TAGS = 1024
"""More than the steps of a thread block."""
ENGINE = Path(__file__).with_name("chunks.c")


@dataclass(frozen=True)
class Trees:
    """The trees of a collective on a machine, and their program for a buffer.

    Attributes:
        size: bytes of the full buffer.
        bound: the bytes per second of the full buffer that no schedule exceeds.
    """

    collective: str
    size: int
    schedule: TreeSchedule
    bound: float
    program: ChunkProgram

    @property
    def predicted(self) -> float:
        """The predicted seconds."""
        return self.schedule.seconds(self.size)

    @property
    def pieces(self) -> int:
        """The pieces of each chunk."""
        return max(1, min(MOST_PIECES, self.size // self.schedule.count // PIECE))

    def declared(self, latency: float) -> str:
        """Return the text that declares the trees as rounds, with as many pieces as take the least
        time where a link has some latency; empty if that are too many sends."""
        slow = replace(self.schedule, latency=latency * self.schedule.depth)
        pieces = min(MOST_PIECES, pieces_for(slow, self.size))
        links = sum(len(tree.links) for tree in self.schedule.trees)
        if links * pieces > MOST_SENDS:
            return ""
        name = f"trees_{self.collective}"
        return declared_text(name, self.collective, self.schedule.trees, pieces)


def trees_of(machine: Machine, collective: str, size: int) -> Trees:
    """Return the trees that `collir synthesize` chooses for a buffer of some bytes."""
    problem = TreeProblem(graph_of_machine(machine), collective)
    known = (problem.fastest(), problem.overlapped(), problem.spread())
    schedule = min((x for x in known if x), key=lambda each: each.seconds(size))
    program = program_of_trees("trees", collective, machine.devices, schedule.trees, 0)
    return Trees(collective, size, schedule, problem.bound, program)


def begins(trees: Trees) -> list[int]:
    """Return the first number of each chunk of the full buffer, and their number.

    The parts of ranks are equal, and cut into chunks that are equal but for one number.
    """
    numbers, rows = trees.size // 4, trees.schedule.count
    parts = divisions(trees.collective, len(trees.program.ranks))
    part, each = numbers // parts, rows // parts
    listed = [row // each * part + row % each * part // each for row in range(rows)]
    return [*listed, numbers]


class Part(NamedTuple):
    """A thread block as it runs: its ends, a tag for its messages, and the number of its steps."""

    to: int
    source: int
    tag: int
    steps: int


def emit(name: str, trees: Trees, apart: bool) -> str:
    """Return a C function that runs a program of trees: ``call_NAME``.

    Args:
        apart: True if each step waits for its own data only, so that trees do not wait for each
            other; false if the steps of a thread block run in their order, as runtimes run them.
    """
    cuts = begins(trees)
    lines: list[str] = []
    programs: list[str] = []
    for rank, program in enumerate(trees.program.ranks):
        table = f"{name}_{rank}"
        parts, steps = list[Part](), list[ChunkStep]()
        firsts = [*accumulate((len(block.steps) for block in program.blocks), initial=0)]
        for block in program.blocks:
            ends = (block.sends_to, block.receives_from)
            if apart:
                tags = (TAGS * block.channel + number for number in range(len(block.steps)))
                parts += [Part(*ends, tag, 1) for tag in tags]
            else:
                parts.append(Part(*ends, TAGS * block.channel, len(block.steps)))
            steps += block.steps
        afters = [
            (firsts[block] + number, 0) if apart else (block, number)
            for step in steps
            for block, number in step.after
        ]
        begin = accumulate((part.steps for part in parts), initial=0)
        blocks = [
            f"{{{part.to}, {part.source}, {part.tag}, {first}, {part.steps}}}"
            for part, first in zip(parts, begin, strict=False)
        ]
        lines += _table("after", table, [f"{{{block}, {step}}}" for block, step in afters])
        lines += _table("step", table, list(_steps(steps, cuts)))
        lines += _table("block", table, blocks)
        tables = f"blocks_{table}, steps_{table}, afters_{table}"
        programs.append(f"{{{trees.pieces}, {len(parts)}, {tables}}}")
    lines += _table("program", name, programs)
    body = _body(trees).replace("RUN", f"err = run_program(&programs_{name}[rank], memory);")
    lines += [f"static int call_{name}(const float *x, float *y)", "{", "  int err;", body, "}"]
    return "\n".join(lines)


def _table(what: str, name: str, rows: Sequence[str]) -> list[str]:
    head = f"static const struct {what} {what}s_{name}[] = {{"
    return [head, ",\n".join(f"  {row}" for row in rows or ["{0}"]), "};"]


def _steps(steps: Sequence[ChunkStep], cuts: Sequence[int]) -> Iterator[str]:
    before = 0
    for step in steps:
        does, part = DOES[step.kind], step.target or step.source
        assert part is not None, step
        assert does.keeps == does.receives, step
        flags = does.receives + 2 * does.reduces + 4 * does.sends
        begin, end = cuts[part.offset], cuts[part.offset + part.size]
        yield f"{{{flags}, {begin}, {end}, {before}, {len(step.after)}}}"
        before += len(step.after)


def _body(trees: Trees) -> str:
    """Return the code between the operand of a rank and its result, in which the program runs."""
    whole, part = trees.size, trees.size // len(trees.program.ranks)
    match trees.collective:
        case "reduce_scatter":
            return (
                "  static float memory[ELEMENTS];\n"
                f"  memcpy(memory, x, {whole});\n  RUN\n"
                f"  memcpy(y, memory + {part // 4} * rank, {part});\n  return err;"
            )
        case "all_gather":
            copied = f"memcpy(y + {part // 4} * rank, x, {part});"
        case "broadcast":
            copied = f"if (rank == 0) memcpy(y, x, {whole});"
        case _:
            copied = f"memcpy(y, x, {whole});"
    return f"  float *memory = y;\n  {copied}\n  RUN\n  return err;"
