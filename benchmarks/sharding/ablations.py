"""The table of what the parts of ``shard`` are worth: it runs without one of them."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from cases import Model, text_of
from clusters import Cluster
from searched import sharded
from simulated import Plan, attempt, cell

from collir.cost.model import CostModel
from collir.synthesis.propagation.graph import Relation
from collir.synthesis.sharding.ways import StepWay, Ways
from collir.targets.reports.text import seconds_text, table

ALGORITHM = "ring"
"""The one algorithm where others are left out."""


@contextmanager
def reduced_gradients(batch: int) -> Iterator[None]:
    """Let no product of two operands with a batch that the result does not have run whole on all
    devices."""
    own = Ways.of

    def of(self: Ways, relation: Relation) -> list[StepWay]:
        found = own(self, relation)
        *operands, result = relation.indices
        summed = {i for i, n in relation.sizes.items() if n == batch and i not in result}
        both = len(operands) == 2 and any(all(i in x for x in operands) for i in summed)
        if not both or relation.op is None or relation.op.structure is None:
            return found
        return [way for way in found if any(way.axes.values())] or found

    with patch.object(Ways, "of", of):
        yield


def ablation_rows(models: Sequence[Model], cluster: Cluster, seconds: float) -> None:
    """Print what the parts of ``shard`` are worth."""
    rows: list[list[str]] = []
    fixed = CostModel(algorithm=ALGORITHM)
    for model in models:
        text, batch, _ = text_of(model, cluster)
        page = cluster.page()

        def run(
            name: str,
            even: bool = False,
            costs: CostModel | None = None,
            step: tuple[str, str] = (model.name, page + text),
        ) -> Plan | str:
            find = partial(sharded, "", step[1], seconds, even, costs)
            return attempt(f"{step[0]}, {name}", lambda: find()[0])

        best = run("full")
        even = run("even", even=True)
        ring = run("ring", costs=fixed)
        with reduced_gradients(batch):
            reduced = run("reduced")
        row = [model.name, *(cell(x, best) for x in (even, ring, reduced))]
        row.append(seconds_text(best.seconds) if isinstance(best, Plan) else best)
        rows.append(row)
        print("  ", *row, sep=" | ", file=sys.stderr, flush=True)
    heads = ("model", "equal shares", f"{ALGORITHM} only", "gradients reduced", "in full")
    print(f"\nablations, {cluster.name} devices")
    print("\n".join(table(list(heads), rows, 1)), flush=True)
