"""What steps cost by their types alone: what is compared before anything is rewritten.

All is remembered by types, as the layers of a model are alike.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import NamedTuple

from xdsl.ir import Attribute, SSAValue

from collir.cost.model import step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.cost import collective_between
from collir.cost.programs.simulation import copied_bytes
from collir.dialects.coll import OPERATIONS
from collir.dialects.operation import DistOp, arguments_of
from collir.dialects.tensor import AxesAttr, DistTensorType
from collir.ir.steps import PlannedValue
from collir.layout import DistType, LayoutError, Mesh
from collir.layout.steps import Argument, StepKind
from collir.synthesis.programs.build import Plan, planned
from collir.synthesis.programs.cheapest import synthesise
from collir.synthesis.programs.choices import TIE, SearchOptions
from collir.synthesis.programs.layouts import LayoutPaths
from collir.synthesis.programs.states import StatePaths, is_unordered
from collir.synthesis.programs.steps import Step
from collir.synthesis.searching import TIME, record_cut_off

SHARES = 10
"""How many searches there is time for at least."""


class Price(NamedTuple):
    """What steps in a row cost.

    Attributes:
        time: seconds of all.
        sending: seconds of those that send.
        moved: bytes that the others read and write.
        steps: how many there are.
    """

    time: float = 0.0
    sending: float = 0.0
    moved: float = 0.0
    steps: int = 0

    def plus(self, other: "Price") -> "Price":
        """Both."""
        return Price(
            self.time + other.time,
            self.sending + other.sending,
            self.moved + other.moved,
            self.steps + other.steps,
        )

    def pays(self, instead: "Price") -> bool:
        """Whether this is less than ``instead``, and no time of it is more."""
        for mine, other in ((self.time, instead.time), (self.sending, instead.sending)):
            if mine > other * (1 + TIE):
                return False
        if self.time < instead.time * (1 - TIE) or self.sending < instead.sending * (1 - TIE):
            return True
        return (self.moved, self.steps) < (instead.moved, instead.steps)

    def before(self, other: "Price", sending_first: bool) -> bool:
        """Whether this is preferred to another: by one time, the other time, bytes, and steps."""
        mine, theirs = (
            (one.sending, one.time) if sending_first else (one.time, one.sending)
            for one in (self, other)
        )
        for one, two in zip(mine, theirs, strict=True):
            if abs(one - two) > TIE * max(one, two):
                return one < two
        return (self.moved, self.steps) < (other.moved, other.steps)


NOTHING = Price()
"""Of no steps."""


@dataclass(frozen=True, eq=False)
class Form:
    """An operation but for its operands. There is one of each: see ``Prices.form``."""

    op: type[DistOp]
    properties: Mapping[str, Attribute]

    @property
    def kind(self) -> StepKind:
        """The row of the operation."""
        return self.op.KIND

    @cached_property
    def arguments(self) -> dict[str, Argument]:
        """The arguments by name."""
        return arguments_of(self.kind, self.properties)

    def put(self, operands: Sequence[SSAValue], result: DistType) -> DistOp:
        """The operation on operands, with a result that is known to be right."""
        types = [DistTensorType(result)]
        return self.op.create(
            operands=operands, properties=dict(self.properties), result_types=types
        )


@dataclass(frozen=True)
class Run:
    """The cheapest program from a layout to another.

    Attributes:
        plan: the program; None: not searched yet, and ``price`` is a lower bound.
    """

    source: DistType
    target: DistType
    plan: Plan | None
    price: Price


class Prices:
    """Types and prices of steps on one mesh, under one model.

    The seconds that are wanted are for all searches, of which each has a share at most.
    """

    def __init__(self, mesh: Mesh, wanted: SearchOptions):
        self.mesh, self.wanted = mesh, wanted
        device = mesh.machine.device
        self._speed = (device and device.memory_bandwidth) or math.inf
        self._left = math.inf if wanted.seconds is None else wanted.seconds
        self._each = self._left / SHARES
        self._forms: dict[tuple[type[DistOp], frozenset[tuple[str, Attribute]]], Form] = {}
        self._types: dict[tuple[Form, tuple[DistType, ...]], DistType | None] = {}
        self._prices: dict[tuple[Form, tuple[DistType, ...]], Price | None] = {}
        self._runs: dict[tuple[DistType, DistType], Run | None] = {}

    def form(self, op: type[DistOp], properties: Mapping[str, Attribute]) -> Form:
        """The form with these properties; equal ones are the same object."""
        key = op, frozenset(properties.items())
        if (known := self._forms.get(key)) is None:
            known = self._forms[key] = Form(op, dict(properties))
        return known

    def of(self, op: DistOp) -> Form:
        """The form of an operation."""
        return self.form(type(op), op.properties)

    def type(self, form: Form, *operands: DistType) -> DistType | None:
        """The type of the result; None: the step is not well typed."""
        key = form, operands
        if key not in self._types:
            try:
                found = form.op.result_type(self.mesh, operands, form.properties)
            except LayoutError:
                found = None
            self._types[key] = found
        return self._types[key]

    def price(self, form: Form, *operands: DistType) -> Price | None:
        """What a step costs; None: it is not well typed, or has no cost."""
        key = form, operands
        if key not in self._prices:
            result = self.type(form, *operands)
            self._prices[key] = None if result is None else self._price(form, operands, result)
        return self._prices[key]

    def _price(self, form: Form, operands: tuple[DistType, ...], result: DistType) -> Price | None:
        if not form.kind.sends:
            moved = self._moved(form, operands, result)
            return Price(moved / self._speed, 0.0, moved, 1)
        listed = form.properties.get("axes")
        axes = listed.data if isinstance(listed, AxesAttr) else None
        step = collective_between(form.kind.name, self.mesh, operands[0], result, axes)
        try:
            cost = step_cost(step, self.wanted.model)
        except CostError:
            return None
        copied = copied_bytes(cost)
        return Price(cost.time + copied / self._speed, cost.time, copied, 1)

    def _moved(self, form: Form, operands: tuple[DistType, ...], result: DistType) -> float:
        """The bytes that a local step reads and writes, as in a simulation, but for what ``concat``
        finds in its place already."""
        if form.kind.is_free(self.mesh, operands[0], form.arguments):
            return 0
        taken = [one.local_bytes(self.mesh) for one in operands]
        return form.kind.moved(taken, result.local_bytes(self.mesh))

    def run(self, source: DistType, target: DistType) -> Run | None:
        """The cheapest program from a layout to another; None: none was found."""
        key = source, target
        known = self._runs.get(key)
        if key not in self._runs or (known is not None and known.plan is None):
            known = self._runs[key] = self._searched(source, target)
        return known

    def guessed(self, source: DistType, target: DistType) -> Run | None:
        """The same, but as long as it was not searched, what it costs at least: searches take their
        time, and most are not worth it."""
        key = source, target
        if key not in self._runs:
            self._runs[key] = self._guess(source, target)
        return self._runs[key]

    def _guess(self, source: DistType, target: DistType) -> Run | None:
        if source == target:
            return _unchanged(source)
        paths = StatePaths if is_unordered(source, target) else LayoutPaths
        try:
            found = paths(self.mesh, source, target, self.wanted.model)
            padding = found.padding if isinstance(found, StatePaths) else 1.0
            least = found.root().bound / padding  # which programs over fewer sub-axes may not need
        except (CostError, LayoutError):
            return None
        return Run(source, target, None, Price(least, least))

    def _searched(self, source: DistType, target: DistType) -> Run | None:
        if source == target:
            return _unchanged(source)
        seconds = min(self._left, self._each)
        if seconds <= 0:
            record_cut_off(TIME, self.wanted.seconds)
            return None
        start = monotonic()
        try:
            model = self.wanted.model
            limit = None if math.isinf(seconds) else seconds
            searched = synthesise(self.mesh, source, target, model, seconds=limit)
            if searched.ended:
                record_cut_off(searched.ended, self.wanted.seconds)
            found = searched.candidates
            return self._planned(source, target, found[0].steps) if found else None
        except (CostError, LayoutError):
            return None
        finally:
            self._left -= monotonic() - start

    def _planned(self, source: DistType, target: DistType, steps: tuple[Step, ...]) -> Run | None:
        """Return a program with its price once it is built; None: a step has no price.

        Raises:
            LayoutError: the program cannot be built.
        """
        plan, price = planned(self.mesh, source, steps, target), NOTHING
        for step in plan.steps:
            form = self.form(OPERATIONS[step.kind.name], step.properties)
            cost = self.price(form, *(operand.type for operand in step.operands))
            if cost is None:
                return None
            price = price.plus(cost)
        return Run(source, target, plan, price)


def _unchanged(x: DistType) -> Run:
    """Return the run of no steps."""
    value = PlannedValue(x)
    return Run(x, x, Plan(value, (), value), NOTHING)
