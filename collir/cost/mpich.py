"""Which algorithm MPICH takes: the defaults of its MPIR_CVAR_*_MSG_SIZE variables.

Where MPICH's algorithm is for 2^k ranks here (a reduce or reduce_scatter that halves), other
groups get the next best that it has.
"""

from collir.cost.group import Group

_KB = 1024


def choice(kind: str, group: Group, size: float) -> str:
    """The algorithm of a collective on a full buffer of ``size`` bytes."""
    p, even = group.size, group.is_power_of_two
    match kind:
        case "all_reduce":
            return "recursive_doubling" if size <= 2 * _KB else "halving_doubling"
        case "reduce":
            return "halving_doubling" if size > 2 * _KB and even else "binomial"
        case "reduce_scatter":
            return "recursive_halving" if size < 512 * _KB and even else "pairwise"
        case "all_gather":
            if size < 512 * _KB and even:
                return "recursive_doubling"
            return "bruck" if size < 80 * _KB else "ring"
        case "broadcast":
            return "binomial" if size < 12 * _KB or p < 8 else "scatter_all_gather"
        case "all_to_all":
            each = size / p
            if each <= 256 and p >= 8:
                return "bruck"
            return "direct" if each <= 32 * _KB else "pairwise"
        case _:
            return "binomial"
