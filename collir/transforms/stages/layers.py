"""The number of layers of each chunk, and the shares of places that follow.

With several chunks at each place, a stack is a row of chunks for each round through the places. All
rows are sharded over the same axis, so they are cut in the same proportion.
"""

import math
from collections.abc import Sequence

from collir.dialects.nested import RepeatOp
from collir.ir.diagnostics import DiagnosticError


def layer_loops(loop: RepeatOp) -> list[RepeatOp]:
    """Return the loops over layers in a loop over microbatches."""
    return [op for op in loop.body.block.ops if isinstance(op, RepeatOp)]


def layer_count(loop: RepeatOp) -> int:
    """Return the number of layers in a loop over microbatches.

    Raises:
        DiagnosticError: its loops have different numbers of layers.
    """
    counts = sorted({op.times for op in layer_loops(loop)})
    if len(counts) > 1:
        listed = " and ".join(map(str, counts))
        raise DiagnosticError.at(
            loop, f"a pipeline cuts one stack of layers, and there are loops over {listed}"
        )
    return int(counts[0])


def layers_of_chunks(
    loop: RepeatOp, places: Sequence[int], shares: Sequence[int], wanted: Sequence[int] | None
) -> list[int]:
    """Return the layers of each chunk.

    Args:
        places: the place of each chunk.
        shares: the share of each place in a dimension that is sharded over the axis.
        wanted: the layers that a user wants; None: by the shares.

    Raises:
        DiagnosticError: these chunks cannot have such numbers of layers.
    """
    count, chunks = layer_count(loop), len(places)
    if count < chunks:
        raise DiagnosticError.at(
            loop,
            f"{count} layers are fewer than {chunks} chunks, each of which has at least one: use "
            "a shorter axis, or fewer chunks",
        )
    if wanted is None:
        return _by_shares(loop, count, places, shares)
    if problem := _problem(count, places, wanted):
        near = ",".join(map(str, near_equal(count, chunks)))
        raise DiagnosticError.at(loop, f"{problem}: say as in layers={near}")
    return list(wanted)


def _by_shares(
    loop: RepeatOp, count: int, places: Sequence[int], shares: Sequence[int]
) -> list[int]:
    total = sum(shares[place] for place in places)
    if all((count * shares[place]) % total == 0 for place in places):
        return [count * shares[place] // total for place in places]
    near = ",".join(map(str, near_equal(count, len(places))))
    listed = ", ".join(map(str, shares))
    into = f"in the proportion {listed}" if len(set(shares)) > 1 else "of equally many"
    raise DiagnosticError.at(
        loop,
        f"{count} layers do not divide into {len(places)} chunks {into}: say layers=, as in "
        f"layers={near}, or layers=balanced",
    )


def _problem(count: int, places: Sequence[int], wanted: Sequence[int]) -> str:
    """Return the error in the layers of chunks; empty if there is none."""
    listed = ",".join(map(str, wanted))
    if len(wanted) != len(places):
        at = max(places) + 1
        per_place = f"{len(places) // at} at each of {at} places"
        return f"layers={listed} has {len(wanted)} numbers for {len(places)} chunks, {per_place}"
    if (least := min(wanted)) < 1:
        chunk = list(wanted).index(least)
        return f"layers={listed} gives chunk {chunk} {least} layers, and each has at least one"
    if (total := sum(wanted)) != count:
        return f"layers={listed} are {total} layers, and there are {count}"
    return ""


def shares_of(loop: RepeatOp, places: Sequence[int], layers: Sequence[int]) -> tuple[int, ...]:
    """Return the shares of places, without a common divisor, that cut each row of chunks.

    Raises:
        DiagnosticError: the rows are cut in different proportions.
    """
    rows: list[dict[int, int]] = []
    for place, size in zip(places, layers, strict=True):
        row = next((row for row in rows if place not in row), None)
        if row is None:
            rows.append(row := {})
        row[place] = size
    size = max(places) + 1
    lowest = [_lowest([row[place] for place in range(size)]) for row in rows]
    if len(set(lowest)) == 1:
        return lowest[0]
    first, second = (" : ".join(map(str, row)) for row in list(dict.fromkeys(lowest))[:2])
    raise DiagnosticError.at(
        loop,
        f"with {len(rows)} chunks at each place, the places share the layers in one proportion in "
        f"each round, and layers={','.join(map(str, layers))} has {first} and {second}: "
        f"say as in layers={','.join(map(str, _in_proportion(lowest[0], places, layers)))}",
    )


def _lowest(row: Sequence[int]) -> tuple[int, ...]:
    divisor = math.gcd(*row)
    return tuple(size // divisor for size in row)


def _in_proportion(
    shares: Sequence[int], places: Sequence[int], layers: Sequence[int]
) -> list[int]:
    """Return layers of chunks in a proportion, or in another one if that is impossible."""
    units, rows = sum(layers) // sum(shares), len(places) // len(shares)
    if sum(layers) % sum(shares) or units < rows:
        units = next(n for n in range(rows, sum(layers) + 1) if sum(layers) % n == 0)
        shares = near_equal(sum(layers) // units, len(shares))
    return chunk_layers(places, [share * units for share in shares], units)


def chunk_layers(places: Sequence[int], totals: Sequence[int], units: int) -> list[int]:
    """Return the layers of each chunk, where all rows are cut in one proportion.

    Args:
        places: the place of each chunk.
        totals: the layers of each place, in multiples of ``units``.
        units: the number that the rows share, each at least 1.
    """
    rows = near_equal(units, len(places) // len(totals))
    return [
        totals[place] // units * rows[list(places[:chunk]).count(place)]
        for chunk, place in enumerate(places)
    ]


def near_equal(count: int, parts: int) -> list[int]:
    """Return integers with a given sum that differ by at most 1."""
    return [(index + 1) * count // parts - index * count // parts for index in range(parts)]
