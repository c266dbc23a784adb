"""Tables of the page: measurements on the test bed beside predictions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean, median

import metrics
from results import Checked, Machined, Placement

LONG = 0.1
"""Shortest time in seconds of a case that counts as long."""
PREDICTORS: dict[str, Callable[[Placement], list[float]]] = {
    "the model": lambda one: one.predicted,
    "bounds of steps": lambda one: [sum(step.bound for step in steps) for steps in one.costs],
    "bytes over the top link": lambda one: _top_bytes(one),
    "number of steps": lambda one: [float(len(steps)) for steps in one.costs],
}
"""Predictors of the faster of two programs of a placement, by name."""


def _top_bytes(one: Placement) -> list[float]:
    """Return the bytes through the outermost level that any program of the placement uses."""
    each = [[step.port_bytes for step in steps] for steps in one.costs]
    top = min(level for steps in each for size in steps for level, s in enumerate(size) if s)
    return [sum(size[top] for size in steps) for steps in each]


def is_rooted(steps: Iterable[tuple[str, object]]) -> bool:
    """Return whether some step has a root."""
    return any(kind in ("reduce", "broadcast", "scatter", "gather") for kind, _ in steps)


# --- tables -------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """Return a Markdown table; columns after the first ``left`` are numbers."""
    lines = [_row(head), _row([*["---"] * left, *["---:"] * (len(head) - left)])]
    return "\n".join([*lines, *map(_row, rows)])


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def percent(part: float, digits: int = 1) -> str:
    """Return a percentage such as ``1.3 %``."""
    return f"{100 * part:.{digits}f} %"


def signed(part: float) -> str:
    """Return a signed percentage such as ``+1.3 %``."""
    return f"{100 * part:+.1f} %"


@dataclass(frozen=True)
class Part:
    """Placements that are reported together."""

    name: str
    placements: Sequence[Placement]


def machine_parts(all_: Sequence[Machined]) -> list[Part]:
    """Return a part for each machine, and a part for all machines."""
    parts = [Part(f"`@{one.given.name}`", one.placements) for one in all_]
    return [*parts, Part("all", [p for part in parts for p in part.placements])]


def case_parts(one: Machined) -> list[Part]:
    """Return a part for each reduction."""
    grouped = groupby(one.placements, key=lambda placement: placement.case)
    return [Part(case.text, list(group)) for case, group in grouped]


ORDER_HEAD = (
    *("", "placements", "programs", "top 1", "top 3", "top 5", "top 10", "pairs", "right", "tau"),
    *("median error", "worst error"),
)


def order_row(part: Part) -> list[object]:
    """Return the quality of the predicted order inside placements."""
    some = part.placements
    tops = [_share(some, metrics.among_best, count) for count in (1, 3, 5, 10)]
    right, pairs = _pairs(some, PREDICTORS["the model"])
    taus = [metrics.kendall(one.predicted, one.seconds) for one in some]
    middle, worst = metrics.middle_and_worst(_errors(some))
    programs = sum(len(one.programs) for one in some)
    known = [tau for tau in taus if tau is not None]
    return [
        *(part.name, len(some), programs, *tops, pairs, percent(right / pairs, 2)),
        *(f"{mean(known):.2f}", percent(middle), signed(worst)),
    ]


def _share(
    some: Sequence[Placement],
    holds: Callable[[Sequence[float], Sequence[float], int], bool],
    count: int,
) -> str:
    return percent(mean(holds(one.predicted, one.seconds, count) for one in some), 0)


def _pairs(
    some: Sequence[Placement], predictor: Callable[[Placement], list[float]]
) -> tuple[float, int]:
    each = [metrics.pairs(predictor(one), one.seconds) for one in some]
    return sum(right for right, _ in each), sum(count for _, count in each)


def _errors(some: Sequence[Placement]) -> list[float]:
    return [error for one in some for error in metrics.errors(one.predicted, one.seconds)]


CHOSEN_HEAD = (
    *("", "cases", "within 3 %", "worst", "over ring", "worst", "wins", "over MPICH's", "worst"),
    "wins",
)


def chosen_row(part: Part) -> list[object]:
    """Return the predicted best program compared with the fastest and the library's own."""
    some = part.placements
    if not some:
        return [part.name, 0, *[""] * 8]
    close = [metrics.close_among(one.predicted, one.seconds, 1) for one in some]
    regrets = [metrics.regret(one.predicted, one.seconds) for one in some]
    row: list[object] = [part.name, len(some), percent(mean(close)), signed(max(regrets))]
    for library in (lambda one: one.ring, lambda one: one.default):
        gains = [library(one).seconds / _chosen(one) for one in some]
        wins = mean(gain > 1 for gain in gains)
        middle = f"{mean(gains):.2f} ({median(gains):.2f})"
        row += [middle, f"{min(gains):.2f}", percent(wins, 0)]
    return row


