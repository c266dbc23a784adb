"""Texts of comparisons of functions that are strategies of each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import isnan

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from collir.cost.formulas.alike import alike_functions
from collir.cost.formulas.costs import CostFormulas
from collir.cost.formulas.crossovers import NEGLIGIBLE, VERBS, either_less, equal_costs, volume
from collir.cost.formulas.fastest import ParameterSpan, changes
from collir.cost.formulas.function import CostFunction
from collir.cost.formulas.functions import FormulaMissingError
from collir.cost.formulas.terms import in_regime, value_of
from collir.targets.reports.cost import mesh_title
from collir.targets.reports.text import bytes_text, seconds_text, table, wrapped

MOST = 8
"""The largest number of functions that are compared in pairs."""

MARGIN = 0.02
"""By which share a function has to be faster to take the place of another one along a range."""

Ranges = Mapping[str, tuple[float, float]]


def comparisons(
    module: ModuleOp, functions: Mapping[str, CostFormulas], ranges: Ranges, per: str = ""
) -> list[str]:
    """Return the texts that compare the functions of a module that are strategies of each other.

    Args:
        functions: the formulas by name, of the functions that have some.
        ranges, per: see ``compared_lines``.
    """
    texts: list[str] = []
    for names in alike_functions(module):
        known = [functions[name] for name in names if name in functions]
        if len(known) > 1:
            missing = (
                f"  @{n} is left out, as it has no formulas" for n in names if n not in functions
            )
            texts.append("\n".join([*compared_lines(known, ranges, per), *missing, ""]))
    return texts


def compared_lines(
    functions: Sequence[CostFormulas], ranges: Ranges, per: str = ""
) -> Iterator[str]:
    """Yield the lines that compare functions with the same parameters: their costs, the fastest at
    the values of the first function and along ranges, and which of each two sends less and needs
    less memory.

    Args:
        ranges: values and ranges of parameters and axes; formulas have the values.
        per: a parameter; what grows with it is compared.
    """
    shared = at_same_values(functions, ranges)
    first = shared[0]
    how = first.model.how(first.mesh.machine)
    yield f"Strategies on {mesh_title(first.mesh)}, costed {how}"
    yield f"  {', '.join(f'{name} = {value}' for name, value in first.values.items())}"
    compiled = {f.name: CostFunction(f) for f in shared}
    yield from _table(compiled)
    yield from _fastest(compiled, ranges)
    if len(shared) > MOST:
        yield f"  of more than {MOST} strategies, no two are compared: choose some with --function"
        return
    values = {n: int(low) for n, (low, high) in ranges.items() if low == high and n in first.values}
    growing = f", as far as it grows with {per}" if per in first.values else ""
    yield f"  Bytes sent{growing.replace('it grows', 'they grow')}"
    yield from pairs(shared, "sent", per if growing else "", values)
    peak = ", while the peak is at the same step as for these values"
    yield f"  Memory of a device{growing or peak}"
    held = shared if growing else [at_peak(f) for f in shared]
    yield from pairs(held, "memory", per if growing else "", values)


def at_same_values(functions: Sequence[CostFormulas], ranges: Ranges) -> list[CostFormulas]:
    """Return functions with the values of the first one, where none are given."""
    values = dict(functions[0].values)
    values |= {n: int(low) for n, (low, high) in ranges.items() if low == high and n in values}
    return [
        replace(f, values={name: values.get(name, x) for name, x in f.values.items()})
        for f in functions
    ]


def at_peak(formulas: CostFormulas) -> CostFormulas:
    """Return formulas whose memory is what is held where it is the most, for their values."""
    return replace(formulas, peaks=(in_regime(formulas.memory, formulas.values),))


def _table(functions: Mapping[str, CostFunction]) -> Iterator[str]:
    """Yield the costs of functions, the fastest first; - where one cannot have the values."""
    costed = [(name, function()) for name, function in functions.items()]
    costed.sort(key=lambda item: (bool(np.isnan(item[1].time[0])), item[1].time[0]))
    texts = {"time": seconds_text, "sent": bytes_text, "memory": bytes_text}
    rows: list[list[str]] = []
    for name, costs in costed:
        numbers = [(float(getattr(costs, cost)[0]), text) for cost, text in texts.items()]
        rows.append([f"@{name}", *("-" if isnan(x) else text(x) for x, text in numbers)])
    for line in table(["", "time", "bytes sent", "memory"], rows, left=1):
        yield f"  {line}"


def _fastest(functions: Mapping[str, CostFunction], ranges: Ranges) -> Iterator[str]:
    for name, (low, high) in ranges.items():
        if low == high or any(name not in f.values for f in functions.values()):
            continue
        span = f"{name} = {low:g}..{high:g}"
        try:
            crossings = changes(functions, ParameterSpan(name, int(low), int(high)), margin=MARGIN)
        except ValueError:
            yield f"  Fastest along {span}: none, as no value there fits all strategies"
            continue
        listed = ", ".join(f"@{best} from {start}" for start, best in crossings)
        yield from wrapped(f"  Fastest along {span}, by at least {MARGIN:.0%}: {listed}")


# --- pairs --------------------------------------------------------------------------------------


def pairs(
    functions: Sequence[CostFormulas], cost: str, per: str, values: Mapping[str, int]
) -> Iterator[str]:
    """Yield the lines that compare pairs of functions, the one that is cheaper at their values
    first.

    A line says that the costs are equal, that one is always less, or when an inequality holds.

    Args:
        per, values: see ``compared``.
    """
    less, same = VERBS[cost]
    heads: list[CostFormulas] = []
    ordered = sorted(functions, key=lambda f: value_of(volume(f, cost), f.values))
    for equal in equal_costs(ordered, cost, "", per, **values):
        heads.append(equal[0])
        if len(equal) > 1:
            *names, last = (f"@{f.name}" for f in equal)
            yield f"    {', '.join(names)} and {last} {same}"
    always: dict[str, list[str]] = {}
    others: list[str] = []
    is_shortened = False
    for first, second in combinations(heads, 2):
        try:
            comparison = either_less(first, second, cost, "", per, **values)
        except FormulaMissingError as error:
            others.append(str(error))
            continue
        is_shortened |= any(x.left_out != 0 for some in comparison.conditions for x in some)
        if comparison.is_always:
            always.setdefault(comparison.first, []).append(f"@{comparison.second}")
        else:
            others.append(str(comparison))
    for name, more in always.items():
        yield f"    @{name} always {less} than {', '.join(more)}"
    for line in others:
        yield f"    {line}"
    if is_shortened:
        yield f"    (without terms that are less than {NEGLIGIBLE:.1%} of others for these values)"
