"""Prices of steps: computed from types alone, and compared before anything is rewritten.

Prices are cached by type, because the layers of a model are alike.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import NamedTuple

from xdsl.ir import Attribute, SSAValue

from collir.cost.model import step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.collectives import collective_of
from collir.cost.programs.local_steps import copied_bytes
from collir.cost.programs.operations import local_step
from collir.cost.steps import seconds_local, seconds_sent, standing_alone
from collir.dialects.operation import DistOp, arguments_of
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.layout import DistType, LayoutError, Mesh
from collir.layout.steps import Argument, StepKind
from collir.synthesis.programs.build import ProgramPlan, planned, stand_in
from collir.synthesis.programs.layouts import LayoutPaths
from collir.synthesis.programs.pricing import Pricing
from collir.synthesis.programs.search_options import TIE, SearchOptions
from collir.synthesis.programs.states import StatePaths, is_unordered
from collir.synthesis.programs.steps import CollectiveStep
from collir.synthesis.searching import TIME, record_cut_off

SHARES = 10
"""One search may take 1 / SHARES of the time limit, so that there is time for that many."""


class Price(NamedTuple):
    """The price of a sequence of steps.

    Attributes:
        time: seconds of all steps.
        sending: seconds of the steps that send.
        moved: bytes that the steps that send nothing read and write.
        steps: the number of steps.
    """

    time: float = 0.0
    sending: float = 0.0
    moved: float = 0.0
    steps: int = 0

    def plus(self, other: "Price") -> "Price":
        """Return the sum of two prices."""
        return Price(
            self.time + other.time,
            self.sending + other.sending,
            self.moved + other.moved,
            self.steps + other.steps,
        )

    def pays(self, current: "Price") -> bool:
        """Return whether steps of this price should replace steps of the ``current`` price.

        Neither of the two times may be longer. One must be shorter; if both are equal, fewer bytes
        must be moved, or as many bytes by fewer steps.
        """
        for new, old in ((self.time, current.time), (self.sending, current.sending)):
            if new > old * (1 + TIE):
                return False
        if self.time < current.time * (1 - TIE) or self.sending < current.sending * (1 - TIE):
            return True
        return (self.moved, self.steps) < (current.moved, current.steps)

    def before(self, other: "Price", sending_first: bool) -> bool:
        """Return whether this price is lower: by the two times, then by bytes, then by steps.

        Args:
            sending_first: whether ``sending`` is compared before ``time``.
        """
        pairs = [(self.time, other.time), (self.sending, other.sending)]
        for a, b in reversed(pairs) if sending_first else pairs:
            if abs(a - b) > TIE * max(a, b):
                return a < b
        return (self.moved, self.steps) < (other.moved, other.steps)


NOTHING = Price()
"""The price of no steps."""


@dataclass(frozen=True, eq=False)
class Form:
    """The type and properties of an operation; equal forms are one object (``StepPrices.form``)."""

    op: type[DistOp]
    properties: Mapping[str, Attribute]

    @property
    def kind(self) -> StepKind:
        """The row of the operation in the table of steps."""
        return self.op.KIND

    @property
    def arguments(self) -> dict[str, Argument]:
        """The arguments that the properties hold, by name."""
        return arguments_of(self.kind, self.properties)

    def put(self, operands: Sequence[SSAValue], result: DistType) -> DistOp:
        """Create an operation of this form on ``operands``, with a result of type ``result``."""
        types = [DistTensorType(result)]
        return self.op.create(
            operands=operands, properties=dict(self.properties), result_types=types
        )


@dataclass(frozen=True)
class CheapestRun:
    """The cheapest program from one layout to another.

    Attributes:
        plan: the program, or None if it is not searched yet; then ``price`` is a lower bound.
    """

    source: DistType
    target: DistType
    plan: ProgramPlan | None
    price: Price


class StepPrices:
    """Types and prices of steps on one mesh, under one model.

    All searches together keep within the time limit of the options, and each search keeps within
    its share of that (see ``SHARES``).
    """

    def __init__(self, mesh: Mesh, options: SearchOptions):
        self.mesh, self.options = mesh, options
        self._left = math.inf if options.seconds is None else options.seconds
        self._share = self._left / SHARES
        self._forms: dict[Hashable, Form] = {}
        self._types: dict[tuple[Form, tuple[DistType, ...]], DistType | None] = {}
        self._prices: dict[tuple[Form, tuple[DistType, ...]], Price | None] = {}
        self._runs: dict[tuple[DistType, DistType], CheapestRun | None] = {}

    def form(self, op: type[DistOp], properties: Mapping[str, Attribute]) -> Form:
        """Return the form with these properties; equal forms are the same object."""
        key = op, frozenset(properties.items())
        if (known := self._forms.get(key)) is None:
            known = self._forms[key] = Form(op, dict(properties))
        return known

    def of(self, op: DistOp) -> Form:
        """Return the form of an operation."""
        return self.form(type(op), op.properties)

    def type(self, form: Form, *operands: DistType) -> DistType | None:
        """Return the type of the result, or None if the step is not well typed."""
        key = form, operands
        if key not in self._types:
            try:
                result = form.op.result_type(self.mesh, operands, form.properties)
            except LayoutError:
                result = None
            self._types[key] = result
        return self._types[key]

    def price(self, form: Form, *operands: DistType) -> Price | None:
        """Return the price of a step, or None if it is not well typed or has no cost."""
        key = form, operands
        if key not in self._prices:
            result = self.type(form, *operands)
            self._prices[key] = None if result is None else self._price(form, operands, result)
        return self._prices[key]

    def _price(self, form: Form, operands: tuple[DistType, ...], result: DistType) -> Price | None:
        op = standing_alone(form.op, form.properties, operands, result)
        try:
            if not form.kind.sends:
                does = local_step(op, self.mesh)
                return Price(seconds_local(does, self.mesh), 0.0, does.size, 1)
            cost = step_cost(collective_of(op, self.mesh), self.options.model)
        except (CostError, DiagnosticError):  # as on a device without a rate
            return None
        return Price(seconds_sent(cost), cost.time, copied_bytes(cost), 1)

    def run(self, source: DistType, target: DistType) -> CheapestRun | None:
        """Return the cheapest program from one layout to another, or None if none was found."""
        key = source, target
        known = self._runs.get(key)
        if key not in self._runs or (known is not None and known.plan is None):
            known = self._runs[key] = self._searched(source, target)
        return known

    def guessed(self, source: DistType, target: DistType) -> CheapestRun | None:
        """Return the cheapest program, or a lower bound on its price if it is not searched yet.

        Searches take time, and in most cases the lower bound shows that none is needed. The result
        is None if there is no program, or no bound.
        """
        key = source, target
        if key not in self._runs:
            self._runs[key] = self._guess(source, target)
        return self._runs[key]

    def _guess(self, source: DistType, target: DistType) -> CheapestRun | None:
        if source.agrees(target):
            return _unchanged(source)
        paths_class = StatePaths if is_unordered(source, target) else LayoutPaths
        try:
            paths = paths_class(self.mesh, source, target, self.options.model)
            padding = paths.padding if isinstance(paths, StatePaths) else 1.0
            # A program that shards over fewer sub-axes may need no padding.
            least = paths.root().bound / padding
        except (CostError, LayoutError):
            return None
        return CheapestRun(source, target, None, Price(least, least))

    def _searched(self, source: DistType, target: DistType) -> CheapestRun | None:
        if source.agrees(target):
            return _unchanged(source)
        seconds = min(self._left, self._share)
        if seconds <= 0:
            record_cut_off(TIME, self.options.seconds)
            return None
        start = monotonic()
        try:
            limit = None if math.isinf(seconds) else seconds
            options = replace(self.options, top=1, seconds=limit)
            synthesis = Pricing(self.mesh, source, target, options).searched()
            if synthesis.cut:
                record_cut_off(synthesis.cut, self.options.seconds)
            candidates = synthesis.candidates
            return self._planned(source, target, candidates[0].steps) if candidates else None
        except (CostError, LayoutError):
            return None
        finally:
            self._left -= monotonic() - start

    def _planned(
        self, source: DistType, target: DistType, steps: tuple[CollectiveStep, ...]
    ) -> CheapestRun | None:
        """Build a program and return it with its price, or None if a step has no price.

        Raises:
            LayoutError: the program cannot be built.
        """
        plan, price = planned(self.mesh, source, steps, target), NOTHING
        for step in plan.steps:
            cost = self.price(self.of(step), *map(dist_type, step.operands))
            if cost is None:
                return None
            price = price.plus(cost)
        return CheapestRun(source, target, plan, price)


def _unchanged(x: DistType) -> CheapestRun:
    """Return the run without steps, from a layout to itself."""
    value = stand_in(x)
    return CheapestRun(x, x, ProgramPlan(value, (), value), NOTHING)
