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
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.semantics.validation.validate import Verdict, compare

from . import text
from .compare import Differ, Reference, check, reference
from .devices import Apart, Devices
from .indices import NN, RULES
from .mesh import Refused
from .mistakes import planted
from .models import PASSES as MODEL_PASSES
from .models import SMALL, small
from .programs import Run
from .random_inputs import inputs
from .random_programs import random_program
from .random_steps import StepText, random_step
from .text import Program

SHOWN = 3
"""How many cases of one kind are printed."""

SEEDS = 60
"""How many inputs are tried before it is doubted that a program computes something else."""

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
    "sum-in-place",
    "differentiate,sum-in-place",
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

    def progress(self, done: str) -> None:
        """Print how far the campaign is, its CPU time and the counts."""
        print(done, f"{time.process_time():.0f} s", dict(self.counts), flush=True)

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


def compared(log: Log, source: str, given: ModuleOp, before: Reference, passes: str) -> None:
    """Run passes on a program and compare what comes out with what it computed before."""
    remarks = io.StringIO()
    try:
        with contextlib.redirect_stderr(remarks):
            module = collir.run_passes(given.clone(), passes)
        printed = collir.emit(module)
    except collir.DiagnosticError as error:
        log.add(f"refused: {error.diagnostics[0].message.split('%')[0][:50]}", passes, source)
        return
    except Exception as error:
        log.add(f"{passes}: broken: {type(error).__name__} {str(error)[:60]}", source)
        traceback.print_exc(limit=-3)
        return
    log.add("pairs")
    if printed != collir.emit(given):
        log.add("pairs with another program")
    try:
        check(before, text.program(printed))
    except (Refused, text.Unreadable) as error:
        log.add("disagreement")
        log.add(f"{passes}: not well typed", str(error), source, printed)
    except (Differ, Apart) as error:
        if "nan" in str(error) and "gradient" in source:
            log.add("gradients where there is none")
            return
        log.add("disagreement")
        log.add(f"{passes}: differs", str(error), source, printed)


def programs(
    log: Log, count: int, seed: int, kinds: str, passes: list[str], each: int, start: int = 0
) -> None:
    """Compare what programs compute before and after passes, from a number of the program on."""
    rng = random.Random(seed)
    made = 0
    while made < count:
        source = random_program(rng, kinds)
        try:
            module = collir.parse(source)
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
        if made % 100 == 0:
            log.progress(f"{made} programs")
        drawn = rng.sample(passes, min(each, len(passes)))
        if made <= start:
            continue
        unplaced = "node:" not in source and "gpu:" not in source
        placed = "place," if unplaced and "weights" not in source else ""
        for chosen in drawn:
            compared(log, source, module, before, placed + chosen)
    log.add(f"programs: {made - start}")


def models(log: Log, count: int, seed: int, start: int = 0) -> None:
    """Compare what the models that ship compute before and after passes, gradients included."""
    for name, function, sizes in SMALL[start:count]:
        module = small(name, function, sizes)
        source = collir.emit(module)
        before = reference(text.program(source), f"@{function}", seed)
        for passes in MODEL_PASSES:
            compared(log, source, module, before, passes)
            log.progress(f"{name} @{function} {passes}")


def with_mistake(rng: random.Random, source: str) -> tuple[str, Program] | None:
    """Return a program with a mistake that is well typed, and of the same types."""
    for _ in range(60):
        wrong = planted(rng, source)
        if wrong == source:
            continue
        try:
            read = text.program(wrong)
            run = Run(read, Devices)
            run.function(
                "@f",
                [b for _, b in inputs(run.meshes["@m"], run.signature(read.functions["@f"])[0], 0)],
            )
            return wrong, read
        except (Refused, text.Unreadable):
            continue
    return None


def changed(source: str, read: Program, seeds: int) -> bool:
    """Return whether a program computes something else than another, on any of some inputs."""
    old = text.program(source)
    for seed in range(seeds):
        try:
            check(reference(old, "@f", seed), read)
        except Differ:
            return True
    return False


def validated(before: ModuleOp, after: ModuleOp) -> Verdict:
    """Return collir's verdict on @f in two modules."""
    old, new = (
        next(op for op in module.ops if isinstance(op, FuncOp) and op.sym_name.data == "f")
        for module in (before, after)
    )
    return compare(old, new)


def mistakes(log: Log, count: int, seed: int, kinds: str, start: int = 0) -> None:
    """Compare programs with a mistake with those without, by collir's validation and by runs."""
    rng = random.Random(seed)
    made = 0
    while made < count:
        source = random_program(rng, kinds)
        drawn = with_mistake(rng, source)
        if drawn is None:
            continue
        wrong, read = drawn
        try:
            if not finite(reference(text.program(source), "@f", made)):
                continue
            ours = changed(source, read, 3)
        except Apart as error:
            log.add("copies differ", str(error), source, wrong)
            continue
        made += 1
        if made % 100 == 0:
            log.progress(f"{made} mistakes")
        if made <= start:
            continue
        log.add("computes something else" if ours else "computes the same")
        try:
            before, after = collir.parse(source), collir.parse(wrong)
        except collir.DiagnosticError as error:
            log.add("disagreement: not accepted", str(error), wrong)
            continue
        verdict = validated(before, after)
        log.add(f"{verdict.outcome} by {verdict.how}")
        if ours and verdict.outcome == "same":
            kind = "WRONG: proven the same" if verdict.how == "proof" else "missed by runs"
            log.add(kind, verdict.explanation, source, wrong)
        if not ours and verdict.outcome == "different":
            if verdict.how == "execution" and changed(source, read, SEEDS):
                log.add("different on few inputs")
                continue
            log.add(f"doubtful: different by {verdict.how}", verdict.explanation, source, wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("campaign", choices=["steps", "programs", "mistakes", "models"])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0, help="the number of cases to leave out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ops", default="")
    parser.add_argument("--passes", default="")
    parser.add_argument("--kinds", default="sslcgga")
    parser.add_argument("--each", type=int, default=6)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    log, began = Log(), time.process_time()
    if options.campaign == "steps":
        ops = {"": sorted(RULES), "nn": sorted(NN)}.get(options.ops) or options.ops.split(",")
        steps(log, options.count, options.seed, ops)
    elif options.campaign == "models":
        models(log, options.count, options.seed, options.start)
    elif options.campaign == "mistakes":
        mistakes(log, options.count, options.seed, options.kinds, options.start)
    else:
        passes = options.passes.split(";") if options.passes else PASSES
        programs(
            log, options.count, options.seed, options.kinds, passes, options.each, options.start
        )
    log.end()
    print(f"{time.process_time() - began:.0f} s of CPU")


if __name__ == "__main__":
    main()
