"""The search of ``MaxClique`` below a node, compiled by numba: the same nodes in the same order.

Sets are rows of 64-bit words. The state of a search is a stack of levels, one for each vertex added
below the start. Its arrays outlive a call, so that the unvisited nodes are known when it stops.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from collir.problems.clique_node import CliqueNode
from collir.search.core.problem import Dive

_NODES, _PRUNED, _BACKTRACKS, _DEEPEST, _DEPTH, _FOUND = range(6)
_ONE, _ZERO = np.uint64(1), np.uint64(0)
_FAR = 1 << 62

_Code = Callable[[object, ir.IRBuilder, object, Sequence[ir.Value]], ir.Value]

Words = NDArray[np.uint64]
"""Sets of vertices as bits, a row each."""

Numbers = NDArray[np.int64]
Vertices = NDArray[np.int32]
Count = int | np.int64

Stack = tuple[Words, Vertices, Vertices, Numbers, NDArray[np.bool_], Numbers, Words]
Answers = tuple[Words, Numbers, Numbers, Numbers]


@intrinsic
def _lowest(_context: object, word: types.Type) -> tuple[object, _Code]:
    """Return the index of the lowest set bit of a word that is not 0."""

    def code(
        context: object, builder: ir.IRBuilder, signature: object, arguments: Sequence[ir.Value]
    ) -> ir.Value:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), code


@njit(nogil=True, cache=True)
def _colour(  # pragma: no cover - compiled
    candidates: Words,
    apart: Words,
    order: Vertices,
    colours: Vertices,
    left: Words,
    free: Words,
    size: int,
    least: Count,
) -> tuple[int, bool]:
    """Colour ``candidates``; put those that may reach a clique of ``least`` into ``order``.

    ``colours`` gets their colours. Return their number, and whether there are other candidates.
    ``left`` and ``free`` are scratch space.
    """
    words = candidates.size
    first = words
    for w in range(words):
        left[w] = candidates[w]
        if left[w] != _ZERO and first == words:
            first = w
    count, colour, others = 0, 0, False
    while first < words:
        colour += 1
        keep = size + colour >= least
        for w in range(first, words):
            free[w] = left[w]
        for w in range(first, words):
            while free[w] != _ZERO:
                bit = _lowest(free[w])
                v = (w << 6) + bit
                left[w] ^= _ONE << np.uint64(bit)
                for u in range(w, words):
                    free[u] &= apart[v, u]
                if keep:
                    order[count] = v
                    colours[count] = colour
                    count += 1
                else:
                    others = True
        while first < words and left[first] == _ZERO:
            first += 1
    return count, others


@njit(nogil=True, cache=True)
def _least(cut: NDArray[np.float64], best: Count) -> Count:  # pragma: no cover - compiled
    """Return the size of the smallest clique that is still needed."""
    known = -cut[0]
    if known <= best + 1:
        return best + 1
    return np.int64(_FAR) if known > 1e18 else np.int64(np.ceil(known))


@njit(nogil=True, cache=True)
def _record(  # pragma: no cover - compiled
    answers: Answers, index: int, candidates: Words, path: Numbers, depth: int, bound: Count
) -> None:
    """Write a clique into row ``index`` of the answers; the start of the search has no bound."""
    answer_candidates, answer_path, answer_depth, answer_bound = answers
    answer_candidates[index] = candidates
    answer_path[index] = path
    answer_depth[index] = depth
    answer_bound[index] = bound


@njit(nogil=True, cache=True)
def _dive(  # pragma: no cover - compiled
    adjacent: Words,
    apart: Words,
    cut: NDArray[np.float64],
    limit: int,
    first_only: bool,
    size: int,
    stack: Stack,
    answers: Answers,
    counts: Numbers,
) -> None:
    """Search from level 0, whose candidates are set, until ``limit`` nodes are visited.

    ``stack`` has a row for each level, ``answers`` a row for each answer (see ``_Space``).
    """
    candidates, order, colours, waiting, others, path, scratch = stack
    rows, words = candidates.shape
    best = np.int64(-1)
    nodes, pruned, backtracks, deepest, depth, answer_count, last = 0, 0, 0, 0, 0, 0, 0
    while True:
        # Visit the node at ``depth``.
        nodes += 1
        deepest = max(deepest, depth)
        least = _least(cut, best)
        if size + depth >= least:
            best = size + depth
            least = best + 1
            colour = colours[depth - 1, last] if depth > 0 else 0
            bound = size + depth - 1 + colour
            _record(answers, answer_count, candidates[depth], path, depth, bound)
            answer_count += 1
            if first_only:
                depth = -1
                break
        waiting[depth], others[depth] = _colour(
            candidates[depth],
            apart,
            order[depth],
            colours[depth],
            scratch[0],
            scratch[1],
            size + depth,
            least,
        )
        if nodes >= limit:
            break
        # Find the next node: a child of this node, or of a node above it.
        while depth >= 0:
            if waiting[depth] > 0:
                last = waiting[depth] - 1
                if size + depth + colours[depth, last] >= _least(cut, best) and depth + 1 < rows:
                    break
                pruned += 1
            elif others[depth]:
                pruned += 1
            backtracks += 1
            depth -= 1
        if depth < 0:
            break
        waiting[depth] = last
        v = order[depth, last]
        for w in range(words):
            candidates[depth + 1, w] = candidates[depth, w] & adjacent[v, w]
        candidates[depth, v >> 6] ^= _ONE << np.uint64(v & 63)
        depth += 1
        path[depth] = v
    counts[_NODES], counts[_PRUNED], counts[_BACKTRACKS] = nodes, pruned, backtracks
    counts[_DEEPEST], counts[_DEPTH], counts[_FOUND] = deepest, depth, answer_count


class _Space:
    """The arrays of a search of up to ``rows`` levels.

    The stack holds for each level: the candidates not yet tried (words); the candidates that can
    still lead to a solution, in the order of their colours, and their colours (n each); the number
    of them still to try; whether there were other candidates; and the vertex added last. Two rows
    of words are scratch space. The answers hold a row each: candidates, path, depth and bound.
    """

    def __init__(self, rows: int, n: int, words: int):
        self.rows = rows
        self.stack: Stack = (
            np.zeros((rows, words), np.uint64),
            np.empty((rows, n), np.int32),
            np.empty((rows, n), np.int32),
            np.zeros(rows, np.int64),
            np.zeros(rows, np.bool_),
            np.zeros(rows, np.int64),
            np.zeros((2, words), np.uint64),
        )
        self.answers: Answers = (
            np.empty((rows, words), np.uint64),
            np.empty((rows, rows), np.int64),
            np.empty(rows, np.int64),
            np.empty(rows, np.int64),
        )
        self.counts = np.zeros(6, np.int64)


class CliqueKernel:
    """A search of subtrees of ``MaxClique``, for one thread at a time.

    Args:
        adjacent: the neighbours of each vertex as a set of bits.
        first_only: whether to stop at the first clique that ``cut`` allows, with no rest.
    """

    def __init__(self, adjacent: tuple[int, ...], first_only: bool = False):
        n = len(adjacent)
        vertices = (1 << n) - 1
        self.words = max(1, (n + 63) // 64)
        self.rows_adjacent = adjacent
        self.first_only = first_only
        self.adjacent = self._rows(adjacent)
        self.apart = self._rows(tuple(vertices ^ row ^ 1 << v for v, row in enumerate(adjacent)))
        self.space = _Space(0, n, self.words)
        self(CliqueNode(0, 0, 0, 0), np.array([np.inf]), 1)  # compiles, or loads the compiled code

    def __call__(self, node: CliqueNode, cut: NDArray[np.float64], limit: int) -> Dive[CliqueNode]:
        """Search below ``node``; visit at most ``limit`` nodes, but always ``node``."""
        if -node.bound > cut[0]:
            return Dive(nodes=0, pruned=1)
        rows = min(node.candidates.bit_count(), node.bound - node.size) + 1
        if rows > self.space.rows:
            self.space = _Space(rows, len(self.rows_adjacent), self.words)
        space = self.space
        space.stack[0][0] = self._row(node.candidates)
        _dive(
            self.adjacent,
            self.apart,
            cut,
            min(max(limit, 1), _FAR),
            self.first_only,
            node.size,
            space.stack,
            space.answers,
            space.counts,
        )
        nodes, pruned, backtracks, deepest, depth, answer_count = map(int, space.counts)
        return Dive(
            nodes,
            pruned,
            backtracks,
            deepest,
            tuple(self._answer(node, index) for index in range(answer_count)),
            rest=tuple(self._rest(node, depth, float(cut[0]))),
        )

    def _answer(self, start: CliqueNode, index: int) -> tuple[int, CliqueNode]:
        candidates, path, depths, bounds = self.space.answers
        depth = int(depths[index])
        size = start.size + depth
        if depth == 0:
            return size, start
        members = start.members
        for v in path[index, 1 : depth + 1].tolist():
            members |= 1 << v
        rest = _number(candidates[index])
        return size, CliqueNode(members, rest, size, int(bounds[index]))

    def _rest(self, start: CliqueNode, depth: int, cut: float) -> Iterator[tuple[CliqueNode, ...]]:
        """Yield the unvisited nodes at each level of the stack, down to ``depth``."""
        candidates, order, colours, waiting, _, path, _ = self.space.stack
        members = start.members
        for level in range(depth + 1):
            if level:
                members |= 1 << int(path[level])
            untried = _number(candidates[level])
            size = start.size + level
            count = int(waiting[level])
            level_nodes: list[CliqueNode] = []
            tried: Iterable[tuple[int, int]] = zip(
                order[level, :count].tolist(), colours[level, :count].tolist(), strict=True
            )
            for v, colour in reversed(list(tried)):
                if -(size + colour) > cut:
                    break
                rest = untried & self.rows_adjacent[v]
                level_nodes.append(CliqueNode(members | 1 << v, rest, size + 1, size + colour))
                untried ^= 1 << v
            yield tuple(level_nodes)

    def _row(self, members: int) -> Words:
        return np.frombuffer(members.to_bytes(8 * self.words, "little"), np.dtype("<u8"))

    def _rows(self, sets: tuple[int, ...]) -> Words:
        data = b"".join(members.to_bytes(8 * self.words, "little") for members in sets)
        return np.frombuffer(data, np.dtype("<u8")).reshape(len(sets), self.words).copy()


def _number(row: Words) -> int:
    return int.from_bytes(row.tobytes(), "little")
