"""Which algorithm MPICH takes: the defaults of its MPIR_CVAR_*_MSG_SIZE variables.

Each function takes the group and the bytes of the full buffer. Where MPICH's algorithm is for 2^k
ranks here (a reduce or reduce_scatter that halves), other groups get the next best that it has.
"""

from collir.cost.network.group import Group

_KB = 1024


def all_reduce(group: Group, size: float) -> str:
    """Return MPICH's algorithm of an all_reduce."""
    return "recursive_doubling" if size <= 2 * _KB else "halving_doubling"


def reduce(group: Group, size: float) -> str:
    """Return MPICH's algorithm of a reduce."""
    return "halving_doubling" if size > 2 * _KB and group.is_power_of_two else "binomial"


def reduce_scatter(group: Group, size: float) -> str:
    """Return MPICH's algorithm of a reduce_scatter."""
    return "recursive_halving" if size < 512 * _KB and group.is_power_of_two else "pairwise"


def all_gather(group: Group, size: float) -> str:
    """Return MPICH's algorithm of an all_gather."""
    if size < 512 * _KB and group.is_power_of_two:
        return "recursive_doubling"
    return "bruck" if size < 80 * _KB else "ring"


def broadcast(group: Group, size: float) -> str:
    """Return MPICH's algorithm of a broadcast."""
    return "binomial" if size < 12 * _KB or group.size < 8 else "scatter_all_gather"


def all_to_all(group: Group, size: float) -> str:
    """Return MPICH's algorithm of an all_to_all."""
    each = size / group.size
    if each <= 256 and group.size >= 8:
        return "bruck"
    return "direct" if each <= 32 * _KB else "pairwise"


def rooted(group: Group, size: float) -> str:
    """Return MPICH's algorithm of a gather or scatter."""
    return "binomial"
