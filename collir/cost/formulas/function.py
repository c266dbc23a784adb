"""Costs of a function of a module as a function of arrays."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import sympy

from collir.cost.formulas.compiled import compiled
from collir.cost.formulas.constants import quantity_of
from collir.cost.formulas.costs import CostFormulas
from collir.cost.formulas.functions import Array
from collir.ir.diagnostics import DiagnosticError
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
            others: a function from other values of parameters to formulas with these values fixed.
                It is asked for the parameters in ``formulas.fixed``, and for any that are 1.
        """
        self.formulas, self.values = formulas, formulas.values
        self.constants = formulas.constants
        self._others = others
        self._known: dict[tuple[tuple[str, int], ...], CostFunction] = {}
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

    def __repr__(self) -> str:
        return f"<CostFunction of @{self.formulas.name} in {self.formulas.symbols_text}>"

    def __call__(self, **values: npt.ArrayLike) -> CostValues:
        """Return the costs for integers or arrays of them, by the names of parameters and axes, and
        for numbers by the names of constants, as in ``**{"node.port": [10e9, 20e9]}``.

        Arrays have one dimension and one length. Other names have their values in the program.
        Constants are in bytes/second, seconds and operations/second.

        Raises:
            ValueError: a name is no parameter, axis or constant, values are no integers of at least
                1, or constants are not positive.
            CostError: the machine cannot have these sizes of axes.
        """
        checked = {name: self._checked(name, x) for name, x in values.items()}
        if others := self._others_in(checked):
            return self._with_others(others, checked)
        own = {name: x for name, x in checked.items() if name not in self.formulas.fixed}
        given = {**self.values, **self.constants, **own}
        lengths = {len(x) for x in given.values() if isinstance(x, np.ndarray)}
        if len(lengths) > 1:
            raise ValueError(f"arrays have one length, not {' and '.join(map(str, lengths))}")
        with np.errstate(divide="ignore", invalid="ignore"):  # rows that get no costs
            costs = self._costs(given)
        whole = np.ones(len(costs[0]), dtype=bool)
        for size in self._sizes(given):
            whole &= (np.rint(size) == size) & (size >= 1)
        return CostValues(*(np.where(whole, cost, np.nan) for cost in costs))

    def _others_in(self, given: Mapping[str, Array | float]) -> dict[str, Array | float]:
        """Return the values that need formulas of their own: values of fixed parameters, and 1, as
        sizes of 1 are views; 0 marks a value that these formulas cover."""
        fixed, others = self.formulas.fixed, dict[str, Array | float]()
        for name, x in given.items():
            if name in fixed and np.any(x != fixed[name]):
                others[name] = x
            is_parameter = name in self.values and name not in self.formulas.axes
            if is_parameter and self._others and np.any(np.equal(x, 1)):
                others[name] = np.equal(x, 1).astype(float)
        return others

    def _with_others(
        self, others: Mapping[str, Array | float], given: Mapping[str, Array | float]
    ) -> CostValues:
        """Return costs for rows in which parameters have values with formulas of their own."""
        rows = max((len(x) for x in given.values() if isinstance(x, np.ndarray)), default=1)
        columns = np.stack([np.broadcast_to(x, rows) for x in others.values()], axis=1)
        distinct, which = np.unique(columns, axis=0, return_inverse=True)
        costs = np.full((len(CostValues._fields), rows), np.nan)
        for number, row in enumerate(distinct):
            own = which.ravel() == number
            part = {name: x[own] if isinstance(x, np.ndarray) else x for name, x in given.items()}
            values = {name: int(x) for name, x in zip(others, row, strict=True) if x}
            with suppress(DiagnosticError):  # sizes that do not divide
                costs[:, own] = self._at(values)(**part)
        return CostValues(*costs)

    def _at(self, values: Mapping[str, int]) -> "CostFunction":
        """Return the function for other values of parameters."""
        if all(self.formulas.fixed.get(name) == x for name, x in values.items()):
            return self
        key = tuple(values.items())
        if key not in self._known:
            if self._others is None:
                raise ValueError(f"these formulas hold for {', '.join(values)} as in the program")
            self._known[key] = CostFunction(self._others(values))
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
