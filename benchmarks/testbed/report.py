"""Writes docs/testbed.md from ``results/`` alone: ``python benchmarks/testbed/report.py``."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import before_after
import overlap
import singles
from library import chosen_algorithms
from metrics import pairs
from results import Machined, read
from run import RESULTS, WEIGHTS
from shaping import FRAME, SEGMENT
from tables import (
    CHOSEN_HEAD,
    ORDER_HEAD,
    case_tables,
    chosen_parts,
    chosen_row,
    error_rows,
    fit_rows,
    link_rows,
    machine_parts,
    order_row,
    outlier_rows,
    percent,
    placement_rows,
    predictor_rows,
    protocol_rows,
    spread,
    table,
    ties,
)

import collir
from collir.cost.calibration.values import median_error

PAGE = Path(__file__).parents[2] / "docs" / "testbed.md"

TEXT = """\
# Predictions beside a real network

Written by `python benchmarks/testbed/report.py` (collir {version}) from what `make testbed`
measured on {dates}; do not edit.

Are programs as fast as `-t cost` says, and is the one that `decompose` chooses the fastest? All
placements of {cases} reductions were run on real networks of {ranks} ranks: every MPI rank in a
network name space of its own, on a tree of links that are shaped in both directions. {programs}
programs were measured, with {size} KiB on every rank, with MPICH {mpich} as it comes from pip,
over TCP.

```coll
{machines}```

