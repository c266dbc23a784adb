"""Execution plans as the JSON that MSCCL++'s executor reads, an operation on each line."""

import json
from collections.abc import Iterator, Sequence

from collir.algorithms.mscclpp.operations import MOVES, SIGNALS, WAITS
from collir.algorithms.mscclpp.plan import ExecutionPlan, PlanBlock, PlanOperation, PlanRange
from collir.algorithms.program import ChunkBuffer

COLLECTIVES = {
    "all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter",
    "all_to_all": "alltoall", "broadcast": "broadcast", "reduce": "reduce", "gather": "gather",
    "scatter": "scatter",
}  # fmt: skip
"""The names of collectives in a file."""

_LETTERS = {ChunkBuffer.INPUT: "i", ChunkBuffer.OUTPUT: "o", ChunkBuffer.SCRATCH: "s"}

RemoteBuffer = tuple[int, ChunkBuffer]


def text_of_plan(plan: ExecutionPlan) -> str:
    """Return the file of a plan that uses channels of memory or ports."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: ExecutionPlan) -> Iterator[str]:
    outline = plan.outline
    yield "{"
    yield f'"name": {json.dumps(outline.name)},'
    yield f'"collective": "{COLLECTIVES[outline.collective]}",'
    yield f'"protocol": "{"LL" if plan.packets else "Simple"}",'
    yield f'"inplace": {json.dumps(outline.in_place)},'
    yield f'"reuse_resources": {json.dumps(plan.reuses_scratch)},'
    yield f'"num_threads_per_block": {plan.threads},'
    yield f'"use_double_scratch_buffer": {json.dumps(plan.double_scratch)},'
    yield f'"buffer_alignment": {plan.alignment},'
    yield '"min_message_size": 0,'
    yield f'"max_message_size": {2**64 - 1},'
    yield '"gpus": ['
    for rank, own in enumerate(plan.ranks):
        remote = sorted({
            (part.ranks[0], part.buffer) for block in own.blocks for operation in block.operations
            for part in (*operation.sources, *operation.targets) if part.ranks != (rank,)
        })  # fmt: skip
        kinds = [kind for kind, peers in own.peers.items() if peers]
        yield f'{{"id": {rank},'
        for buffer in ChunkBuffer:
            yield f' "{buffer}_chunks": {own.sizes[buffer]},'
        yield ' "threadblocks": ['
        for number, block in enumerate(own.blocks):
            comma = "," * (number + 1 < len(own.blocks))
            yield from _block(rank, block, remote, comma)
        yield " ],"
        channels = [{"channel_type": x, "connected_to": [*own.peers[x]]} for x in kinds]
        yield f' "channels": {json.dumps(channels)},'
        buffers = [
            {"rank": peer, "type": _LETTERS[x], "access_channel_types": kinds} for peer, x in remote
        ]
        yield f' "remote_buffers": {json.dumps(buffers)},'
        semaphores = [{"init_value": x} for x in own.semaphores]
        yield f' "semaphores": {json.dumps(semaphores)}}}{"," * (rank + 1 < len(plan.ranks))}'
    yield "]"
    yield "}"


def _block(
    rank: int, block: PlanBlock, remote: Sequence[RemoteBuffer], comma: str
) -> Iterator[str]:
    [(kind, channels)] = block.channels.items()
    used = sorted({
        (part.ranks[0], part.buffer) for user in block.operations
        for part in (*user.sources, *user.targets) if part.ranks != (rank,)
    })  # fmt: skip
    yield f'  {{"id": {block.number}, "ops": ['
    for number, operation in enumerate(block.operations):
        text = json.dumps(_operation(rank, operation, channels, used))
        yield f"   {text}{',' * (number + 1 < len(block.operations))}"
    listed = [{"channel_type": kind, "channel_ids": [*channels]}] if channels else []
    refs = [{"access_channel_type": kind, "remote_buffer_ids": [remote.index(x) for x in used]}]
    yield (
        f'   ], "channels": {json.dumps(listed)}, '
        f'"remote_buffer_refs": {json.dumps(refs if used else [])}}}{comma}'
    )


def _operation(
    rank: int, operation: PlanOperation, channels: Sequence[int], remote: Sequence[RemoteBuffer]
) -> dict[str, object]:
    def part(x: PlanRange) -> dict[str, object]:
        where: dict[str, object] = {"type": _LETTERS[x.buffer]}
        if x.ranks != (rank,):
            where = {"buffer_id": remote.index((x.ranks[0], x.buffer))}
        return {**where, "index": x.offset, "size": x.size}

    made: dict[str, object] = {"name": operation.name}
    if operation.name in MOVES:
        made["src_buff"] = [part(x) for x in operation.sources]
        made["dst_buff"] = [part(x) for x in operation.targets]
        if MOVES[operation.name].more_sources and not MOVES[operation.name].paired:
            made["reduce_op"] = "sum"
    if operation.channels or operation.name in (*SIGNALS, *WAITS):
        made["channel_ids"] = [channels.index(x) for x in operation.channels]
    if operation.channel_type != "none":
        made["channel_type"] = operation.channel_type
    if operation.semaphores:
        made["semaphore_ids"] = [*operation.semaphores]
    return made
