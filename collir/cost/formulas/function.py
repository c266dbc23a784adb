# pyright: basic
"""Costs of a function of a module as a function of arrays."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import sympy

from collir.cost.formulas.compiled import compiled
from collir.cost.formulas.constants import quantity_of
from collir.cost.formulas.costs import CostFormulas
from collir.cost.formulas.functions import Array
from collir.layout.sizes import LIMIT
from collir.syntax.units import Quantity


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
    """The costs of a function for any values of its parameters, sizes of axes and constants of the
    machine.

    Attributes:
        formulas: the formulas.
        values: the values of parameters and axes in the program: the defaults.
        constants: the constants of the machine: the defaults.
    """

    def __init__(self, formulas: CostFormulas):
        self.formulas, self.values = formulas, formulas.values
        self.constants = formulas.constants
        sums = (formulas.work, formulas.sent, formulas.messages)
        flops, sent, messages = (sympy.Add(*x.values()) for x in sums)
        names = [*self.values]
        costs = [formulas.time, formulas.memory, flops, formulas.moved, sent, messages]
        self._costs = compiled(costs, names, [*self.constants])
        self._sizes = compiled(formulas.quotients, names)

    def __call__(self, **values: npt.ArrayLike) -> CostValues:
        """Return the costs for integers or arrays of them, by the names of parameters and axes, and
        for numbers by the names of constants, as in ``**{"node.port": [10e9, 20e9]}``.

        Arrays have one dimension and one length. What is not named has its value in the program.
        Constants are in bytes/second, seconds and operations/second.

        Raises:
            ValueError: a name is no parameter, axis or constant, values are no integers of at least
                1, or constants are not positive.
            CostError: the machine cannot have these sizes of axes.
        """
        defaults = {**self.values, **self.constants}
        given = {**defaults, **{name: self._checked(name, x) for name, x in values.items()}}
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
        if name not in self.values and name not in self.constants:
            known = ", ".join([*self.values, *self.constants])
            raise ValueError(
                f"@{self.formulas.name} has no parameter, axis or constant '{name}': {known}"
            )
        array = np.asarray(values, dtype=float)
        if array.ndim > 1:
            raise ValueError(
                f"the values of {name} have {array.ndim} dimensions, and at most 1 is possible"
            )
        if name in self.constants:
            least = 1e-3 if quantity_of(name) is Quantity.BANDWIDTH else 0.0  # as of machines
            if not np.all((array > least) & (array < np.inf)):
                raise ValueError(f"the values of {name} are finite and above {least:g}")
        elif not np.all((np.rint(array) == array) & (array >= 1) & (array < LIMIT)):
            raise ValueError(f"the values of {name} are integers of at least 1")
        return array if array.ndim else float(array)
