"""Algorithms as chunk programs, a plain interpreter on numbers, and faults to inject."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from collir.algorithms.program import (
    ChunkBuffer,
    ChunkProgram,
    ChunkRange,
    ChunkStep,
    RankProgram,
    ThreadBlock,
)

IN, OUT, SCRATCH = ChunkBuffer.INPUT, ChunkBuffer.OUTPUT, ChunkBuffer.SCRATCH


def step(
    kind: str,
    source: tuple[ChunkBuffer, int] | None = None,
    target: tuple[ChunkBuffer, int] | None = None,
    *after: tuple[int, int],
) -> ChunkStep:
    """Return a step of one chunk."""
    parts = [ChunkRange(*part, 1) if part else None for part in (source, target)]
    return ChunkStep(kind, parts[0], parts[1], after)


def ring_all_reduce(n: int) -> ChunkProgram:
    """Return the ring of one block a rank, out of place."""
    ranks: list[RankProgram] = []
    for r in range(n):
        steps = [step("send", (IN, r))]
        for k in range(1, n - 1):
            steps.append(step("receive_reduce_send", (IN, (r - k) % n)))
        last = (r + 1) % n
        steps.append(step("receive_reduce_copy_send", (IN, last), (OUT, last)))
        steps += [step("receive_copy_send", None, (OUT, (r - k) % n)) for k in range(n - 2)]
        steps.append(step("receive", None, (OUT, (r + 2) % n)))
        block = ThreadBlock(0, tuple(steps), (r + 1) % n, (r - 1) % n)
        ranks.append(RankProgram((block,), {IN: n, OUT: n}))
    return ChunkProgram("ring", "all_reduce", ranks, n)


def all_pairs_all_reduce(n: int) -> ChunkProgram:
    """Return the direct one in place, with a block for each peer and one that reduces."""
    ranks: list[RankProgram] = []
    for r in range(n):
        peers = [p for p in range(n) if p != r]
        blocks: list[ThreadBlock] = []
        for number, p in enumerate(peers):
            steps = (
                step("send", (IN, p)),
                step("receive", None, (SCRATCH, number)),
                step("send", (IN, r), None, (n - 1, n - 2)),
                step("receive", None, (IN, p)),
            )
            blocks.append(ThreadBlock(number, steps, p, p))
        reduces = [step("reduce", (SCRATCH, k), (IN, r), (k, 1)) for k in range(n - 1)]
        blocks.append(ThreadBlock(n - 1, tuple(reduces)))
        ranks.append(RankProgram(tuple(blocks), {IN: n, OUT: n, SCRATCH: n - 1}))
    return ChunkProgram("all pairs", "all_reduce", ranks, n, in_place=True)


def ring_all_gather(n: int) -> ChunkProgram:
    """Return the ring in place."""
    ranks: list[RankProgram] = []
    for r in range(n):
        steps = [step("send", (OUT, r))]
        steps += [step("receive_copy_send", None, (OUT, (r - k) % n)) for k in range(1, n - 1)]
        steps.append(step("receive", None, (OUT, (r + 1) % n)))
        block = ThreadBlock(0, tuple(steps), (r + 1) % n, (r - 1) % n)
        ranks.append(RankProgram((block,), {IN: 1, OUT: n}))
    return ChunkProgram("ring", "all_gather", ranks, 1, in_place=True)


def direct_all_to_all(n: int) -> ChunkProgram:
    """Return that which sends each chunk to its rank."""
    ranks: list[RankProgram] = []
    for r in range(n):
        blocks = [
            ThreadBlock(k, (step("send", (IN, p)), step("receive", None, (OUT, p))), p, p)
            for k, p in enumerate(p for p in range(n) if p != r)
        ]
        blocks.append(ThreadBlock(n - 1, (step("copy", (IN, r), (OUT, r)),)))
        ranks.append(RankProgram(tuple(blocks), {IN: n, OUT: n}))
    return ChunkProgram("direct", "all_to_all", ranks, 1)


PROGRAMS: tuple[Callable[[int], ChunkProgram], ...] = (
    ring_all_reduce, all_pairs_all_reduce, ring_all_gather, direct_all_to_all,
)  # fmt: skip


# --- a plain interpreter -------------------------------------------------------------------------


def results(program: ChunkProgram, rng: random.Random, capacity: int) -> list[dict[int, int]] | str:
    """Return the outputs of all ranks for distinct powers of 3 as inputs, or why there are none;
    blocks run in a random order."""
    n, c = len(program.ranks), program.chunks
    inner = {"all_gather": (IN, OUT), "all_reduce": (IN, OUT)}.get(program.collective)

    def at(rank: int, buffer: ChunkBuffer, k: int) -> tuple[int, ChunkBuffer, int]:
        if program.in_place and inner and buffer is inner[0]:
            return rank, inner[1], k + (rank * c if program.collective == "all_gather" else 0)
        return rank, buffer, k

    memory: dict[tuple[int, ChunkBuffer, int], int] = {}
    for rank, own in enumerate(program.ranks):
        for k in range(own.sizes[IN]):
            memory[at(rank, IN, k)] = number_of(rank, k)
    queues: dict[tuple[int, int, int], deque[list[int]]] = {}
    done = {(r, b.number): 0 for r, own in enumerate(program.ranks) for b in own.blocks}
    blocks = {(r, b.number): b for r, own in enumerate(program.ranks) for b in own.blocks}
    while True:
        able = [key for key in blocks if done[key] < len(blocks[key].steps)]
        rng.shuffle(able)
        for key in able:
            rank, block = key[0], blocks[key]
            own = block.steps[done[key]]
            receives, sends = own.kind.startswith("receive"), "send" in own.kind
            into = queues.setdefault((block.receives_from, rank, block.channel), deque())
            out = queues.setdefault((rank, block.sends_to, block.channel), deque())
            if any(done[rank, b] <= k for b, k in own.after):
                continue
            if (receives and not into) or (sends and len(out) >= capacity):
                continue
            values = into.popleft() if receives else None

            def read(part: ChunkRange | None, rank: int = rank) -> list[int]:
                assert part is not None
                return [memory.get(at(rank, part.buffer, part.offset + k), 1 << 300)
                        for k in range(part.size)]  # fmt: skip

            if values is None and own.kind != "nop":
                values = read(own.source)
                if own.kind == "reduce":
                    values = [a + b for a, b in zip(values, read(own.target), strict=True)]
            elif "reduce" in own.kind:
                values = [a + b for a, b in zip(read(own.source), values or [], strict=False)]
            keeps = "copy" in own.kind or own.kind in ("receive", "reduce")
            if keeps and own.target is not None and values is not None:
                for k, value in enumerate(values):
                    memory[at(rank, own.target.buffer, own.target.offset + k)] = value
            if sends and values is not None:
                out.append(values)
            done[key] += 1
            break
        else:
            break
    if any(done[key] < len(block.steps) for key, block in blocks.items()):
        return "deadlock"
    if any(queues.values()):
        return "messages are left"
    size = {"all_reduce": c, "all_gather": n * c, "all_to_all": n * c}[program.collective]
    return [{k: memory.get(at(r, OUT, k), 0) for k in range(size)} for r in range(n)]


def number_of(rank: int, chunk: int) -> int:
    """Return the input of a chunk: sums of few tell what was added how often."""
    return 1 << 8 * (rank * 32 + chunk)


def wanted(program: ChunkProgram) -> list[dict[int, int]]:
    """Return the outputs that a program should have."""
    n, c = len(program.ranks), program.chunks
    match program.collective:
        case "all_reduce":
            row = {k: sum(number_of(r, k) for r in range(n)) for k in range(c)}
            return [row for _ in range(n)]
        case "all_gather":
            row = {q * c + k: number_of(q, k) for q in range(n) for k in range(c)}
            return [row for _ in range(n)]
        case _:
            return [{q: number_of(q, r) for q in range(n)} for r in range(n)]


# --- faults --------------------------------------------------------------------------------------


def with_fault(program: ChunkProgram, rng: random.Random) -> ChunkProgram:
    """Return a program with one change of a step, or of what it waits for."""
    rank = rng.randrange(len(program.ranks))
    own = program.ranks[rank]
    number = rng.choice([k for k, b in enumerate(own.blocks) if b.steps])
    block = own.blocks[number]
    changed = replace(block, steps=tuple(_changed(block.steps, own, rng)))
    blocks = (*own.blocks[:number], changed, *own.blocks[number + 1 :])
    ranks = [*program.ranks]
    ranks[rank] = replace(own, blocks=blocks)
    return replace(program, ranks=ranks)


def _changed(
    steps: tuple[ChunkStep, ...], own: RankProgram, rng: random.Random
) -> Iterator[ChunkStep]:
    at, what = rng.randrange(len(steps)), rng.randrange(7)
    for number, each in enumerate(steps):
        if number != at:
            yield each
            continue
        match what:
            case 0:  # it is forgotten
                continue
            case 1:
                yield from (each, each)
            case 2 | 3:
                yield replace(each, source=_moved(each.source, own, rng))
            case 4:
                yield replace(each, target=_moved(each.target, own, rng))
            case 5:
                yield replace(each, after=())
            case _:
                kinds = {
                    "receive_reduce_send": "receive_copy_send", "receive_copy_send": "receive",
                    "receive_reduce_copy_send": "receive_reduce_send", "reduce": "copy",
                    "copy": "reduce", "send": "nop", "receive": "nop",
                }  # fmt: skip
                target = each.target or each.source
                yield replace(each, kind=kinds.get(each.kind, each.kind), target=target)


def _moved(part: ChunkRange | None, own: RankProgram, rng: random.Random) -> ChunkRange | None:
    if part is None:
        return None
    return ChunkRange(part.buffer, rng.randrange(max(1, own.sizes.get(part.buffer, 1))), part.size)
