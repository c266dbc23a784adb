"""The algorithms that MPICH chooses, by the defaults of the variables named in each function.

Each function takes the group and the bytes of the full buffer. Algorithms that halve exist here
only for 2^k ranks (a reduce, a reduce_scatter); other groups get MPICH's next best algorithm.
"""

from collir.cost.network.group import Group

_KB = 1024


def all_reduce(group: Group, size: float) -> str:
    """Return MPICH's algorithm of an all_reduce (MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE)."""
    return "recursive_doubling" if size <= 2 * _KB else "halving_doubling"


def reduce(group: Group, size: float) -> str:
    """Return MPICH's algorithm of a reduce (MPIR_CVAR_REDUCE_SHORT_MSG_SIZE)."""
    return "halving_doubling" if size > 2 * _KB and group.is_power_of_two else "binomial"


def reduce_scatter(group: Group, size: float) -> str:
    """Return MPICH's algorithm of a reduce_scatter
    (MPIR_CVAR_REDUCE_SCATTER_COMMUTATIVE_LONG_MSG_SIZE)."""
    return "recursive_halving" if size < 512 * _KB and group.is_power_of_two else "pairwise"


def all_gather(group: Group, size: float) -> str:
    """Return MPICH's algorithm of an all_gather (MPIR_CVAR_ALLGATHER_{SHORT,LONG}_MSG_SIZE)."""
    if size < 512 * _KB and group.is_power_of_two:
        return "recursive_doubling"
    return "bruck" if size < 80 * _KB else "ring"


def broadcast(group: Group, size: float) -> str:
    """Return MPICH's algorithm of a broadcast (MPIR_CVAR_BCAST_{SHORT_MSG_SIZE,MIN_PROCS})."""
    return "binomial" if size < 12 * _KB or group.size < 8 else "scatter_all_gather"


def all_to_all(group: Group, size: float) -> str:
    """Return MPICH's algorithm of an all_to_all (MPIR_CVAR_ALLTOALL_{SHORT,MEDIUM}_MSG_SIZE)."""
    block = size / group.size
    if block <= 256 and group.size >= 8:
        return "bruck"
    return "direct" if block <= 32 * _KB else "pairwise"


def rooted(group: Group, size: float) -> str:
    """Return MPICH's algorithm of a gather or scatter, for messages of any size."""
    return "binomial"
