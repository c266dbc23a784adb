"""Layouts for all values of ``auto`` functions by the amounts of sent data alone.

At most three axes are taken at a time, the inner ones first: the number of layouts grows with each
axis, and a dimension divided by several axes is moved over the inner ones.
"""

from dataclasses import replace
from functools import cached_property

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from collir.ir.diagnostics import DiagnosticError
from collir.syntax.units import bytes_text
from collir.synthesis.propagation.propagate import lay_out
from collir.synthesis.sharding.descent.descent import Descent
from collir.synthesis.sharding.explain import Reason
from collir.synthesis.sharding.factors import FactorSum, Values
from collir.synthesis.sharding.layouts import Layouts, ShardOptions, choose_layouts
from collir.synthesis.sharding.memory import Points, SolutionMemory
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.shard import LeastTime
from collir.synthesis.sharding.solver import VariableValues
from collir.synthesis.sharding.symbolic.amounts import (
    Places,
    by_amounts,
    places_in,
    sent_bytes,
)

_TOGETHER = 3
"""The most axes that are taken at a time."""

_PRICES, _FIRST = 24, 0.01
"""The number of raises of the price of memory, and the first price: that of a byte held at all
steps that need too many, in sent bytes."""


def shard_by_amounts(module: ModuleOp, options: ShardOptions, exact: bool = False) -> None:
    """Choose the layouts of all values of the ``auto`` functions of a module by the amounts of data
    alone, in place.

    Args:
        exact: whether to search for the least amount, or only for a small one in linear time.

    Raises:
        DiagnosticError: a function has a step that cannot be where layouts are chosen, its mesh has
            weights, or no layouts were found that fit into memory.
    """
    method = _LeastAmounts if exact else _FewAmounts
    options = options if exact else replace(options, seconds=None)  # there is no search to end
    lay_out(module, lambda f, closed: choose_layouts(method, f, closed, options), callees=False)


class _Amounts(Layouts):
    """Layouts by amounts, on any mesh of equal blocks."""

    def _check(self) -> None:
        if self.graph.mesh.uneven:
            text = "amounts of data say nothing about weights of axes: method=exact does"
            raise DiagnosticError.at(self.function, text)

    def _peak(self) -> float:
        """Return the bytes that a simulation needs on a device; 0 without rates, as lifetimes are
        then unknown."""
        try:
            return super()._peak()
        except DiagnosticError:
            return 0.0

    def _received(self, solution: VariableValues) -> int:
        """Return the bytes that a device receives."""
        return sent_bytes(self.graph, self.sharding, solution.values)


class _LeastAmounts(_Amounts, LeastTime):
    """The search for the layouts that send least."""

    def _amount(self, solution: VariableValues) -> str:
        return _sending(self._received(solution))

    def _choices(self) -> Sharding:
        return by_amounts(self.function, self.graph)


class _FewAmounts(_Amounts):
    """Layouts that send little, in linear time."""

    @cached_property
    def groups(self) -> list[list[str]]:
        """The groups of sub-axes that are taken together, in order."""
        axes = [name for name, axis in self.graph.mesh.by_name.items() if axis.size > 1]
        ends = range(len(axes), 0, -_TOGETHER)
        return [axes[max(0, end - _TOGETHER) : end] for end in ends] or [[]]

    def _choices(self) -> Sharding:
        places: Places = {}
        for axes in self.groups[:-1]:
            sharding = by_amounts(self.function, self.graph, axes, places)
            places = places_in(sharding, Descent(self.graph, sharding, axes).run())
        return by_amounts(self.function, self.graph, self.groups[-1], places)

    def _solution(self, limit: float | None) -> VariableValues:
        values = self._values(self.sharding.sum)
        if limit:
            memory = SolutionMemory(self.function, self.graph, self.sharding)
            values = self._fitting(values, memory, limit)
        return VariableValues(values, self.sharding.sum.value(values), 0.0, "amounts of data alone")

    def _values(self, whole: FactorSum) -> Values:
        return Descent(self.graph, self.sharding, self.groups[-1], whole).run()

    def _fitting(self, values: Values, memory: SolutionMemory, limit: float) -> Values:
        """Return values that fit into memory: steps that need too many bytes get prices for them,
        which double until all fit."""
        prices, step = np.zeros(memory.count), _FIRST
        held = least = memory.at(values)
        for _ in range(_PRICES):
            above = held > limit
            if not above.any():
                return values
            prices[above] += step / above.sum()
            step *= 2
            values = self._values(self._priced(memory, prices))
            held = memory.at(values)
            least = min(held, least, key=lambda x: float(x.max()))
        at, most = memory.operation(int(least.argmax())), float(least.max())
        raise self._does_not_fit(at, most, "method=amounts may find others")

    def _priced(self, memory: SolutionMemory, prices: Points) -> FactorSum:
        whole = self.sharding.sum
        return FactorSum(whole.sizes, [*whole.tables, *memory.tables(prices)], whole.fans)

    def _reasons(self, solution: VariableValues) -> list[Reason]:
        name = self.function.sym_name.data
        received = self._received(solution)
        others = "; others may send less" if received else ""
        return [Reason(self.function, f"the layouts of @{name} {_sending(received)}{others}")]


def _sending(received: int) -> str:
    """Return the amount that a device receives, as a phrase for remarks."""
    return f"send {bytes_text(received)} to a device"