def _chosen(one: Placement) -> float:
    """Return the measured seconds of the predicted best program."""
    return one.seconds[metrics.order(one.predicted)[0]]


def chosen_parts(all_: Sequence[Machined]) -> Iterator[Part]:
    """Yield a part for each machine, for long and short cases, and for several levels."""
    parts = machine_parts(all_)
    yield from parts
    every = parts[-1].placements
    yield Part("of 100 ms and more", [one for one in every if min(one.seconds) >= LONG])
    yield Part("shorter", [one for one in every if min(one.seconds) < LONG])
    several = [one for one in every if len(set(_levels(one))) > 1]
    yield Part("over several levels", several)


def _levels(one: Placement) -> Iterator[int]:
    for size in (step.port_bytes for steps in one.costs for step in steps):
        yield from (level for level, bytes_ in enumerate(size) if bytes_ and _own(one, level))


def _own(one: Placement, level: int) -> bool:
    """Return whether the reduced axes extend over a level."""
    return any(one.matrix[axis][level] > 1 for axis in one.case.reduced)


def predictor_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the pairs that each predictor orders right, and the quality of its choice."""
    parts = machine_parts(all_)
    for name, predictor in PREDICTORS.items():
        row: list[object] = [name]
        for part in parts:
            right, pairs = _pairs(part.placements, predictor)
            row.append(percent(right / pairs, 1))
        every = parts[-1].placements
        close = [metrics.close_among(predictor(one), one.seconds, 1) for one in every]
        regrets = [metrics.regret(predictor(one), one.seconds) for one in every]
        yield [*row, percent(mean(close), 0), signed(max(regrets))]


def placement_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the order of placements of a case, by the best program and the flat all_reduce."""
    for one in all_:
        row: list[object] = [f"`@{one.given.name}`"]
        kinds: list[tuple[Callable[[Placement], float], Callable[[Placement], float]]] = [
            (lambda p: min(p.predicted), lambda p: min(p.seconds)),
            (lambda p: p.predicted[0], lambda p: p.seconds[0]),
        ]
        for predicted, measured in kinds:
            right, count = 0.0, 0
            for part in case_parts(one):
                own = part.placements
                found = metrics.pairs([predicted(p) for p in own], [measured(p) for p in own])
                right, count = right + found[0], count + found[1]
            row.append(f"{right:g} of {count}")
        chosen = [
            metrics.regret([min(p.predicted) for p in own], [min(p.seconds) for p in own])
            for own in (part.placements for part in case_parts(one))
        ]
        apart = [
            max(min(p.seconds) for p in own) / min(min(p.seconds) for p in own)
            for own in (part.placements for part in case_parts(one))
        ]
        row += [f"{sum(regret <= metrics.CLOSE for regret in chosen)} of {len(chosen)}"]
        yield [*row, f"{max(apart):.1f}"]


def link_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the bytes on the busiest links relative to the model, at full size."""
    for one in all_:
        full = max(each.single.elements for each in one.checked)
        singles = [_most(each) for each in one.checked if each.single.elements == full]
        programs = list(_program_links(one))
        middle = [median(found) for found in (singles, programs)]
        yield [
            f"`@{one.given.name}`",
            *(len(singles), signed(middle[0]), f"{signed(min(singles))} to {signed(max(singles))}"),
            *(len(programs), signed(middle[1])),
            f"{signed(min(programs))} to {signed(max(programs))}",
        ]


def _most(one: Checked) -> float:
    return max((deviation for _, deviation in one.deviations), key=abs)


def _program_links(one: Machined) -> Iterator[float]:
    """Yield the deviations of programs without roots.

    In these programs the same links are the busiest in all steps.
    """
    for placement in one.placements:
        for steps, costs, measured in zip(
            placement.programs, placement.costs, placement.measured, strict=True
        ):
            if is_rooted(steps):
                continue
            for level, sent in enumerate(measured.sent):
                should = sum(step.port_bytes[level] for step in costs)
                if should >= 2**16:
                    yield sent / should - 1


def _is_uneven(one: Machined) -> bool:
    return any(level.ports for level in one.given.levels)


def fit_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the numbers of the machines, as given and as fitted."""
    for one in all_:
        for number in one.calibration.parameters:
            scale, unit = (1e-6, "MB/s") if number.name.endswith("port") else (1e6, "us")
            note = "" if number.fitted else f"not fitted: {number.reason}"
            yield [
                f"`@{one.given.name}`",
                *(f"`{number.name}`", f"{number.given * scale:g} {unit}"),
                *(f"{number.value * scale:.4g} {unit}", note),
            ]


