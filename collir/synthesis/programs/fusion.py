"""The fusion of steps that follow each other into fewer or cheaper ones.

A collective changes only the layout of a value, and a type describes the whole layout. So if
nothing else uses the values between steps in a row, these are one change from the first layout to
the last. The cheapest program for this change (choices.py) may take their place.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriterListener

from collir.cost.network.group import CostError
from collir.cost.programs.simulate import simulate_function
from collir.cost.steps import seconds_of, standing_alone
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp, is_placeholder, repeats_operands
from collir.dialects.tensor import dist_type, same_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of, scratch_copy, without_weights
from collir.layout import DistType, LayoutError, Mesh
from collir.layout.coll import ADD
from collir.synthesis.programs.build import planned
from collir.synthesis.programs.choices import alike, best_between, choices
from collir.synthesis.programs.paying import Kinds, RewriteRank, Rewrites, left_out_of
from collir.synthesis.programs.rewriting import erase, replace_by
from collir.synthesis.programs.search_options import TIE, SearchOptions
from collir.synthesis.searching import grouped_remarks
from collir.transforms.loops.straight import on_straight_programs


@on_straight_programs
def fuse(
    module: ModuleOp, options: SearchOptions, listener: PatternRewriterListener | None = None
) -> None:
    """Rewrite steps that follow each other in every function, in place; never to slower ones.

    Raises:
        DiagnosticError: see ``choices``.
    """
    with meshes_remembered():
        for function in without_weights(functions_of(module), "fused"):
            with grouped_remarks(function, f"fewer steps in @{function.sym_name.data}"):
                left_out = _left_out(function, options)
                if left_out is not None:
                    _Fusion(function, options, listener, left_out).run()


def _left_out(function: FuncOp, options: SearchOptions) -> Kinds | None:
    """Return the kinds of rewrites that do not pay; None if none pays."""
    if any(map(is_placeholder, function.body.ops)):  # it has no time yet
        return frozenset()
    try:
        before = simulate_function(function, options.model).time
    except DiagnosticError:
        return frozenset()

    def tried(left_out: Kinds) -> tuple[RewriteRank, Iterable[Hashable]]:
        with scratch_copy(function) as copy:
            fusion = _Fusion(copy, options, None, left_out)
            fusion.run()
            time = simulate_function(copy, options.model).time if fusion.rewrites.made else before
            return RewriteRank.of(time, before), fusion.rewrites.made

    return left_out_of(function, "fuse", tried)


class _Fusion:
    """The rewrites of one function."""

    def __init__(
        self,
        function: FuncOp,
        options: SearchOptions,
        listener: PatternRewriterListener | None,
        left_out: Kinds,
    ):
        self.function, self.options, self.listener = function, options, listener
        self.rewrites = Rewrites(left_out)
        self.mesh: Mesh = mesh_of(function)

    def run(self) -> None:
        """Rewrite the steps of the function."""
        self.shorten_chains()
        self.add_first()
        self.shorten_chains()

    def add_first(self) -> None:
        """Rewrite the ``add`` of the results of two equal steps to the step on the sum."""
        for op in list(self.function.body.ops):
            if isinstance(op, DistOp) and op.kind is ADD and not repeats_operands(op):
                self._add_first(op)

    def _add_first(self, op: DistOp) -> None:
        left, right = (layout_change(operand.owner) for operand in op.operands)
        if left is None or right is None or left is right or left.name != right.name:
            return
        if left.properties != right.properties or not (_once(left.result) and _once(right.result)):
            return
        operands = [dist_type(step.operands[0]) for step in (left, right)]
        try:
            total = ADD.result_type(self.mesh, operands, {})
            result = left.kind.result_type(self.mesh, [total], left.arguments)
        except LayoutError:  # the maximum of a sum is no sum of maxima
            return
        if not result.agrees(dist_type(op.result)) or not self._pays(left, op, operands, total):
            return
        if self.rewrites.makes("add", alike(left), alike(right)):
            added = OPERATIONS[ADD.name].make(self.mesh, left.operands[0], right.operands[0])
            step = type(left).make(self.mesh, added.result, **left.properties)
            replace_by(op, [added, step], step.result, self.listener)
            erase([left, right])
            self._add_first(added)

    def _pays(
        self, step: DistOp, add: DistOp, operands: Sequence[DistType], total: DistType
    ) -> bool:
        """Return whether a step on the sum of its operands takes no longer than the sum of its
        results."""
        more = 3 * (total.local_bytes(self.mesh) - self._bytes(add.result))
        first = standing_alone(type(add), {}, operands, total)
        model = self.options.model
        try:
            saved = time_of(step, self.mesh, self.options) + seconds_of(add, self.mesh, model)
            added = seconds_of(first, self.mesh, model)
        except CostError:  # on no levels, or devices without a rate
            return step.kind.sends or more <= 0
        return added < saved * (1 - TIE) or (added <= saved * (1 + TIE) and more <= 0)

    def _bytes(self, value: SSAValue) -> int:
        return dist_type(value).local_bytes(self.mesh)

    def shorten_chains(self) -> None:
        """Put the cheapest program in the place of steps in a row."""
        for chain in list(chains(self.function)):
            first, last = chain[0].operands[0], chain[-1]
            same = same_type(first, last.result)
            if same and self.rewrites.makes("none", first.type):
                replace_by(last, [], first, self.listener)
                erase(chain[:-1])
            elif not same:
                self._shorten(chain)

    def _shorten(self, chain: Sequence[DistOp]) -> None:
        operand, last = chain[0].operands[0], chain[-1]
        source, target = dist_type(operand), dist_type(last.result)
        try:
            now = sum(time_of(op, self.mesh, self.options) for op in chain)
        except CostError:
            return
        best = best_between(self.mesh, source, target, self.options)
        if best is None:
            return
        time, program = best
        shorter = len(program.steps) < len(chain)
        pays = time < now * (1 - TIE) or (time <= now * (1 + TIE) and shorter)
        if pays and self.rewrites.makes("chain", *map(alike, chain)):
            plan = planned(self.mesh, source, program.steps, target)
            replace_by(last, *plan.built_on(operand), self.listener)
            erase(chain[:-1])


def time_of(op: DistOp, mesh: Mesh, options: SearchOptions) -> float:
    """Return the seconds of a step as it stands.

    Raises:
        CostError: the step has no cost.
    """
    if op.kind.placeholder:
        return choices(op, options).listed[0][0]
    return seconds_of(op, mesh, options.model)


def chains(function: FuncOp) -> Iterator[list[DistOp]]:
    """Yield the rows of two and more operations that change a layout only."""
    return (row for row in rows_of(function, layout_change) if len(row) > 1)


def rows_of(function: FuncOp, member: Callable[[object], DistOp | None]) -> Iterator[list[DistOp]]:
    """Yield the longest rows of operations, each the only user of the result of the one before.

    Args:
        member: a function that returns an operation if it may be in a row, else None.
    """
    seen: set[DistOp] = set()
    for op in function.body.ops:
        first = member(op)
        if first is None or first in seen:
            continue
        row = [first]
        while (following := member(only_user(row[-1].result))) is not None:
            row.append(following)
        seen.update(row)
        yield row


def layout_change(op: object) -> DistOp | None:
    """Return an operation that only changes a layout, with no algorithm and no ``async``."""
    if not isinstance(op, DistOp) or not op.kind.layout_only:
        return None
    return None if op.properties.keys() & {"algorithm", "async", "ahead"} else op


def only_user(value: SSAValue) -> Operation | None:
    """Return the operation that uses a value, if there is just one use of it."""
    uses = list(islice(value.uses, 2))
    return uses[0].operation if len(uses) == 1 else None


def _once(value: SSAValue) -> bool:
    return only_user(value) is not None
