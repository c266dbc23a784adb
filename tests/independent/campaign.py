"""Compare collir with the independent implementation on random cases.

``python -m tests.independent.campaign steps --count 20000 --seed 1``
"""

import argparse
import collections
import contextlib
import io
import random
import time
import traceback
import warnings

import numpy as np

import collir

from . import text
from .compare import Differ, Reference, check, reference
from .devices import Apart
from .indices import NN, RULES
from .mesh import Refused
from .random_programs import random_program
from .random_steps import StepText, random_step

SHOWN = 3
"""How many cases of one kind are printed."""

PASSES = [
    "canonicalize",
    "cse",
    "dce",
    "decompose",
    "decompose{chunks=2}",
    "decompose{strategy=rs-ar-ag}",
    "decompose{strategy=reduce-ar-bcast}",
    "decompose{strategy=ar-per-level}",
    "fuse",
    "bucket",
    "bucket{rule=ddp}",
    "overlap",
    "reorder-by-hierarchy",
    "expand",
    "accumulate",
    "accumulate{dtype=f64}",
    "differentiate",
    "inline",
    "unroll",
    "inline,unroll",
    "prefetch,rotate",
    "split-backward",
    "differentiate,split-backward",
    "ring-attention",
    "place",
    "propagate",
    "default",
    "default{chunks=2}",
    "ddp",
    "zero",
    "fsdp",
    "megatron",
    "latency",
]


class Log:
    """Counts of what happened, and the first cases of each kind."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()

    def add(self, kind: str, *case: str) -> None:
        """Count a kind of case, and print the case if it is one of the first."""
        self.counts[kind] += 1
        if case and self.counts[kind] <= SHOWN:
            print("----", kind, *case, sep="\n", flush=True)

    def end(self) -> None:
        for kind, n in self.counts.most_common():
            print(n, kind)


def verdict(case: StepText) -> tuple[str, str, str]:
    """Return why we refuse a step, why collir does, and the text that collir was given."""
    try:
        result = case.result()
        ours = ""
    except Refused as error:
        result, ours = None, f"refused: {error}"
    source = case.function(result)
    try:
        collir.parse(source)
        theirs = ""
    except collir.DiagnosticError as error:
        theirs = error.diagnostics[0].message
    return ours, theirs, source


def steps(log: Log, count: int, seed: int, ops: list[str]) -> None:
    """Compare what both say of single steps: accepted, and of which type, or refused."""
    rng = random.Random(seed)
    for _ in range(count):
        case = random_step(rng, ops)
        ours, theirs, source = verdict(case)
        log.add("refused" if theirs else "accepted")
        if bool(ours) != bool(theirs):
            log.add("disagreement")
            why = f"collir accepts: {ours}" if ours else "collir refuses"
            log.add(f"{case.op}, {why}", theirs, source)


def finite(before: Reference) -> bool:
    return all(bool(np.all(np.isfinite(x))) for x in before.results) and all(
        np.max(np.abs(x.astype(float)), initial=0) < 1e6 for x in before.results
    )


def compared(log: Log, source: str, before: Reference, passes: str) -> None:
    """Run passes on a program and compare what comes out with what it computed before."""
    remarks = io.StringIO()
    try:
        with contextlib.redirect_stderr(remarks):
            module = collir.run_passes(collir.parse(source), passes)
        printed = collir.emit(module)
    except collir.DiagnosticError as error:
        log.add(f"{passes}: refused: {error.diagnostics[0].message.split('%')[0][:50]}", source)
        return
    except Exception as error:  # noqa: BLE001
        log.add(f"{passes}: broken: {type(error).__name__} {str(error)[:60]}", source)
        traceback.print_exc(limit=-3)
        return
    log.add("pairs")
    try:
        check(before, text.program(printed))
    except (Refused, text.Unreadable) as error:
        log.add("disagreement")
        log.add(f"{passes}: not well typed", str(error), source, printed)
    except (Differ, Apart) as error:
        log.add("disagreement")
        log.add(f"{passes}: differs", str(error), source, printed)


def programs(log: Log, count: int, seed: int, passes: list[str], each: int) -> None:
    """Compare what programs compute before and after passes."""
    rng = random.Random(seed)
    made = 0
    while made < count:
        source = random_program(rng)
        try:
            collir.parse(source)
            before = reference(text.program(source), "@f", made)
        except collir.DiagnosticError as error:
            log.add("not accepted", str(error), source)
            continue
        except (Differ, Apart) as error:
            log.add("devices differ from one device", str(error), source)
            continue
        if not finite(before):
            continue
        made += 1
        placed = "" if "node:" in source or "gpu:" in source else "place,"
        for chosen in rng.sample(passes, min(each, len(passes))):
            compared(log, source, before, placed + chosen)
    log.add(f"programs: {made}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("campaign", choices=["steps", "programs"])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ops", default="")
    parser.add_argument("--passes", default="")
    parser.add_argument("--each", type=int, default=6)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    log, start = Log(), time.process_time()
    if options.campaign == "steps":
        ops = {"": sorted(RULES), "nn": sorted(NN)}.get(options.ops) or options.ops.split(",")
        steps(log, options.count, options.seed, ops)
    else:
        passes = options.passes.split(";") if options.passes else PASSES
        programs(log, options.count, options.seed, passes, options.each)
    log.end()
    print(f"{time.process_time() - start:.0f} s of CPU")


if __name__ == "__main__":
    main()