- **Programs** of a placement are those of P² of at most five steps, and the 100 best that the
  search finds ([`-t strategies`](placement.md#strategies)). Where these are more than there is
  time for, half of those measured are the best predicted ones, and half were drawn from the
  others. They run as the C that `-t mpi` prints.
- **Times** are of the slowest rank behind a barrier: the median of 2 to 5 runs, behind one that
  warms up. Runs of one program differ by {spread} (median of longest over shortest).
- **Algorithms** of MPICH are fixed by its settings, and the model costs the same ones:
  {algorithms}. Messages are sent by that of MPICH's protocols, eager or rendezvous, by which
  single collectives are faster on a machine.
- **Predictions** are of the cost model [alpha-beta](costs.md), on the machine
  [calibrated](#calibration) with single collectives on one placement. Nothing is fitted to the
  programs that are reported.

## Summary

Of the programs of a placement, is the one measured to be fastest among the first 1, 3, 5, 10 that
are predicted? *Pairs* are programs of one placement that measure more than 5 % apart, and *right*
is how many of these are predicted in that order (those predicted to be equal count half). *tau*
is Kendall's tau-b over all pairs, the mean over placements.

{order}

In {missed} placements the measured best is not the predicted best. In {missed_close} of them the
two are within 3 % of each other: several programs send the same bytes in the same rounds, and
chance tells them apart.

## What is chosen

How often the predicted best program takes at most 3 % more than the measured best, and how much
more at most (*worst*). Then how many times as long as it one all_reduce of the library takes, in
the same placement with its ranks in hardware order: by a ring, and as MPICH chooses; mean
(median), the least, and how often that is above 1.

{chosen}

## What else would say so

The same pairs, ordered by simpler predictors: the sum over steps of their
[bounds](costs.md#bounds) (of the busiest port, for any algorithm), the bytes through the
outermost ports, the number of steps. The last two columns are of all machines: how often the
program that comes first is within 3 % of the measured best, and the worst.

{predictors}

## Placements

Pairs of placements of one reduction that are more than 5 % apart, in the right order: by their
best programs, and by the flat all_reduce. Then in how many reductions the chosen placement is
within 3 % of the best one, and how many times as long the worst placement takes as the best one,
at most.

{placements}

## Steps that overlap

An all_reduce of {overlap_size} KiB over all ranks: as one step, and as a program that takes the
levels one by one, on so many chunks, none of which waits for another (`async`; MPICH's own
collectives that do not block). *Gain* is over the one step; predictions are of
[`-t simulate`](simulation.md).

{overlap}

{overlap_reasons}
## Passes

Programs of {overlap_size} KiB on every rank, as they are written and after passes: the gradients of
32 layers with two small ones each, which are there one after the other and are summed over all
ranks; 12 layers whose weights are gathered for each (ZeRO-3); and 4 layers with steps that undo
each other, as put together from parts. What devices compute is a wait here, while MPI goes on. DDP
and XLA pack gradients by their rules, with sizes as much smaller as the model is.

{passes}

{passes_reasons}
## Is it the network, and is it the algorithm?

Bytes counted on the links: how many more went through the busiest port of a level than the cost
model says. A packet of {frame} bytes carries {segment} of data, so {header} is headers; the rest
is acknowledgements and MPICH's own messages. Collectives are of all kinds, over all sets of
levels, at full size. Of programs, those without roots count, where at least 64 KiB go through a
port.

{links}

## Calibration

The ports and latencies that explain best what {fit_count} single collectives took: on one placement
of each machine, over all sets of levels, one of each kind with {size} KiB, and reduce_scatters down
to an eighth of that. A part of them is held back from the fit: there the median error is {held}.

{fit}

At first the reduce_scatters alone were to be enough. They are slower inside nodes than the other
collectives, for a reason that was not found, so programs are predicted too slow then; their order
is the same:

{others}

## What the model does not explain

Errors of single programs, by where they send, and whether steps have roots:

{kinds}

{reasons}
Single collectives at full size by both protocols, as predicted with the figures in the machine's
file, which are not fitted:

{protocols}

The largest errors, one of each placement:

{outliers}

## By reduction

{by_case}
"""

OVERLAP_REASONS = """\
The gain is there. With more chunks programs are predicted to take less than they do; likely reasons
are that MPICH goes on with a collective only while some call of it runs, that its ranks sleep in
between, and that they do not agree on which of two chunks goes first on a link.

"""

PASSES_REASONS = """\
Many small all_reduces at the same time take less than predicted, where they have many latencies:
the model runs those of one level one after the other, as streams do, and MPI does not.

"""

REASONS = """\
Likely reasons; none of them was isolated by an experiment of its own, but for the first:

- **Messages that do not wait for their receiver.** By default MPICH hands a message to TCP at
  once (eager). Ranks that are ahead, as those behind the fast uplinks of the uneven machine are,
  send for the next round while others still receive for this one, and what comes early queues
  before what is late, in the same port. The model takes rounds one after the other. With MPICH's
  rendezvous, messages of more than 8 KiB wait until their receiver asks for them; that takes time,
  too. The table below has both.
- **Inside nodes the computer is a part of the network.** Up to 1.6 Gbit/s go through {cores} cores,
  and a rank that waits sleeps for 200 us at a time: the fitted latency of the rank links is that.
- **Steps overlap a little.** The model adds up steps, each as long as its slowest rank takes.
  Ranks that are done with a reduce begin with what follows, so programs with roots are predicted
  to take longer than they do.
- **A link lets its first packets through at once.** A shaper counts a packet when it is sent, and
  has a burst; a wire takes its time before.
"""


def _algorithms() -> str:
    return ",\n  ".join(f"{kind} by `{name}`" for kind, name in chosen_algorithms().items())


def _only(all_: Sequence[Machined], results: Path) -> list[Machined]:
    """The same, calibrated with one kind of collective only."""
    again = (read(results / one.given.name, (singles.SIZED,)) for one in all_)
    return [one for one in again if one is not None]


def _fit_row(name: str, all_: Sequence[Machined]) -> list[object]:
    placements = [placement for one in all_ for placement in one.placements]
    errors = sorted(
        (
            abs(predicted / measured - 1)
            for one in placements
            for predicted, measured in zip(one.predicted, one.seconds, strict=True)
        )
    )
    ordered = [pairs(one.predicted, one.seconds) for one in placements]
    right, count = (sum(each) for each in zip(*ordered, strict=True))
    return [
        name,
        percent(errors[len(errors) // 2]),
        percent(errors[-1]),
        percent(errors[int(0.95 * len(errors))]),
        percent(right / count, 2),
    ]


def _overlap(all_: Sequence[Machined], results: Path) -> str:
    rows: list[list[str]] = []
    for one in all_:
        name = one.given.name
        if not (results / name / overlap.FILE).exists():
            continue
        found = list(overlap.overlaps(results / name, one.calibration.machine))
        for each in found:
            rows.append(
                [
                    name if each is found[0] else "",
                    str(each.chunks) if each.chunks else "one step",
                    f"{1e3 * each.predicted:.0f} ms",
                    f"{1e3 * each.measured:.0f} ms",
                    f"{100 * (each.predicted / each.measured - 1):+.1f} %",
                    f"{found[0].predicted / each.predicted:.2f}",
                    f"{found[0].measured / each.measured:.2f}",
                ]
            )
    head = ["", "chunks", "predicted", "measured", "error", "gain, predicted", "gain"]
    return table(head, rows, left=2)


def _passes(all_: Sequence[Machined], results: Path) -> str:
    rows: list[list[str]] = []
    for one in all_:
        name = one.given.name
        if not (results / name / before_after.FILE).exists():
            continue
        first: before_after.Entry | None = None
        for each in before_after.entries(results / name):
            new = first is None or first.program != each.program
            shown = "" if first else name
            first = each if new or first is None else first
            rows.append(
                [
                    shown,
                    each.program if new else "",
                    each.variant,
                    f"{1e3 * each.predicted:.0f} ms",
                    f"{1e3 * each.measured:.0f} ms",
                    f"{100 * (each.predicted / each.measured - 1):+.1f} %",
                    f"{first.predicted / each.predicted:.2f}",
                    f"{first.measured / each.measured:.2f}",
                ]
            )
    head = ["", "", "", "predicted", "measured", "error", "gain, predicted", "gain"]
    return table(head, rows, left=3)


def page(all_: Sequence[Machined], results: Path) -> str:
    """The page."""
    every = [placement for one in all_ for placement in one.placements]
    held = [residual for one in all_ for residual in one.calibration.held_back]
    used = [residual for one in all_ for residual in one.calibration.fitted]
    parts = machine_parts(all_)
    missed, close = ties(all_)
    return TEXT.format(
        version=collir.__version__,
        dates=_one_or_more(one.about["date"].split()[0] for one in all_),
        mpich=_one_or_more(one.about["mpich"] for one in all_),
        cases=len({(id(one), p.case) for one in all_ for p in one.placements}),
        ranks=" and ".join(map(str, sorted({one.given.devices for one in all_}))),
        programs=sum(len(placement.programs) for placement in every),
        size=all_[0].about["elements"] * 4 // 1024,
        machines="\n".join(_source(one.given.name) for one in all_),
        spread=percent(spread(all_)),
        algorithms=_algorithms(),
        order=table(ORDER_HEAD, map(order_row, parts)),
        missed=missed,
        missed_close=close,
        chosen=table(CHOSEN_HEAD, map(chosen_row, chosen_parts(all_))),
        predictors=table(
            ["", *(part.name for part in parts), "within 3 %", "worst"], predictor_rows(all_)
        ),
        placements=table(
            ["", "by the best", "by the flat", "chosen is best", "apart"], placement_rows(all_)
        ),
        overlap_size=overlap.ELEMENTS * 4 // 1024,
        overlap=_overlap(all_, results),
        overlap_reasons=OVERLAP_REASONS,
        passes=_passes(all_, results),
        passes_reasons=PASSES_REASONS,
        frame=FRAME,
        segment=SEGMENT,
        header=percent(FRAME / SEGMENT - 1),
        links=table(
            ["", "collectives", "median", "range", "links of programs", "median", "range"],
            link_rows(all_),
        ),
        fit_count=len(used) + len(held),
        held=percent(median_error(held)),
        fit=table(["", "", "as given", "fitted", ""], fit_rows(all_), left=2),
        others=table(
            ["calibrated with", "median error", "worst", "95 % are below", "pairs right"],
            [_fit_row("all kinds", all_), _fit_row("reduce_scatter only", _only(all_, results))],
        ),
        kinds=table(
            ["", "programs", "median", "median size", "95 % are below", "range"], error_rows(all_)
        ),
        reasons=REASONS.format(cores=_one_or_more(str(one.about["cores"]) for one in all_)),
        protocols=table(
            ["", "protocol", "all together", "median size", "worst error", "of"],
            protocol_rows(all_),
            left=2,
        ),
        outliers=table(
            ["", "reduction", "placement", "program", "measured", "error"],
            outlier_rows(all_),
            left=4,
        ),
        by_case=case_tables(all_),
    )


def _source(name: str) -> str:
    return (Path(__file__).parent / "machines" / f"{name}.coll").read_text(encoding="utf-8")


def _one_or_more(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description="Writes docs/testbed.md.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help="default: %(default)s")
    options = parser.parse_args()
    found = [read(options.results / name) for name in WEIGHTS]
    all_ = [one for one in found if one is not None and one.placements]
    if not all_:
        parser.error(f"there are no results in {options.results}: make testbed measures")
    options.output.write_text(page(all_, options.results), encoding="utf-8")
    print(options.output)


if __name__ == "__main__":
    main()
