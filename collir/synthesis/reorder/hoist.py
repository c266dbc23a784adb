"""Steps that change a layout, in front of and behind what takes several values.

``add`` and ``concat`` do the same to the whole tensors whatever the layout of their operands is, so
what changes the layout of the result may instead change that of each operand, and the other way
round. Which is cheaper depends on what it meets there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.ir import SSAValue

from collir.dialects.coll import OPERATIONS
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Reduction
from collir.layout.steps import StepKind, local_inverse, local_twin
from collir.synthesis.programs.fusion import only_user
from collir.synthesis.reorder.interleave import part
from collir.synthesis.reorder.prices import NOTHING, Form, Price, Prices
from collir.synthesis.reorder.swap import after

Forms = tuple[Form, ...]
"""Steps in a row."""

REACH = 4
"""The most local steps between a step and a join that it is looked for behind."""


@dataclass(frozen=True)
class Joined:
    """What takes the place of some steps.

    Attributes:
        first: the operands, and what each goes through before they are joined.
        join: what joins them, and the type that this gives.
        then: what the result goes through, and the type that this gives.
        gone: the steps that are no more, in order; the result of the last is that of all.
    """

    first: tuple[tuple[SSAValue, Forms], ...]
    join: tuple[Form, DistType]
    then: tuple[Form, DistType] | None
    gone: tuple[DistOp, ...]


def earlier(prices: Prices, op: DistOp) -> Joined | None:
    """The step behind a join on its operands instead, if that is cheaper."""
    step = mover(only_user(op.result))
    if step is None:
        return None
    form, join = prices.of(step), prices.of(op)
    whole, wanted = dist_type(op.result), dist_type(step.result)
    if not _exact(form, join, whole):
        return None
    firsts: list[tuple[SSAValue, Forms]] = []
    types: list[DistType] = []
    for value in op.operands:
        led = _led(prices, form, dist_type(value))
        if led is None:
            return None
        firsts.append((value, led[0]))
        types.append(led[1])
    if prices.type(join, *types) != wanted:
        return None
    written = _written(prices, join, [dist_type(value) for value in op.operands])
    old, new = _sum(written, prices.price(form, whole)), prices.price(join, *types)
    rows: list[_Row] = []
    for value, steps in dict.fromkeys(firsts):
        row = _before(value)
        old = _sum(old, _as_written(prices, row))
        rows.append(_prolonged(prices, row, value, *steps))
    if not _pays(prices, new, rows, old):
        return None
    return Joined(tuple(firsts), (join, wanted), None, (op, step))


def later(prices: Prices, op: DistOp) -> Joined | None:
    """A step in front of a join on its result instead, if that is cheaper."""
    reached = [_reaching(prices, value) for value in op.operands]
    for form in dict.fromkeys(one.form for one in reached if one is not None):
        found = _later(prices, op, reached, form)
        if found is not None:
            return found
    return None


def _later(
    prices: Prices, op: DistOp, reached: Sequence["_Reach | None"], form: Form
) -> Joined | None:
    join, back = prices.of(op), _undone(prices, form)
    firsts: list[tuple[SSAValue, Forms]] = []
    types: list[DistType] = []
    gone: list[DistOp] = []
    old, new = _written(prices, join, [dist_type(one) for one in op.operands]), NOTHING
    rows: list[_Row] = []
    for value, one in zip(op.operands, reached, strict=True):
        if one is not None and one.form is form:
            firsts.append((one.gone[0].operands[0], one.locals))
            types.append(one.type)
            gone += one.gone
            old, new = _sum(old, _as_written(prices, one.gone)), _sum(new, one.price)
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
    whole = prices.type(join, *types)
    if whole is None or prices.type(form, whole) != dist_type(op.result):
        return None
    if not _exact(form, join, whole):
        return None
    row = _behind(op.result)
    old = _sum(old, _as_written(prices, row))
    rows.append(_preceded(prices, form, whole, row))
    if not _pays(prices, _sum(new, prices.price(join, *types)), rows, old):
        return None
    return Joined(tuple(firsts), (join, whole), (form, dist_type(op.result)), (*gone, op))


@dataclass(frozen=True)
class _Reach:
    """A step that changes a layout, brought behind the local steps between it and a join.

    Attributes:
        form: of the step there.
        locals: the others, on what it took, and ``price`` what they cost there.
        type: what they give.
        gone: all of them as they are written.
    """

    form: Form
    locals: Forms
    price: Price
    type: DistType
    gone: tuple[DistOp, ...]


def _reaching(prices: Prices, value: SSAValue) -> _Reach | None:
    """The last step that changes the layout of a value, if it can be brought to the join."""
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
        found, cost = after(prices, form, local, x, dist_type(op.result)), prices.price(local, x)
        if found is None or cost is None:
            return None
        price = price.plus(cost)
        form, x = found
    return _Reach(form, locals_, price, x, (step, *passed))


def mover(op: object) -> DistOp | None:
    """An operation, if it changes a layout and its place may change."""
    found = part(op)
    return found if found is not None and found.kind.layout_only else None


def _led(prices: Prices, form: Form, x: DistType) -> tuple[Forms, DistType] | None:
    """What takes an operand to where a step leads, and the type there: the step, or what sends
    nothing, or no step at all. None: nothing does."""
    given = prices.type(form, x)
    if given is not None:
        return (form,), given
    twin = local_twin(form.kind)
    if twin is None or x.partial:
        return None
    steps = tuple(_alike(prices, kind, form) for kind in twin)
    for step in steps:
        given = prices.type(step, x)
        if given is None:
            return None
        x = given
    return steps, x


def _undone(prices: Prices, form: Form) -> Form | None:
    """What sends nothing, and takes a value back to where a collective came from."""
    kind = local_inverse(form.kind)
    return None if kind is None else _alike(prices, kind, form)


def _alike(prices: Prices, kind: StepKind, form: Form) -> Form:
    """A step with the arguments of another."""
    names = [one.name for one in kind.parameters if not one.hint]
    return prices.form(OPERATIONS[kind.name], {name: form.properties[name] for name in names})


def _exact(form: Form, join: Form, x: DistType) -> bool:
    """Whether a step and a join may change places, where types let them; ``x`` is what the step
    takes. Integers that wrap around do not keep their order when they are added to."""
    if join.kind.packs or not form.kind.reduces:
        return True
    return x.dtype.is_float or x.reduction not in (Reduction.MAX, Reduction.MIN)


def _only_maker(value: SSAValue) -> DistOp | None:
    """What makes a value that has one use, if its place may change."""
    return part(value.owner) if only_user(value) is not None else None


def _once(value: SSAValue) -> DistOp | None:
    return mover(_only_maker(value))


def _before(value: SSAValue) -> list[DistOp]:
    """The steps that change the layout of a value up to here, and of nothing else."""
    found: list[DistOp] = []
    while (op := _once(value)) is not None:
        found.append(op)
        value = op.operands[0]
    return found[::-1]


def _behind(value: SSAValue) -> list[DistOp]:
    """Those that change it from here on."""
    found: list[DistOp] = []
    while (op := mover(only_user(value))) is not None:
        found.append(op)
        value = op.result
    return found


def _sum(one: Price | None, other: Price | None) -> Price | None:
    return None if one is None or other is None else one.plus(other)


def _written(prices: Prices, join: Form, types: Sequence[DistType]) -> Price | None:
    """What a join costs; of a concat the least, as its parts may be in their place already."""
    price = prices.price(join, *types)
    if price is not None and join.kind.packs:
        return Price(steps=1)
    return price


def _as_written(prices: Prices, row: Sequence[DistOp]) -> Price | None:
    total: Price | None = NOTHING
    for op in row:
        total = _sum(total, prices.price(prices.of(op), dist_type(op.operands[0])))
    return total


class _Row(NamedTuple):
    """Steps in a row: what they cost as they are, and the ends of what may be the cheapest program
    in their place; none, if nothing of it is sent."""

    plain: Price | None
    ends: tuple[DistType, DistType] | None


def _prolonged(prices: Prices, row: Sequence[DistOp], value: SSAValue, *more: Form) -> _Row:
    """A row of steps up to a value, and more behind it."""
    x, plain = dist_type(value), _as_written(prices, row)
    for form in more:
        plain, given = _sum(plain, prices.price(form, x)), prices.type(form, x)
        assert given is not None
        x = given
    kinds = [*(op.kind for op in row), *(form.kind for form in more)]
    if not row or not more or not _sends(kinds):
        return _Row(plain, None)
    return _Row(plain, (dist_type(row[0].operands[0]), x))


def _preceded(prices: Prices, form: Form, x: DistType, row: Sequence[DistOp]) -> _Row:
    """A row of steps, and one in front of it."""
    plain = _sum(prices.price(form, x), _as_written(prices, row))
    if not row or not _sends([form.kind, *(op.kind for op in row)]):
        return _Row(plain, None)
    return _Row(plain, (x, dist_type(row[-1].result)))


def _pays(prices: Prices, rest: Price | None, rows: Sequence[_Row], old: Price | None) -> bool:
    """Whether rows of steps and the rest cost less than what there was, once each row is the
    cheapest program; these are searched only where it might."""
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
