"""Chunk programs as MSCCL's XML."""

from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

from collir.algorithms.collectives import divisions
from collir.algorithms.program import ChunkBuffer, ChunkProgram, ChunkRange, ThreadBlock

KINDS = {
    "s": "send", "r": "receive", "rcs": "receive_copy_send", "rrs": "receive_reduce_send",
    "rrc": "receive_reduce_copy", "rrcs": "receive_reduce_copy_send", "cpy": "copy",
    "re": "reduce", "nop": "nop",
}  # fmt: skip
"""The kinds of steps by their names in a file; ``ra`` of microsoft/msccl is not known here."""

BUFFERS = {"i": ChunkBuffer.INPUT, "o": ChunkBuffer.OUTPUT, "s": ChunkBuffer.SCRATCH}

COLLECTIVES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reduce_scatter": "reduce_scatter",
    "reducescatter": "reduce_scatter", "alltoall": "all_to_all", "broadcast": "broadcast",
    "reduce": "reduce", "gather": "gather", "scatter": "scatter", "custom": "custom",
}  # fmt: skip
"""The collectives by their names in a file; microsoft/msccl and RCCL write one of them apart."""

_NAMES = {kind: name for name, kind in KINDS.items()}
_LETTERS = {buffer: letter for letter, buffer in BUFFERS.items()}


def text_of(program: ChunkProgram, runtime: str = "rccl") -> str:
    """Return the file of a program.

    Args:
        runtime: ``rccl`` or ``msccl``, which call a reduce_scatter by other names.

    Raises:
        ValueError: a step waits for several others, or the runtimes do not know the collective.
    """
    return "\n".join(_lines(program, runtime)) + "\n"


def _lines(program: ChunkProgram, runtime: str) -> Iterator[str]:
    names = [name for name, known in COLLECTIVES.items() if known == program.collective]
    if not names or program.collective == "custom":
        raise ValueError(f"MSCCL has no {program.collective}")
    name = names[-1] if runtime == "rccl" else names[0]
    ranks = len(program.ranks)
    loop = program.chunks * divisions(program.collective, ranks)
    channels = 1 + max((x.channel for r in program.ranks for x in r.blocks), default=0)
    yield (
        f'<algo name={quoteattr(program.name)} proto="Simple" nchannels="{channels}" '
        f'nchunksperloop="{loop}" ngpus="{ranks}" coll="{name}" '
        f'inplace="{int(program.in_place)}" outofplace="{int(not program.in_place)}" '
        f'root="{program.root}" minBytes="0" maxBytes="0">'
    )
    for rank, own in enumerate(program.ranks):
        sizes = " ".join(
            f'{letter}_chunks="{own.sizes.get(buffer, 0)}"' for letter, buffer in BUFFERS.items()
        )
        yield f'  <gpu id="{rank}" {sizes}>'
        waited = {x for block in own.blocks for step in block.steps for x in step.after}
        for block in own.blocks:
            yield (
                f'    <tb id="{block.number}" send="{block.sends_to}" '
                f'recv="{block.receives_from}" chan="{block.channel}">'
            )
            yield from _steps(block, waited)
            yield "    </tb>"
        yield "  </gpu>"
    yield "</algo>"


def _steps(block: ThreadBlock, waited: set[tuple[int, int]]) -> Iterator[str]:
    for number, step in enumerate(block.steps):
        if len(step.after) > 1:
            raise ValueError(f"step {number} of block {block.number} waits for several steps")
        (awaited, at), *_ = *step.after, (-1, -1)
        has = int((block.number, number) in waited)
        yield (
            f'      <step s="{number}" type="{_NAMES[step.kind]}" '
            f"{_part('src', step.source or step.target)} "
            f"{_part('dst', step.target or step.source)} "
            f'cnt="{step.count}" depid="{awaited}" deps="{at}" hasdep="{has}"/>'
        )


def _part(which: str, chunks: ChunkRange | None) -> str:
    letter, offset = (_LETTERS[chunks.buffer], chunks.offset) if chunks else ("i", -1)
    return f'{which}buf="{letter}" {which}off="{offset}"'
