"""Sums of contributions, and the words for what is wrong with them."""

from collir.algorithms.collectives import Contributions


def fault_of_sum(one: Contributions, other: Contributions) -> str | None:
    """Return why two values must not be added, or None."""
    if one.chunk != other.chunk:
        return f"adds chunk {other.chunk} to chunk {one.chunk}"
    if twice := one.ranks & other.ranks:
        return f"adds chunk {one.chunk} of {ranks_text(twice)} a second time"
    return None


def fault_of_result(value: Contributions | None, expected: Contributions) -> str:
    """Return what is wrong with the value of a chunk of an output."""
    if value is None:
        return f"is not written: it is chunk {expected.chunk} of {ranks_text(expected.ranks)}"
    if value.chunk != expected.chunk:
        return f"is chunk {value.chunk}, and should be chunk {expected.chunk}"
    missing, more = expected.ranks & ~value.ranks, value.ranks & ~expected.ranks
    parts = [f"has not chunk {value.chunk} of {ranks_text(missing)}"] * bool(missing)
    parts += [f"has chunk {value.chunk} of {ranks_text(more)}, which it should not"] * bool(more)
    return ", and ".join(parts)


def ranks_text(ranks: int) -> str:
    """Return ranks by their bits, the first few of them."""
    listed = [n for n in range(ranks.bit_length()) if ranks >> n & 1]
    shown = ", ".join(map(str, listed[:4]))
    more = f" and {len(listed) - 4} more" if len(listed) > 4 else ""
    return f"rank{'s' * (len(listed) > 1)} {shown}{more}"
