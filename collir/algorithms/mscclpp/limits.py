"""The limits of MSCCL++'s executor: beyond them it stops, or writes where it should not.

They are those of src/core/include/execution_common.hpp; src/core/executor/execution_plan.cc fills
arrays of these sizes without looking, so that some are kept by nobody else.
"""

from collections.abc import Iterator

from collir.algorithms.mscclpp.plan import ExecutionPlan, PlanBlock, PlanOperation

MOST_OPERATIONS = 64
MOST_CHANNELS = 16
MOST_CHANNELS_OF_OPERATION = 8
MOST_RANGES_OF_OPERATION = 10
MOST_BARRIERS = 16
MOST_SEMAPHORES_OF_OPERATION = 16
MOST_THREADS = 1024
ALIGNMENT = 16


def exceeded(plan: ExecutionPlan) -> Iterator[tuple[str, int]]:
    """Yield each limit that a plan exceeds, with the line."""
    if not 1 <= plan.threads <= MOST_THREADS:
        yield f"a thread block has {MOST_THREADS} threads at most, and here {plan.threads}", 1
    if plan.alignment % ALIGNMENT:
        yield (
            (
                f"the kernel moves {ALIGNMENT} bytes at once, and the buffers are multiples of "
                f"{plan.alignment}"
            ),
            1,
        )
    for rank, own in enumerate(plan.ranks):
        for block in own.blocks:
            where = f"rank {rank}, block {block.number}"
            yield from _of_block(where, block)
            for number, operation in enumerate(block.operations):
                for part in operation.flat:
                    at = f"{where}, operation {number} ({part.name})"
                    for message in _of_operation(part):
                        yield f"{at} {message}", part.line


def _of_block(where: str, block: PlanBlock) -> Iterator[tuple[str, int]]:
    count = sum(1 + len(x.body) for x in block.operations)
    if count > MOST_OPERATIONS:
        message = f"{where} has {count} operations: a thread block has {MOST_OPERATIONS} at most"
        yield message, block.line
    for kind, channels in block.channels.items():
        if len(channels) > MOST_CHANNELS:
            message = f"{where} has {len(channels)} {kind} channels: {MOST_CHANNELS} are the most"
            yield message, block.line
    for kind, buffers in block.remote_buffers.items():
        if buffers > MOST_CHANNELS:
            yield (
                (
                    f"{where} has {buffers} buffers of other ranks for {kind} channels: "
                    f"{MOST_CHANNELS} are the most"
                ),
                block.line,
            )


def _of_operation(operation: PlanOperation) -> Iterator[str]:
    for count, most, noun in (
        (len(operation.channels), MOST_CHANNELS_OF_OPERATION, "channels"),
        (len(operation.sources), MOST_RANGES_OF_OPERATION, "sources"),
        (len(operation.targets), MOST_RANGES_OF_OPERATION, "targets"),
        (len(operation.semaphores), MOST_SEMAPHORES_OF_OPERATION, "semaphores"),
    ):
        if count > most:
            yield f"has {count} {noun}: an operation has {most} at most"
    if operation.barrier >= MOST_BARRIERS:
        yield f"uses barrier {operation.barrier}: a rank has {MOST_BARRIERS}, from 0 on"
