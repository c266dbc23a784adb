"""Layout changes moved from behind a join to its operands, and back.

``add`` and ``concat`` join several values, and their effect on whole tensors does not depend on
layouts. So a step that changes the layout of the result may change the layouts of the operands
instead, and the other way round. The neighbouring steps decide which is cheaper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.ir import SSAValue

from collir.dialects.coll import OPERATIONS
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Reduction
from collir.layout.coll import local_inverse, local_twin
from collir.layout.steps import StepKind
from collir.synthesis.programs.fusion import only_user
from collir.synthesis.reorder.interleave import part
from collir.synthesis.reorder.prices import NOTHING, Form, Price, StepPrices
from collir.synthesis.reorder.swap import after

Forms = tuple[Form, ...]
"""Steps in a row."""

REACH = 4
"""The most local steps between a step and the join that it may move through."""


@dataclass(frozen=True)
class Joined:
    """A join and the steps around it, to replace others.

    Attributes:
        first: the operands, and the steps that each goes through before the join.
        join: the join, and its result type.
        then: the step behind the join, and its result type; None: there is none.
        gone: the steps that are replaced, in order; the result of the last is that of all.
    """

    first: tuple[tuple[SSAValue, Forms], ...]
    join: tuple[Form, DistType]
    then: tuple[Form, DistType] | None
    gone: tuple[DistOp, ...]


def earlier(prices: StepPrices, op: DistOp) -> Joined | None:
    """Return the step behind a join moved to its operands, if that is cheaper."""
    step = mover(only_user(op.result))
    if step is None:
        return None
    form, join = prices.of(step), prices.of(op)
    joined, target = dist_type(op.result), dist_type(step.result)
    if not _exact(form, join, joined):
        return None
    firsts: list[tuple[SSAValue, Forms]] = []
    types: list[DistType] = []
    for value in op.operands:
        moved = _on_operand(prices, form, dist_type(value))
        if moved is None:
            return None
        firsts.append((value, moved[0]))
        types.append(moved[1])
    if prices.type(join, *types) != target:
        return None
    written = _written(prices, join, [dist_type(value) for value in op.operands])
    old, new = _sum(written, prices.price(form, joined)), prices.price(join, *types)
    rows: list[_Row] = []
    for value, steps in dict.fromkeys(firsts):
        row = _before(value)
        old = _sum(old, _as_written(prices, row))
        rows.append(_prolonged(prices, row, value, *steps))
    if not _pays(prices, new, rows, old):
        return None
    return Joined(tuple(firsts), (join, target), None, (op, step))


def later(prices: StepPrices, op: DistOp) -> Joined | None:
    """Return a step in front of a join moved to its result, if that is cheaper."""
    reached = [_reaching(prices, value) for value in op.operands]
    for form in dict.fromkeys(reach.form for reach in reached if reach is not None):
        joined = _later(prices, op, reached, form)
        if joined is not None:
            return joined
    return None


def _later(
    prices: StepPrices, op: DistOp, reached: Sequence["_Reach | None"], form: Form
) -> Joined | None:
    join, back = prices.of(op), _undone(prices, form)
    firsts: list[tuple[SSAValue, Forms]] = []
    types: list[DistType] = []
    gone: list[DistOp] = []
    old, new = _written(prices, join, [dist_type(value) for value in op.operands]), NOTHING
    rows: list[_Row] = []
    for value, reach in zip(op.operands, reached, strict=True):
        if reach is not None and reach.form is form:
            firsts.append((reach.gone[0].operands[0], reach.locals))
            types.append(reach.type)
            gone += reach.gone
            old, new = _sum(old, _as_written(prices, reach.gone)), _sum(new, reach.price)
            continue
        x = None if back is None else prices.type(back, dist_type(value))
        if back is None or x is None:
            return None
        if (value, (back,)) not in firsts:
            row = _before(value)
            old = _sum(old, _as_written(prices, row))
            rows.append(_prolonged(prices, row, value, back))
        firsts.append((value, (back,)))
        types.append(x)
    joined = prices.type(join, *types)
    result = None if joined is None else prices.type(form, joined)
    if joined is None or result is None or not result.agrees(dist_type(op.result)):
        return None
    if not _exact(form, join, joined):
        return None
    row = _behind(op.result)
    old = _sum(old, _as_written(prices, row))
    rows.append(_preceded(prices, form, joined, row))
    if not _pays(prices, _sum(new, prices.price(join, *types)), rows, old):
        return None
    return Joined(tuple(firsts), (join, joined), (form, dist_type(op.result)), (*gone, op))


@dataclass(frozen=True)
class _Reach:
    """A step that changes a layout, moved behind the local steps between it and a join.

    Attributes:
        form: the form of the step at the join.
        locals: the local steps, now on the operand of the step.
        price: the price of the local steps there.
        type: the type of the value behind the local steps.
        gone: all of these steps as they are written.
    """

    form: Form
    locals: Forms
    price: Price
    type: DistType
    gone: tuple[DistOp, ...]


def _reaching(prices: StepPrices, value: SSAValue) -> _Reach | None:
    """Return the last step that changes the layout of a value, if it can be moved to the join."""
    passed: list[DistOp] = []
    while len(passed) < REACH and (op := _only_maker(value)) is not None and op.kind.maps:
        passed.append(op)
        value = op.operands[0]
    step = _once(value)
    if step is None:
        return None
    passed.reverse()
    form, x, price = prices.of(step), dist_type(step.operands[0]), NOTHING
    locals_ = tuple(prices.of(op) for op in passed)
    for op, local in zip(passed, locals_, strict=True):
        swapped = after(prices, form, local, x, dist_type(op.result))
        local_price = prices.price(local, x)
        if swapped is None or local_price is None:
            return None
        price = price.plus(local_price)
        form, x = swapped
    return _Reach(form, locals_, price, x, (step, *passed))


def mover(op: object) -> DistOp | None:
    """Return an operation, if it changes a layout and its place may change."""
    step = part(op)
    return step if step is not None and step.kind.layout_only else None


def _on_operand(prices: StepPrices, form: Form, x: DistType) -> tuple[Forms, DistType] | None:
    """Return the steps on an operand with the effect of a step on the result, and their type.

    These are the step itself, local steps, or none at all. None: no steps have this effect.
    """
    result = prices.type(form, x)
    if result is not None:
        return (form,), result
    twin = local_twin(form.kind)
    if twin is None or x.partial:
        return None
    steps = tuple(_alike(prices, kind, form) for kind in twin)
    for step in steps:
        result = prices.type(step, x)
        if result is None:
            return None
        x = result
    return steps, x


def _undone(prices: StepPrices, form: Form) -> Form | None:
    """Return the local step that undoes a collective; None: there is none."""
    kind = local_inverse(form.kind)
    return None if kind is None else _alike(prices, kind, form)


def _alike(prices: StepPrices, kind: StepKind, form: Form) -> Form:
    """Return a step of a kind with the arguments of another step."""
    names = [parameter.name for parameter in kind.parameters if not parameter.hint]
    return prices.form(OPERATIONS[kind.name], {name: form.properties[name] for name in names})


def _exact(form: Form, join: Form, x: DistType) -> bool:
    """Return whether a step and a join may change places, where types let them.

    ``x`` is the operand type of the step. Integers that wrap around do not keep their order under
    an addition, so the maximum of sums is not the sum with the maximum.
    """
    if join.kind.packs or not form.kind.reduces:
        return True
    return x.dtype.is_float or x.reduction not in (Reduction.MAX, Reduction.MIN)


def _only_maker(value: SSAValue) -> DistOp | None:
    """Return the operation that makes a value with one use, if its place may change."""
    return part(value.owner) if only_user(value) is not None else None


def _once(value: SSAValue) -> DistOp | None:
    return mover(_only_maker(value))


def _before(value: SSAValue) -> list[DistOp]:
    """Return the steps in a row that change the layout of a value before it is used."""
    row: list[DistOp] = []
    while (op := _once(value)) is not None:
        row.append(op)
        value = op.operands[0]
    return row[::-1]


def _behind(value: SSAValue) -> list[DistOp]:
    """Return the steps in a row that change the layout of a value from its use on."""
    row: list[DistOp] = []
    while (op := mover(only_user(value))) is not None:
        row.append(op)
        value = op.result
    return row


def _sum(a: Price | None, b: Price | None) -> Price | None:
    return None if a is None or b is None else a.plus(b)


def _written(prices: StepPrices, join: Form, types: Sequence[DistType]) -> Price | None:
    """Return the price of a join; of a concat the least, as parts may be in place already."""
    price = prices.price(join, *types)
    if price is not None and join.kind.packs:
        return Price(steps=1)
    return price


def _as_written(prices: StepPrices, row: Sequence[DistOp]) -> Price | None:
    total: Price | None = NOTHING
    for op in row:
        total = _sum(total, prices.price(prices.of(op), dist_type(op.operands[0])))
    return total


class _Row(NamedTuple):
    """Steps in a row.

    Attributes:
        plain: the price of the steps as they are; None: they have none.
        ends: the layouts between which a cheaper program may take their place; None: nothing is
            sent, so none does.
    """

    plain: Price | None
    ends: tuple[DistType, DistType] | None


def _prolonged(prices: StepPrices, row: Sequence[DistOp], value: SSAValue, *more: Form) -> _Row:
    """Return the row of some steps and more behind them; ``value`` is in between."""
    x, plain = dist_type(value), _as_written(prices, row)
    for form in more:
        plain, result = _sum(plain, prices.price(form, x)), prices.type(form, x)
        assert result is not None
        x = result
    kinds = [*(op.kind for op in row), *(form.kind for form in more)]
    if not row or not more or not _sends(kinds):
        return _Row(plain, None)
    return _Row(plain, (dist_type(row[0].operands[0]), x))


def _preceded(prices: StepPrices, form: Form, x: DistType, row: Sequence[DistOp]) -> _Row:
    """Return the row of a step on ``x`` and some steps behind it."""
    plain = _sum(prices.price(form, x), _as_written(prices, row))
    if not row or not _sends([form.kind, *(op.kind for op in row)]):
        return _Row(plain, None)
    return _Row(plain, (x, dist_type(row[-1].result)))


def _pays(prices: StepPrices, rest: Price | None, rows: Sequence[_Row], old: Price | None) -> bool:
    """Return whether rows of steps and the rest cost less than the old steps.

    Each row may become the cheapest program. Programs are searched only where lower bounds on their
    prices leave it open.
    """
    for find in (prices.guessed, prices.run):
        new = rest
        for row in rows:
            run = find(*row.ends) if row.ends else None
            plain = row.plain
            if run is not None and (plain is None or run.price.pays(plain)):
                plain = run.price
            new = _sum(new, plain)
        if old is None or new is None or not new.pays(old):
            return False
    return True


def _sends(kinds: Sequence[StepKind]) -> bool:
    return any(kind.sends for kind in kinds)
