"""The chunk semantics of P² (Xie et al., MLSys 2022): k x k boolean matrices.

k devices reduce one buffer that is cut into k chunks. The state of a device is a matrix ``s``, in
which ``s[i, j]`` says that the data it holds for chunk i contains the contribution of device j.
Device j starts with column j set. In the goal all entries are set on all devices.

The rules are those of the paper, for explicit groups of ranks. They do not use meshes, sub-axes or
layouts. Beyond the paper, the buffer may have another number of chunks, and the ranks of a group
may share them unevenly, as their weights say.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

ChunkState = NDArray[np.bool_]
"""One matrix per device: shape [k, chunks, k], indexed by device, chunk and contribution. In the
paper there are k chunks."""


class ChunkError(ValueError):
    """A step that the chunk semantics does not allow."""


def initial(k: int, chunks: int | None = None) -> ChunkState:
    """Return the state in which every device holds its own contribution to every chunk."""
    state = np.zeros((k, chunks or k, k), dtype=np.bool_)
    for device in range(k):
        state[device, :, device] = True
    return state


def goal(k: int) -> ChunkState:
    """Return the state in which every device holds every chunk, complete."""
    return np.ones((k, k, k), dtype=np.bool_)


def _rows(matrix: ChunkState) -> NDArray[np.bool_]:
    """Return, for each chunk, whether a device holds any contribution to it."""
    return np.logical_or.reduce(matrix, axis=1)


def _summed(matrices: ChunkState) -> ChunkState:
    """Return the sum of a group's states, after checking that it is allowed.

    All devices must hold the same chunks, and no contribution may be counted twice.
    """
    rows = [_rows(m) for m in matrices]
    if not rows[0].any():
        raise ChunkError("the group is empty")
    if any((r != rows[0]).any() for r in rows):
        raise ChunkError("the group holds different chunks")
    if (matrices.sum(axis=0) > 1).any():
        raise ChunkError("a contribution would be counted twice")
    return np.logical_or.reduce(matrices, axis=0)


def _all_reduce(matrices: ChunkState, shares: Sequence[int]) -> ChunkState:
    return np.stack([_summed(matrices)] * len(matrices))


def _reduce_scatter(matrices: ChunkState, shares: Sequence[int]) -> ChunkState:
    total = _summed(matrices)
    rows = np.flatnonzero(_rows(total))
    if len(rows) % sum(shares):
        raise ChunkError("the chunks do not divide over the group")
    out = np.zeros_like(matrices)
    ends = np.cumsum(shares) * (len(rows) // sum(shares))
    for device, block in enumerate(np.split(rows, ends[:-1])):
        out[device, block] = total[block]
    return out


def _all_gather(matrices: ChunkState, shares: Sequence[int]) -> ChunkState:
    rows = np.stack([_rows(m) for m in matrices])
    counts = rows.sum(axis=1)
    if not counts.any():
        raise ChunkError("the group is empty")
    if (counts * sum(shares) != counts.sum() * np.array(shares)).any():
        raise ChunkError("the group holds different numbers of chunks")
    if (rows.sum(axis=0) > 1).any():
        raise ChunkError("a chunk is held twice")
    return np.stack([matrices.any(axis=0)] * len(matrices))


def _reduce(matrices: ChunkState, shares: Sequence[int]) -> ChunkState:
    out = np.zeros_like(matrices)
    out[0] = _summed(matrices)
    return out


def _broadcast(matrices: ChunkState, shares: Sequence[int]) -> ChunkState:
    root = matrices[0]
    if (matrices & ~root).any():
        raise ChunkError("a device holds what the root does not")
    if (matrices == root).all():
        raise ChunkError("everybody has it already")
    return np.stack([root] * len(matrices))


CHUNK_RULES: dict[str, Callable[[ChunkState, Sequence[int]], ChunkState]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "reduce": _reduce,
    "broadcast": _broadcast,
}
"""The five collectives of P², as functions of the states of a group and its shares."""


def step(
    state: ChunkState,
    collective: str,
    groups: Sequence[Sequence[int]],
    shares: Sequence[Sequence[int]] | None = None,
) -> ChunkState:
    """Return the state after a collective of all groups at once; other devices keep their state.

    Args:
        shares: how the ranks of each group share chunks; None if they do so evenly.

    Raises:
        ChunkError: the collective's precondition does not hold in one of the groups.
    """
    out = state.copy()
    for place, group in enumerate(groups):
        ranks = list(group)
        own = [1] * len(ranks) if shares is None else shares[place]
        out[ranks] = CHUNK_RULES[collective](state[ranks], own)
    return out
