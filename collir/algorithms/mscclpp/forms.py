"""Faults of plans that need no run to be seen: ranges, barriers, pipelines, switches."""

from collections import Counter
from collections.abc import Iterator

from collir.algorithms.mscclpp.operations import MOVES, PACKET_OPERANDS
from collir.algorithms.mscclpp.plan import ExecutionPlan, PlanOperation


def malformed(plan: ExecutionPlan) -> Iterator[tuple[str, int]]:
    """Yield what no run could make sense of, with its line."""
    for rank, own in enumerate(plan.ranks):
        for block in own.blocks:
            for number, operation in enumerate(block.operations):
                at = f"rank {rank}, block {block.number}, operation {number}"
                for part in operation.flat:
                    for message in _of_operation(plan, rank, part):
                        yield f"{at} ({part.name}) {message}", part.line
                for part in operation.body:
                    for message in _in_pipeline(operation, part):
                        yield f"{at} (pipeline) {message}", part.line
        yield from _barriers(plan, rank)


def _of_operation(plan: ExecutionPlan, rank: int, operation: PlanOperation) -> Iterator[str]:
    for part in (*operation.sources, *operation.targets):
        for peer in part.ranks:
            size = plan.ranks[peer].sizes[part.buffer]
            if part.offset + part.size > size:
                yield f"uses {part}: the buffer has {size} chunks"
                break
        if len(part.ranks) > 1:
            joined = part.buffer, part.ranks
            for peer in part.ranks:
                count = plan.ranks[peer].switches.count(joined)
                if count != plan.ranks[rank].switches.count(joined):
                    yield f"uses a switch of {part.buffer} that rank {peer} has {count} times"
                    break
    if _has_packets(operation) and not plan.packets:
        yield "uses packets, for which the scratch has no room: `protocol` is not LL"


def _has_packets(operation: PlanOperation) -> bool:
    kind = MOVES.get(operation.name)
    return kind is not None and any(
        x in PACKET_OPERANDS
        for x in (*kind.sources, *kind.targets, kind.more_sources, kind.more_targets)
    )


def _in_pipeline(pipeline: PlanOperation, operation: PlanOperation) -> Iterator[str]:
    """Yield why the kernel does not run an operation in iterations as it should."""
    for part in (*operation.sources, *operation.targets):
        if part.size != pipeline.chunks:
            yield (
                f"runs over {pipeline.chunks} chunks and uses {part}: the kernel would go on "
                "behind its end, or leave some out"
            )
            return
    if operation.slices > 1:
        yield f"divides {operation.name} among thread blocks: the kernel would go on behind its end"
    if _has_packets(operation):
        yield f"has {operation.name}: the kernel sends all packets in every iteration"


def _barriers(plan: ExecutionPlan, rank: int) -> Iterator[tuple[str, int]]:
    """Yield the barriers at which other numbers of blocks meet than they are for."""
    own = plan.ranks[rank]
    blocks: dict[int, Counter[int]] = {}
    first: dict[int, PlanOperation] = {}
    for block in own.blocks:
        for operation in block.operations:
            for barrier in operation.flat:
                if barrier.name != "barrier":
                    continue
                known = first.setdefault(barrier.barrier, barrier)
                blocks.setdefault(barrier.barrier, Counter())[block.number] += 1
                if known.blocks != barrier.blocks:
                    message = (
                        f"barrier {barrier.barrier} of rank {rank} is for {known.blocks} blocks"
                    )
                    yield (
                        f"{message}, and for {barrier.blocks} in block {block.number}",
                        barrier.line,
                    )
    for number, users in blocks.items():
        if len(users) != first[number].blocks:
            yield (
                (
                    f"barrier {number} of rank {rank} is for {first[number].blocks} blocks, and "
                    f"{len(users)} come to it"
                ),
                first[number].line,
            )
