"""Steps that are one: what a thread block has received and kept, and sends on.

receive_reduce_copy o[3]; send o[3]   ->   receive_reduce_copy_send o[3]
receive o[3]; send o[3]               ->   receive_copy_send o[3]
"""

from collections.abc import Iterator
from dataclasses import replace

from collir.algorithms.program import ChunkProgram, ChunkStep, RankProgram, ThreadBlock

_TOGETHER = {
    "receive": "receive_copy_send",
    "receive_reduce_copy": "receive_reduce_copy_send",
}


def fused_program(program: ChunkProgram) -> ChunkProgram:
    """Return a program whose blocks receive and send on in one step.

    The step waits for the message and for room in the connection before it does either, so that a
    program may need connections that hold more.
    """
    return replace(program, ranks=[_fused_rank(x) for x in program.ranks])


def _fused_rank(rank: RankProgram) -> RankProgram:
    places: dict[tuple[int, int], tuple[int, int]] = {}
    blocks: list[ThreadBlock] = []
    for block in rank.blocks:
        steps: list[ChunkStep] = []
        for number, step in enumerate(block.steps):
            if steps and _is_sent_on(steps[-1], step, block.number):
                steps[-1] = replace(steps[-1], kind=_TOGETHER[steps[-1].kind])
            else:
                steps.append(step)
            places[block.number, number] = block.number, len(steps) - 1
        blocks.append(replace(block, steps=tuple(steps)))
    return replace(rank, blocks=tuple(replace(x, steps=tuple(_moved(x, places))) for x in blocks))


def _is_sent_on(before: ChunkStep, step: ChunkStep, block: int) -> bool:
    """Return whether a step sends what the one before has kept, and waits for no other block."""
    waits = any(other != block for other, _ in step.after)
    sends = step.kind == "send" and step.source == before.target
    return sends and before.kind in _TOGETHER and not waits


def _moved(
    block: ThreadBlock, places: dict[tuple[int, int], tuple[int, int]]
) -> Iterator[ChunkStep]:
    for step in block.steps:
        yield replace(step, after=tuple(places[x] for x in step.after)) if step.after else step
