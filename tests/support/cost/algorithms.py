"""The algorithms of all collectives that have some."""

from collir.cost.collectives.table import COSTS

ALGORITHMS = {kind: entry.algorithms for kind, entry in COSTS.items() if entry.algorithms}
