"""The table of the plans of ``shard`` beside plans that people use."""

import sys
from collections.abc import Callable, Iterator, Sequence

from cases import Model, step_of, text_of
from clusters import Cluster
from practice import data_parallel, propagated
from searched import sharded
from simulated import Plan, attempt, cell

import collir
from collir.synthesis.propagation.graph import Layout
from collir.targets.reports.text import seconds_text, table

NAMES = ("even", "in prop.", "written", "ZeRO-3", "cut evenly", "shard")


def plans(model: Model, cluster: Cluster, seconds: float) -> Iterator[tuple[str, Plan | str]]:
    """Yield each plan, or why there is none."""
    text, batch, kept = text_of(model, cluster)
    page = cluster.page()
    function = step_of(collir.parse(page + text))

    def along(page: str, layouts: Sequence[Layout] | None) -> Callable[[], Plan]:
        return lambda: propagated(page, text, layouts or ())

    data = data_parallel(function, batch, cluster.size, False)
    zero = data_parallel(function, batch, cluster.size, True)
    weights = cluster.page(cluster.weights(batch))
    made: dict[str, Callable[[], Plan] | None] = {
        "even": along(page, data),
        "in prop.": along(weights, data) if cluster.slow else None,
        "written": along(page, kept) if any(map(any, kept)) else None,
        "ZeRO-3": along(page, zero) if zero else None,
        "cut evenly": (lambda: sharded(page, text, seconds, True)[0]) if cluster.slow else None,
        "shard": lambda: sharded(page, text, seconds)[0],
    }
    for name, make in made.items():
        yield name, attempt(f"{model.name}, {cluster.name}, {name}", make)


def plan_rows(models: Sequence[Model], clusters: Sequence[Cluster], seconds: float) -> None:
    """Print all plans."""
    rows: list[list[str]] = []
    for model in models:
        for cluster in clusters:
            found = dict(plans(model, cluster, seconds))
            best = found["shard"]
            row = [model.name, cluster.name, *(cell(found[n], best) for n in NAMES[:-1])]
            if isinstance(best, Plan):
                off = 100 * (best.seconds / best.said - 1)
                gap = f"{100 * best.gap:.1g} %" if best.gap else "proven"
                row += [seconds_text(best.seconds), f"{off:+.1f} %", gap, f"{best.took:.1f} s"]
            else:
                row += [best, "", "", ""]
            rows.append(row)
            print("  ", *row, sep=" | ", file=sys.stderr, flush=True)
    heads = ("model", "devices", *NAMES, "simulated", "gap", "CPU")
    print("\nplans")
    print("\n".join(table(list(heads), rows, 2)), flush=True)
