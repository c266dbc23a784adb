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
    "the model": lambda placement: placement.predicted,
    "bounds of steps": lambda placement: [
        sum(step.bound for step in steps) for steps in placement.costs
    ],
    "bytes over the top link": lambda placement: _top_bytes(placement),
    "number of steps": lambda placement: [float(len(steps)) for steps in placement.costs],
}
"""Predictors of the faster of two programs of a placement, by name."""


def _top_bytes(placement: Placement) -> list[float]:
    """Return the bytes through the outermost level that any program of the placement uses."""
    port_bytes = [[step.port_bytes for step in steps] for steps in placement.costs]
    top = min(level for steps in port_bytes for size in steps for level, s in enumerate(size) if s)
    return [sum(size[top] for size in steps) for steps in port_bytes]


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
    parts = [Part(f"`@{machined.given.name}`", machined.placements) for machined in all_]
    return [*parts, Part("all", [p for part in parts for p in part.placements])]


def case_parts(machined: Machined) -> list[Part]:
    """Return a part for each reduction."""
    grouped = groupby(machined.placements, key=lambda placement: placement.case)
    return [Part(case.text, list(group)) for case, group in grouped]


ORDER_HEAD = (
    *("", "placements", "programs", "top 1", "top 3", "top 5", "top 10", "pairs", "right", "tau"),
    *("median error", "worst error"),
)


def order_row(part: Part) -> list[object]:
    """Return the quality of the predicted order inside placements."""
    placements = part.placements
    tops = [_share(placements, metrics.among_best, count) for count in (1, 3, 5, 10)]
    right, pairs = _pairs(placements, PREDICTORS["the model"])
    taus = [metrics.kendall(placement.predicted, placement.seconds) for placement in placements]
    middle, worst = metrics.middle_and_worst(_errors(placements))
    programs = sum(len(placement.programs) for placement in placements)
    known = [tau for tau in taus if tau is not None]
    return [
        *(part.name, len(placements), programs, *tops, pairs, percent(right / pairs, 2)),
        *(f"{mean(known):.2f}", percent(middle), signed(worst)),
    ]


def _share(
    placements: Sequence[Placement],
    holds: Callable[[Sequence[float], Sequence[float], int], bool],
    count: int,
) -> str:
    return percent(
        mean(holds(placement.predicted, placement.seconds, count) for placement in placements), 0
    )


def _pairs(
    placements: Sequence[Placement], predictor: Callable[[Placement], list[float]]
) -> tuple[float, int]:
    counts = [metrics.pairs(predictor(placement), placement.seconds) for placement in placements]
    return sum(right for right, _ in counts), sum(count for _, count in counts)


def _errors(placements: Sequence[Placement]) -> list[float]:
    return [
        error
        for placement in placements
        for error in metrics.errors(placement.predicted, placement.seconds)
    ]


CHOSEN_HEAD = (
    *("", "cases", "within 3 %", "worst", "over ring", "worst", "wins", "over MPICH's", "worst"),
    "wins",
)


def chosen_row(part: Part) -> list[object]:
    """Return the predicted best program compared with the fastest and the library's own."""
    placements = part.placements
    if not placements:
        return [part.name, 0, *[""] * 8]
    close = [
        metrics.close_among(placement.predicted, placement.seconds, 1) for placement in placements
    ]
    regrets = [metrics.regret(placement.predicted, placement.seconds) for placement in placements]
    row: list[object] = [part.name, len(placements), percent(mean(close)), signed(max(regrets))]
    for library in (lambda placement: placement.ring, lambda placement: placement.default):
        gains = [library(placement).seconds / _chosen(placement) for placement in placements]
        wins = mean(gain > 1 for gain in gains)
        middle = f"{mean(gains):.2f} ({median(gains):.2f})"
        row += [middle, f"{min(gains):.2f}", percent(wins, 0)]
    return row


def _chosen(placement: Placement) -> float:
    """Return the measured seconds of the predicted best program."""
    return placement.seconds[metrics.order(placement.predicted)[0]]