def protocol_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the errors of single collectives at full size by each protocol, and their total time.

    Predictions use the given numbers of the machine. The protocol of the programs is in bold.
    """
    for one in all_:
        for name, checked in one.protocols.items():
            full = max(each.single.elements for each in checked)
            some = [each for each in checked if each.single.elements == full]
            errors = [each.cost.time / each.measured.seconds - 1 for each in some]
            middle, worst = metrics.middle_and_worst(errors)
            of = some[errors.index(worst)].single
            total = sum(each.measured.seconds for each in some)
            yield [
                f"`@{one.given.name}`",
                f"**{name}**" if name == one.about["protocol"] else name,
                *(f"{total:.2f} s", percent(middle), signed(worst)),
                f"{of.kind} over {', '.join(of.levels)}",
            ]


def error_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the errors by kind of program."""
    regular = [p for one in all_ if not _is_uneven(one) for p in one.placements]
    uneven = [p for one in all_ if _is_uneven(one) for p in one.placements]
    top = [p for p in regular if any(p.matrix[axis][0] > 1 for axis in p.case.reduced)]
    inside = [p for p in regular if p not in top]
    kinds: list[tuple[str, Sequence[Placement], bool]] = [
        ("over uplinks, no roots", top, False),
        ("over uplinks, with roots", top, True),
        ("inside nodes or racks, no roots", inside, False),
        ("inside nodes or racks, with roots", inside, True),
        ("uneven, no roots", uneven, False),
        ("uneven, with roots", uneven, True),
    ]
    for name, some, rooted in kinds:
        found = [
            predicted / measured - 1
            for one in some
            for steps, predicted, measured in zip(
                one.programs, one.predicted, one.seconds, strict=True
            )
            if is_rooted(steps) == rooted
        ]
        if found:
            low, high = min(found), max(found)
            sizes = sorted(map(abs, found))
            yield [
                *(name, len(found), signed(median(found)), percent(median(sizes))),
                *(percent(sizes[len(sizes) * 95 // 100]), f"{signed(low)} to {signed(high)}"),
            ]


def outlier_rows(all_: Sequence[Machined], count: int = 12) -> Iterator[list[object]]:
    """Yield the programs with the largest errors, one of each placement."""
    found: list[tuple[float, list[object]]] = []
    for one in all_:
        for placement in one.placements:
            errors = metrics.errors(placement.predicted, placement.seconds)
            index = max(range(len(errors)), key=lambda at: abs(errors[at]))
            steps = "; ".join(
                f"{kind} {', '.join(axes)}" for kind, axes in placement.programs[index]
            )
            row = [f"`@{one.given.name}`", placement.case.text, _matrix(placement), steps]
            row += [_milliseconds(placement.seconds[index]), signed(errors[index])]
            found.append((abs(errors[index]), row))
    found.sort(key=lambda each: -each[0])
    for _, row in found[:count]:
        yield row


def _matrix(one: Placement) -> str:
    return f"`[{' '.join('[' + ' '.join(map(str, row)) + ']' for row in one.matrix)}]`"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def case_tables(all_: Sequence[Machined]) -> str:
    """Return the tables of the order and of the choice, per machine and reduction."""
    texts: list[str] = []
    for one in all_:
        parts = case_parts(one)
        texts += [
            f"### `@{one.given.name}`",
            table(ORDER_HEAD, map(order_row, parts)),
            table(CHOSEN_HEAD, map(chosen_row, parts)),
        ]
    return "\n\n".join(texts)


def spread(all_: Sequence[Machined]) -> float:
    """Return the median over programs of the spread of their runs, relative to the shortest."""
    each = (run.spread for one in all_ for p in one.placements for run in p.measured)
    return median(each)


def ties(all_: Sequence[Machined]) -> tuple[int, int]:
    """Return the number of placements whose measured best is not the predicted best.

    The second number counts those in which the two are within 3 % of each other.
    """
    every = [p for one in all_ for p in one.placements]
    missed = [p for p in every if not metrics.among_best(p.predicted, p.seconds, 1)]
    return len(missed), sum(metrics.close_among(p.predicted, p.seconds, 1) for p in missed)
