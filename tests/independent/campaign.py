"""Compare collir with the independent implementation on random cases.

``python -m tests.independent.campaign steps --count 20000 --seed 1``
"""

import argparse
import collections
import random

import collir

from .mesh import Refused
from .indices import NN, RULES
from .random_steps import StepText, random_step


def verdict(case: StepText) -> tuple[str, str, str]:
    """Return ours, collir's, and the text that collir was given."""
    try:
        result = case.result()
        ours = ""
    except Refused as error:
        result, ours = None, f"refused: {error}"
    text = case.function(result)
    try:
        collir.parse(text)
        theirs = ""
    except collir.DiagnosticError as error:
        theirs = error.diagnostics[0].message
    return ours, theirs, text


def steps(count: int, seed: int, ops: list[str]) -> None:
    rng = random.Random(seed)
    totals: collections.Counter[str] = collections.Counter()
    shown: collections.Counter[tuple[str, str]] = collections.Counter()
    for _ in range(count):
        case = random_step(rng, ops)
        ours, theirs, text = verdict(case)
        totals["accepted" if not theirs else "refused"] += 1
        if bool(ours) != bool(theirs):
            totals["disagreements"] += 1
            kind = (case.op, "collir accepts: " + ours if ours else "collir refuses")
            shown[kind] += 1
            if shown[kind] <= 3:
                print("----", kind, "\n", theirs, "\n", text)
    print(dict(totals))
    for kind, n in shown.most_common():
        print(n, kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("campaign", choices=["steps"])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ops", default="")
    options = parser.parse_args()
    if options.ops == "nn":
        options.ops = ",".join(NN)
    ops = options.ops.split(",") if options.ops else sorted(RULES)
    steps(options.count, options.seed, ops)


if __name__ == "__main__":
    main()