def chosen_parts(all_: Sequence[Machined]) -> Iterator[Part]:
    """Yield a part for each machine, for long and short cases, and for several levels."""
    parts = machine_parts(all_)
    yield from parts
    every = parts[-1].placements
    yield Part(
        "of 100 ms and more", [placement for placement in every if min(placement.seconds) >= LONG]
    )
    yield Part("shorter", [placement for placement in every if min(placement.seconds) < LONG])
    several = [placement for placement in every if len(set(_levels(placement))) > 1]
    yield Part("over several levels", several)


def _levels(placement: Placement) -> Iterator[int]:
    for size in (step.port_bytes for steps in placement.costs for step in steps):
        yield from (level for level, bytes_ in enumerate(size) if bytes_ and _own(placement, level))


def _own(placement: Placement, level: int) -> bool:
    """Return whether the reduced axes extend over a level."""
    return any(placement.matrix[axis][level] > 1 for axis in placement.case.reduced)


def predictor_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the pairs that each predictor orders right, and the quality of its choice."""
    parts = machine_parts(all_)
    for name, predictor in PREDICTORS.items():
        row: list[object] = [name]
        for part in parts:
            right, pairs = _pairs(part.placements, predictor)
            row.append(percent(right / pairs, 1))
        every = parts[-1].placements
        close = [
            metrics.close_among(predictor(placement), placement.seconds, 1) for placement in every
        ]
        regrets = [metrics.regret(predictor(placement), placement.seconds) for placement in every]
        yield [*row, percent(mean(close), 0), signed(max(regrets))]


def placement_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the order of placements of a case, by the best program and the flat all_reduce."""
    for machined in all_:
        row: list[object] = [f"`@{machined.given.name}`"]
        kinds: list[tuple[Callable[[Placement], float], Callable[[Placement], float]]] = [
            (lambda p: min(p.predicted), lambda p: min(p.seconds)),
            (lambda p: p.predicted[0], lambda p: p.seconds[0]),
        ]
        for predicted, measured in kinds:
            right, count = 0.0, 0
            for part in case_parts(machined):
                own = part.placements
                agreement = metrics.pairs([predicted(p) for p in own], [measured(p) for p in own])
                right, count = right + agreement[0], count + agreement[1]
            row.append(f"{right:g} of {count}")
        chosen = [
            metrics.regret([min(p.predicted) for p in own], [min(p.seconds) for p in own])
            for own in (part.placements for part in case_parts(machined))
        ]
        apart = [
            max(min(p.seconds) for p in own) / min(min(p.seconds) for p in own)
            for own in (part.placements for part in case_parts(machined))
        ]
        row += [f"{sum(regret <= metrics.CLOSE for regret in chosen)} of {len(chosen)}"]
        yield [*row, f"{max(apart):.1f}"]


def link_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the bytes on the busiest links relative to the model, at full size."""
    for machined in all_:
        full = max(checked.single.elements for checked in machined.checked)
        singles = [
            _most(checked) for checked in machined.checked if checked.single.elements == full
        ]
        programs = list(_program_links(machined))
        middle = [median(deviations) for deviations in (singles, programs)]
        yield [
            f"`@{machined.given.name}`",
            *(len(singles), signed(middle[0]), f"{signed(min(singles))} to {signed(max(singles))}"),
            *(len(programs), signed(middle[1])),
            f"{signed(min(programs))} to {signed(max(programs))}",
        ]


def _most(checked: Checked) -> float:
    return max((deviation for _, deviation in checked.deviations), key=abs)


def _program_links(machined: Machined) -> Iterator[float]:
    """Yield the deviations of programs without roots.

    In these programs the same links are the busiest in all steps.
    """
    for placement in machined.placements:
        for steps, costs, measured in zip(
            placement.programs, placement.costs, placement.measured, strict=True
        ):
            if is_rooted(steps):
                continue
            for level, sent in enumerate(measured.sent):
                should = sum(step.port_bytes[level] for step in costs)
                if should >= 2**16:
                    yield sent / should - 1


def _is_uneven(machined: Machined) -> bool:
    return any(level.ports for level in machined.given.levels)


def fit_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the numbers of the machines, as given and as fitted."""
    for machined in all_:
        for number in machined.calibration.parameters:
            scale, unit = (1e-6, "MB/s") if number.name.endswith("port") else (1e6, "us")
            note = "" if number.fitted else f"not fitted: {number.reason}"
            yield [
                f"`@{machined.given.name}`",
                *(f"`{number.name}`", f"{number.given * scale:g} {unit}"),
                *(f"{number.value * scale:.4g} {unit}", note),
            ]


