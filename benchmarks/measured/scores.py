"""The errors of predictions: their size, the order of pairs, and the cost of the pick."""

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, median

APART = 1.05
"""The ratio above which two measured times are apart."""


@dataclass(frozen=True)
class Measured:
    """A measured quantity with the predicted one.

    Attributes:
        line: the line in its file.
        group: what it is a quantity of.
    """

    line: int
    group: str
    measured: float
    predicted: float


@dataclass(frozen=True)
class Score:
    """The errors of predictions, as fractions of the measured values.

    Attributes:
        mape, median, worst: the mean, the median and the largest absolute error.
        pairs: the part of the pairs of a group, of which one is measured 5 % above the other, that
            are predicted in the same order; None if there is none.
        regret: the mean over groups of the value of the one with the best prediction, divided by
            the best value, less 1; None if no group has two.
        rows: the number of predictions.
    """

    mape: float
    median: float
    worst: float
    pairs: float | None
    regret: float | None
    rows: int

    def as_json(self) -> str:
        """Return the line that the command ends with: errors and pairs as fractions."""
        shown = {"mape": self.mape, "median": self.median, "pairs": self.pairs}
        rounded = {k: None if v is None else round(v, 5) for k, v in shown.items()}
        return json.dumps(rounded | {"rows": self.rows})


def score(
    measured: Sequence[float], predicted: Sequence[float], groups: Sequence[Hashable]
) -> Score:
    """Return the errors of predictions; rows are compared with those of their group."""
    errors = [abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)]
    members: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(group, []).append(number)
    right: list[bool] = []
    regrets: list[float] = []
    for rows in members.values():
        for a, b in combinations(rows, 2):
            if max(measured[a], measured[b]) > APART * min(measured[a], measured[b]):
                order = (measured[a] - measured[b]) * (predicted[a] - predicted[b])
                right.append(order > 0)
        if len(rows) > 1:
            pick = min(rows, key=lambda row: predicted[row])
            regrets.append(measured[pick] / min(measured[row] for row in rows) - 1)
    return Score(
        mean(errors),
        median(errors),
        max(errors),
        mean(right) if right else None,
        mean(regrets) if regrets else None,
        len(errors),
    )


HEADER = f"{'rows':32}{'number':>8}{'mean':>8}{'median':>8}{'worst':>8}{'pairs':>8}{'pick':>8}"
"""The columns of ``line``: errors in percent, the pairs in order, the regret of the pick."""


def line(name: str, of: Score) -> str:
    """Return errors as a line of a table, in percent."""
    parts = (of.mape, of.median, of.worst, of.pairs, of.regret)
    shown = "".join(f"{'-' if part is None else f'{100 * part:.1f}':>8}" for part in parts)
    return f"{name:32}{of.rows:8}{shown}"
