# pyright: basic
"""Costs of a function of a module as a function of arrays."""

from collections.abc import Callable, Iterable, Mapping
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
        time: seconds of the function; where it is not exact (``CostFormulas.is_exact``), a lower
            bound.
        memory: the most bytes that a device holds.
        flops: floating-point operations.
        moved: bytes that are read and written.
        sent: bytes that are sent.
        messages: collectives.
        most: an upper bound of the seconds.
    """

    time: Array
    memory: Array
    flops: Array
    moved: Array
    sent: Array
    messages: Array
    most: Array


class CostFunction:
    """The costs of a function for any values of its parameters, sizes of axes and constants of the
    machine.

    Attributes:
        formulas: the formulas.
        values: the values of parameters and axes in the program: the defaults.
        constants: the constants of the machine: the defaults.
    """

    def __init__(
        self,
        formulas: CostFormulas,
        others: Callable[[Mapping[str, int]], CostFormulas] | None = None,
    ):
        """Compile formulas.

        Args:
            others: function from other values of ``formulas.fixed`` to the formulas for them.
        """
        self.formulas, self.values = formulas, formulas.values
        self.constants = formulas.constants
        self._others = others
        self._known: dict[tuple[int, ...], CostFunction] = {}
        sums = (formulas.work, formulas.sent, formulas.messages)
        flops, sent, messages = (sympy.Add(*x.values()) for x in sums)
        names = [*self.values]
        costs = [
            formulas.time,
            formulas.memory,
            flops,
            formulas.moved,
            sent,
            messages,
            formulas.most,
        ]
        self._costs = compiled(costs, names, [*self.constants])
        # One division rounds a whole quotient to itself.
        self._sizes = compiled([*map(sympy.together, formulas.quotients)], names)

    def __call__(self, **values: npt.ArrayLike) -> CostValues:
        """Return the costs for integers or arrays of them, by the names of parameters and axes, and
        for numbers by the names of constants, as in ``**{"node.port": [10e9, 20e9]}``.

        Arrays have one dimension and one length. What is not named has its value in the program.
        Constants are in bytes/second, seconds and operations/second.

        Raises:
            ValueError: a name is no parameter, axis or constant, values are no integers of at least
                1, or constants are not positive.
            CostError: the machine cannot have these sizes of axes.
            DiagnosticError: the function cannot have these values of ``formulas.fixed``.
        """
        checked = {name: self._checked(name, x) for name, x in values.items()}
        fixed = {name: checked.pop(name) for name in self.formulas.fixed if name in checked}
        if any(np.any(x != self.formulas.fixed[name]) for name, x in fixed.items()):
            return self._with_others(fixed, checked)
        given = {**self.values, **self.constants, **checked}
        lengths = {len(x) for x in given.values() if np.ndim(x)}
        if len(lengths) > 1:
            raise ValueError(f"arrays have one length, not {' and '.join(map(str, lengths))}")
        with np.errstate(divide="ignore", invalid="ignore"):  # rows that get no costs
            costs = self._costs(given)
        whole = np.ones(len(costs[0]), dtype=bool)
        for size in self._sizes(given):
            whole &= (np.rint(size) == size) & (size >= 1)
        return CostValues(*(np.where(whole, cost, np.nan) for cost in costs))

    def _with_others(
        self, fixed: Mapping[str, Array | float], given: Mapping[str, Array | float]
    ) -> CostValues:
        """Return costs where parameters have other values that formulas are made for."""
        columns = np.atleast_2d(np.stack(np.broadcast_arrays(*fixed.values()), axis=-1))
        distinct, which = np.unique(columns, axis=0, return_inverse=True)
        if len(distinct) == 1:
            return self._at(fixed, distinct[0])(**given)
        found = np.full((len(CostValues._fields), len(columns)), np.nan)
        for number, row in enumerate(distinct):
            own = which.ravel() == number
            part = {name: x[own] if isinstance(x, np.ndarray) else x for name, x in given.items()}
            found[:, own] = self._at(fixed, row)(**part)
        return CostValues(*found)

    def _at(self, names: Iterable[str], row: Array) -> "CostFunction":
        """Return the function for other values of parameters that formulas are made for."""
        key = tuple(int(x) for x in row)
        if key not in self._known:
            if self._others is None:
                raise ValueError(f"these formulas hold for {', '.join(names)} as in the program")
            self._known[key] = CostFunction(self._others(dict(zip(names, key, strict=True))))
        return self._known[key]

    def _checked(self, name: str, values: npt.ArrayLike) -> Array | float:
        if name in self.formulas.rigid:
            raise ValueError(
                f"@{self.formulas.name} has steps at places on {name}, whose size is that of the "
                "program: give the program another mesh"
            )
        parameters = {**self.values, **self.formulas.fixed}
        if name not in parameters and name not in self.constants:
            known = ", ".join([*parameters, *self.constants])
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
