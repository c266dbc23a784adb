"""The algorithms of the collectives that have any, by name."""

from collir.cost.collectives.table import COSTS

ALGORITHMS = {kind: entry.algorithms for kind, entry in COSTS.items() if entry.algorithms}
