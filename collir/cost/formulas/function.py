# pyright: basic
"""Costs of a function of a module as a function of arrays."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import sympy

from collir.cost.formulas.compiled import compiled
from collir.cost.formulas.costs import CostFormulas
from collir.cost.formulas.functions import Array
from collir.layout.sizes import LIMIT


class CostValues(NamedTuple):
    """Costs of a device for each row of values; not a number where sizes do not divide.

    Attributes:
        time: seconds of the function.
        memory: the most bytes that a device holds.
        flops: floating-point operations.
        moved: bytes that are read and written.
        sent: bytes that are sent.
        messages: collectives.
    """

    time: Array
    memory: Array
    flops: Array
    moved: Array
    sent: Array
    messages: Array


class CostFunction:
    """The costs of a function for any values of its parameters and sizes of axes.

    Attributes:
        formulas: the formulas.
        values: the values of the program: the defaults.
    """

    def __init__(self, formulas: CostFormulas):
        self.formulas, self.values = formulas, formulas.values
        sums = (formulas.work, formulas.sent, formulas.messages)
        flops, sent, messages = (sympy.Add(*x.values()) for x in sums)
        names = list(self.values)
        costs = [formulas.time, formulas.memory, flops, formulas.moved, sent, messages]
        self._costs = compiled(costs, names)
        self._sizes = compiled(formulas.quotients, names)

    def __call__(self, **values: npt.ArrayLike) -> CostValues:
        """Return the costs for integers or arrays of them, by the names of parameters and axes.

        Arrays have one dimension and one length. What is not named has its value in the program.

        Raises:
            ValueError: a name is no parameter or axis, or values are no integers of at least 1.
            CostError: the machine cannot have these sizes of axes.
        """
        given = {**self.values, **{name: self._checked(name, x) for name, x in values.items()}}
        lengths = {len(x) for x in given.values() if np.ndim(x)}
        if len(lengths) > 1:
            raise ValueError(f"arrays have one length, not {' and '.join(map(str, lengths))}")
        with np.errstate(divide="ignore", invalid="ignore"):  # rows that get no costs
            costs = self._costs(given)
        whole = np.ones(len(costs[0]), dtype=bool)
        for size in self._sizes(given):
            whole &= (np.rint(size) == size) & (size >= 1)
        return CostValues(*(np.where(whole, cost, np.nan) for cost in costs))

    def _checked(self, name: str, values: npt.ArrayLike) -> Array | float:
        if name not in self.values:
            known = ", ".join(self.values)
            raise ValueError(f"@{self.formulas.name} has no parameter or axis '{name}': {known}")
        array = np.asarray(values, dtype=float)
        if array.ndim > 1:
            raise ValueError(
                f"the values of {name} have {array.ndim} dimensions, and at most 1 is possible"
            )
        if not np.all((np.rint(array) == array) & (array >= 1) & (array < LIMIT)):
            raise ValueError(f"the values of {name} are integers of at least 1")
        return array if array.ndim else float(array)
