"""Steps that change a layout, and local steps, in the order that costs least.

Each function is rewritten in turns, until nothing more pays: rows of steps on one value are
interleaved anew (interleave.py), and steps that change a layout move through ``add`` and
``concat`` (hoist.py). Each rewrite is judged by the prices of the steps it touches (prices.py); in
the end the function as a whole has to be no dearer than it was.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import permutations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriterListener
from xdsl.rewriter import InsertPoint

from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp, is_collective, repeats_operands
from collir.dialects.tensor import AxesAttr, dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of, scratch_copy, without_weights
from collir.layout import DistType, Mesh
from collir.synthesis.programs.fusion import layout_change
from collir.synthesis.programs.paying import Kinds, RewriteRank, Rewrites, left_out_of
from collir.synthesis.programs.rewriting import erase, replace_by, rewriter_at
from collir.synthesis.programs.search_options import SearchOptions
from collir.synthesis.reorder.hoist import Joined, earlier, later
from collir.synthesis.reorder.interleave import Grid, PathStep, thread_to, threads
from collir.synthesis.reorder.prices import Form, StepPrices
from collir.synthesis.searching import grouped_remarks
from collir.transforms.loops.straight import on_straight_programs

Rule = Callable[[StepPrices, DistOp], Joined | None]
"""A function that returns a replacement of the steps around a join, or None."""

WINDOW = 12
"""The most steps of a row that are interleaved at once; a longer row is cut into windows that
overlap by half."""

TURNS = 8
"""The most passes over a function."""

MOST_ORDERS = 4
"""The most sub-axes for which all orders are tried."""


@on_straight_programs
def reorder(
    module: ModuleOp, options: SearchOptions, listener: PatternRewriterListener | None = None
) -> None:
    """Rewrite every function on levels, in place; never to a slower one."""
    prices: dict[Mesh, StepPrices] = {}
    with meshes_remembered():
        for function in without_weights(functions_of(module), "reordered"):
            mesh = mesh_of(function)
            if not mesh.placed:
                continue
            if mesh not in prices:
                prices[mesh] = StepPrices(mesh, options)
            with grouped_remarks(function, f"a better order of steps in @{function.sym_name.data}"):
                _reorder_function(function, prices[mesh], listener)


def _reorder_function(
    function: FuncOp, prices: StepPrices, listener: PatternRewriterListener | None
) -> None:
    """Rewrite one function as far as that pays."""
    before = _time(function, prices)
    if before is None:
        return

    # Each rewrite is judged by the types of the steps it touches. All of them together are judged
    # by the time of the whole function, in which steps may overlap: so they are made on a copy.
    def tried(left_out: Kinds) -> tuple[RewriteRank, Iterable[Hashable]]:
        with scratch_copy(function) as copy:
            reordering = _Reordering(copy, prices, None, left_out)
            reordering.run()
            time = _time(copy, prices) if reordering.rewrites.made else before
        return RewriteRank.of(math.inf if time is None else time, before), reordering.rewrites.made

    left_out = left_out_of(function, "reorder-by-hierarchy", tried)
    if left_out is not None:
        _Reordering(function, prices, listener, left_out).run()


def _time(function: FuncOp, prices: StepPrices) -> float | None:
    """Return the seconds of a function; None if it cannot be simulated."""
    try:
        return simulate_function(function, prices.options.model).time
    except DiagnosticError:
        return None


class _Reordering:
    """The rewrites of one function.

    Attributes:
        best: the best orders that are known, by the type that a row starts from and its forms.
        done: the rows that were looked at.
    """

    def __init__(
        self,
        function: FuncOp,
        prices: StepPrices,
        listener: PatternRewriterListener | None,
        left_out: Kinds,
    ):
        self.function, self.prices, self.listener = function, prices, listener
        self.rewrites = Rewrites(left_out)
        self.mesh = prices.mesh
        self.best: dict[Hashable, list[PathStep] | None] = {}
        self.done: set[tuple[DistOp, ...]] = set()

    def run(self) -> None:
        """Rewrite the function until nothing more pays."""
        self.orders()
        for _ in range(TURNS):
            again = self.joins(later, up=False)
            again |= self.threads()
            again |= self.joins(earlier, up=True)
            again |= self.threads()
            if not again:
                break
        self.orders()

    # --- rows of steps on one value -------------------------------------------------------------

    def threads(self) -> bool:
        """Interleave every row of steps anew; return whether any changed."""
        changed = False
        for thread in list(threads(self.function)):
            if len(thread) > 1 and tuple(thread) not in self.done:
                changed |= self._thread(thread)
                self.done.add(tuple(thread))
        return changed

    def _thread(self, ops: list[DistOp]) -> bool:
        changed, start = False, 0
        while True:
            window = ops[start : start + WINDOW]
            placed = self._interleaved(window)
            if placed is not None and self.rewrites.makes("row", *self._row(window)):
                ops[start : start + WINDOW] = self._rewrite(window, placed)
                changed = True
            if start + WINDOW >= len(ops):
                return changed
            start += WINDOW // 2

    def _interleaved(self, ops: Sequence[DistOp]) -> list[PathStep] | None:
        """Return the best order of some steps; None: the written one.

        Rows that are alike are searched once.
        """
        if not any(op.kind.layout_only for op in ops):
            return None
        source, forms = self._row(ops)
        if (source, forms) not in self.best:
            self.best[source, forms] = Grid(self.prices, source, forms).best()
        return self.best[source, forms]

    def _row(self, ops: Sequence[DistOp]) -> tuple[DistType, tuple[Form, ...]]:
        """Return the type that a row of steps starts from, and its forms."""
        return dist_type(ops[0].operands[0]), tuple(map(self.prices.of, ops))

    def _rewrite(self, ops: Sequence[DistOp], placed: Sequence[PathStep]) -> list[DistOp]:
        """Put steps in the place of others, in about the places where those were; return them."""
        value: SSAValue = ops[0].operands[0]
        made: list[DistOp] = []
        for number, step in enumerate(placed):
            origin = ops[step.origin]
            if isinstance(step.does, Form):
                steps = [step.does.put([value], step.result)]
                value = steps[0].result
                if origin is not ops[-1]:
                    value.name_hint = origin.result.name_hint
            else:
                assert step.does.plan is not None
                steps, value = step.does.plan.built_on(value)
            self._insert(ops[min(number, len(ops) - 1)], steps, origin)
            made += steps
        self._replace(ops, value)
        return made

    # --- add and concat -------------------------------------------------------------------------

    def joins(self, rule: Rule, up: bool) -> bool:
        """Move steps through joins, last join first where they go up; return whether any moved."""
        ops = [
            op
            for op in self.function.body.ops
            if isinstance(op, DistOp) and op.kind.joins and not repeats_operands(op)
        ]
        changed = False
        for op in reversed(ops) if up else ops:
            join: DistOp = op
            while (joined := rule(self.prices, join)) is not None:
                forms = tuple(steps for _, steps in joined.first)
                if not self.rewrites.makes("join", rule, joined.join, joined.then, forms):
                    break
                join = self._join(join, joined)
                changed = True
                for value in join.operands if up else ():  # so that the next join is reached
                    thread = thread_to(value)
                    if len(thread) > 1:
                        self._thread(thread)
        return changed

    def _join(self, op: DistOp, joined: Joined) -> DistOp:
        """Put a join and the steps around it in the place of others; return the join."""
        made: dict[tuple[SSAValue, Form], SSAValue] = {}
        values: list[SSAValue] = []
        last = joined.gone[-1]
        for value, forms in joined.first:
            for form in forms:
                if (value, form) not in made:
                    result_type = self.prices.type(form, dist_type(value))
                    assert result_type is not None
                    step = form.put([value], result_type)
                    self._insert(last, [step], last if joined.then is None else op)
                    made[value, form] = step.result
                value = made[value, form]
            values.append(value)
        form, result_type = joined.join
        join = form.put(values, result_type)
        self._insert(last, [join], op)
        result = join.result
        if joined.then is not None:
            form, result_type = joined.then
            step = form.put([result], result_type)
            self._insert(last, [step], joined.gone[0])
            result = step.result
        self._replace(joined.gone, result)
        return join

    # --- the order of sub-axes ------------------------------------------------------------------

    def orders(self) -> None:
        """Put the sub-axes of steps that do the same in any order into the cheapest order."""
        for op in list(self.function.body.ops):
            if not is_collective(op) or layout_change(op) is None or len(op.over) < 2:
                continue
            if not op.kind.ordered and not op.kind.pairs:
                form = self._ordered(op)
                if form is not None and self.rewrites.makes(
                    "order", form, dist_type(op.operands[0])
                ):
                    step = form.put(op.operands, dist_type(op.result))
                    self._insert(op, [step], op)
                    self._replace([op], step.result)

    def _ordered(self, op: DistOp) -> Form | None:
        x, form = dist_type(op.operands[0]), self.prices.of(op)
        best, least = None, self.prices.price(form, x)
        for order in _orders(self.mesh, op.over):
            ordered = self.prices.form(form.op, {**form.properties, "axes": AxesAttr(order)})
            price = self.prices.price(ordered, x)
            if price is not None and least is not None and price.pays(least):
                best, least = ordered, price
        return best

    # --- rewriting ------------------------------------------------------------------------------

    def _insert(self, place: DistOp, ops: Sequence[Operation], origin: DistOp) -> None:
        for op in ops:
            op.location = origin.location
        rewriter_at(place, self.listener).insert(ops, InsertPoint.before(place))

    def _replace(self, ops: Sequence[DistOp], value: SSAValue) -> None:
        """Erase operations; the result of the last is ``value`` from now on."""
        replace_by(ops[-1], [], value, self.listener)
        erase(ops[:-1])


def _orders(mesh: Mesh, axes: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
    """Return the orders to try: all, or from the outermost level inwards and back."""
    if len(axes) <= MOST_ORDERS:
        return list(permutations(axes))
    inwards = tuple(sorted(axes, key=lambda axis: -mesh.by_name[axis].stride))
    return [inwards, inwards[::-1]]