def protocol_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the errors of single collectives at full size by each protocol, and their total time.

    Predictions use the given numbers of the machine. The protocol of the programs is in bold.
    """
    for machined in all_:
        for name, checked in machined.protocols.items():
            full = max(entry.single.elements for entry in checked)
            full_size = [entry for entry in checked if entry.single.elements == full]
            errors = [entry.cost.time / entry.measured.seconds - 1 for entry in full_size]
            middle, worst = metrics.middle_and_worst(errors)
            of = full_size[errors.index(worst)].single
            total = sum(entry.measured.seconds for entry in full_size)
            yield [
                f"`@{machined.given.name}`",
                f"**{name}**" if name == machined.about["protocol"] else name,
                *(f"{total:.2f} s", percent(middle), signed(worst)),
                f"{of.kind} over {', '.join(of.levels)}",
            ]


def error_rows(all_: Sequence[Machined]) -> Iterator[list[object]]:
    """Yield the errors by kind of program."""
    regular = [p for machined in all_ if not _is_uneven(machined) for p in machined.placements]
    uneven = [p for machined in all_ if _is_uneven(machined) for p in machined.placements]
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
    for name, placements, rooted in kinds:
        errors = [
            predicted / measured - 1
            for placement in placements
            for steps, predicted, measured in zip(
                placement.programs, placement.predicted, placement.seconds, strict=True
            )
            if is_rooted(steps) == rooted
        ]
        if errors:
            low, high = min(errors), max(errors)
            sizes = sorted(map(abs, errors))
            yield [
                *(name, len(errors), signed(median(errors)), percent(median(sizes))),
                *(percent(sizes[len(sizes) * 95 // 100]), f"{signed(low)} to {signed(high)}"),
            ]


def outlier_rows(all_: Sequence[Machined], count: int = 12) -> Iterator[list[object]]:
    """Yield the programs with the largest errors, one of each placement."""
    rows: list[tuple[float, list[object]]] = []
    for machined in all_:
        for placement in machined.placements:
            errors = metrics.errors(placement.predicted, placement.seconds)
            index = max(range(len(errors)), key=lambda at: abs(errors[at]))
            steps = "; ".join(
                f"{kind} {', '.join(axes)}" for kind, axes in placement.programs[index]
            )
            row = [f"`@{machined.given.name}`", placement.case.text, _matrix(placement), steps]
            row += [_milliseconds(placement.seconds[index]), signed(errors[index])]
            rows.append((abs(errors[index]), row))
    rows.sort(key=lambda entry: -entry[0])
    for _, row in rows[:count]:
        yield row


def _matrix(placement: Placement) -> str:
    return f"`[{' '.join('[' + ' '.join(map(str, row)) + ']' for row in placement.matrix)}]`"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def case_tables(all_: Sequence[Machined]) -> str:
    """Return the tables of the order and of the choice, per machine and reduction."""
    texts: list[str] = []
    for machined in all_:
        parts = case_parts(machined)
        texts += [
            f"### `@{machined.given.name}`",
            table(ORDER_HEAD, map(order_row, parts)),
            table(CHOSEN_HEAD, map(chosen_row, parts)),
        ]
    return "\n\n".join(texts)


def spread(all_: Sequence[Machined]) -> float:
    """Return the median over programs of the spread of their runs, relative to the shortest."""
    spreads = (run.spread for machined in all_ for p in machined.placements for run in p.measured)
    return median(spreads)


def ties(all_: Sequence[Machined]) -> tuple[int, int]:
    """Return the number of placements whose measured best is not the predicted best.

    The second number counts those in which the two are within 3 % of each other.
    """
    every = [p for machined in all_ for p in machined.placements]
    missed = [p for p in every if not metrics.among_best(p.predicted, p.seconds, 1)]
    return len(missed), sum(metrics.close_among(p.predicted, p.seconds, 1) for p in missed)
