"""Direct messages: every rank sends to every other one, one after the other, and waits for none.

alltoall_intra_scattered.c of MPICH.
"""

from collections.abc import Iterator

from collir.algorithms.moves import Algorithm, LocalCopy, Round, Waits
from collir.algorithms.pairwise import INPUT, OUTPUT, of_peer, of_rank, own_block
from collir.algorithms.patterns import AllPairs, GroupShape, Star


def reduce_scatter(shape: GroupShape) -> Iterator[Round]:
    """Yield the messages in which each rank sends another one its block."""
    yield Round(AllPairs(), of_peer, reduces=True, waits=Waits.NOTHING)


def all_gather(shape: GroupShape) -> Iterator[Round]:
    """Yield the messages in which each rank sends its block to every other rank."""
    yield Round(AllPairs(), of_rank, waits=Waits.NOTHING)


def all_reduce(shape: GroupShape) -> Iterator[Round]:
    """Yield a reduce_scatter and an all_gather."""
    yield from reduce_scatter(shape)
    yield from all_gather(shape)


def all_to_all(shape: GroupShape) -> Iterator[Round | LocalCopy]:
    """Yield the messages in which each rank sends another one the block for it."""
    yield own_block()
    yield Round(
        AllPairs(), of_peer, of_rank, waits=Waits.NOTHING, source=INPUT, target=OUTPUT
    )  # fmt: skip


def gather(shape: GroupShape) -> Iterator[Round]:
    """Yield the messages to rank 0."""
    yield Round(Star(to_root=True), of_rank, waits=Waits.NOTHING)


def scatter(shape: GroupShape) -> Iterator[Round]:
    """Yield the messages from rank 0."""
    yield Round(Star(), of_peer, waits=Waits.NOTHING)


ALGORITHMS = [
    Algorithm("direct", "all_reduce", all_reduce),
    Algorithm("direct", "reduce_scatter", reduce_scatter),
    Algorithm("direct", "all_gather", all_gather),
    Algorithm("direct", "all_to_all", all_to_all),
    Algorithm("direct", "gather", gather),
    Algorithm("direct", "scatter", scatter),
]
