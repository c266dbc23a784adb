"""Steps that follow each other as fewer, or cheaper ones.

A collective changes the layout of a value and nothing else, and a type says all of a layout. So
steps in a row, whose values in between nothing else uses, are one change from the first layout to
the last, and the cheapest program for that (strategies.py) may take their place.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriterListener
from xdsl.rewriter import InsertPoint

from collir.cost.model import step_cost
from collir.cost.network.group import CostError
from collir.cost.programs.cost import collective_of
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of, meshes_remembered
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.layout import LayoutError, Mesh
from collir.layout.steps import ADD, REDISTRIBUTE
from collir.synthesis.programs.strategies import TIE, SearchOptions, choices, put
from collir.synthesis.searching import grouped_remarks


def fuse(
    module: ModuleOp, wanted: SearchOptions, listener: PatternRewriterListener | None = None
) -> None:
    """Rewrites steps that follow each other in every function, in place; never to what takes
    longer.

    Raises:
        DiagnosticError: see ``choices``.
    """
    with meshes_remembered():
        for function in functions_of(module):
            fusion = _Fusion(function, wanted, listener)
            with grouped_remarks(function, f"fewer steps in @{function.sym_name.data}"):
                fusion.chains()
                fusion.add_before()
                fusion.chains()


class _Fusion:
    """What is done to one function."""

    def __init__(
        self, function: FuncOp, wanted: SearchOptions, listener: PatternRewriterListener | None
    ):
        self.function, self.wanted, self.listener = function, wanted, listener
        self.mesh: Mesh = mesh_of(function)

    def add_before(self) -> None:
        """``add`` of what two equal steps give: the step, once, on the sum of what they take."""
        for op in list(self.function.body.ops):
            if isinstance(op, DistOp) and op.kind is ADD:
                self._add_before(op)

    def _add_before(self, op: DistOp) -> None:
        left, right = (layout_change(operand.owner) for operand in op.operands)
        if left is None or right is None or left is right or left.name != right.name:
            return
        if left.properties != right.properties or not (_once(left.result) and _once(right.result)):
            return
        taken = [dist_type(one.operands[0]) for one in (left, right)]
        try:
            whole = ADD.result_type(self.mesh, taken, {})
            given = left.kind.result_type(self.mesh, [whole], left.arguments)
        except LayoutError:  # the maximum of a sum is no sum of maxima
            return
        if given == dist_type(op.result) and self._pays(left, op):
            added = OPERATIONS[ADD.name].make(self.mesh, left.operands[0], right.operands[0])
            step = type(left).make(self.mesh, added.result, **left.properties)
            self._replace(op, [added, step], step.result)
            self._erase([left, right])
            self._add_before(added)

    def _pays(self, step: DistOp, add: DistOp) -> bool:
        """Whether one step less is worth what there is more to add, on what it takes."""
        more = 3 * (self._bytes(step.operands[0]) - self._bytes(add.result))
        if not step.kind.sends:
            return more <= 0
        device = self.mesh.machine.device
        speed = device.memory_bandwidth if device else None
        try:
            return more <= 0 or speed is None or more / speed <= self._time(step)
        except CostError:  # on no levels
            return True

    def _bytes(self, value: SSAValue) -> int:
        return dist_type(value).local_bytes(self.mesh)

    def chains(self) -> None:
        """The cheapest program in the place of steps in a row."""
        for chain in list(chains(self.function)):
            first, last = chain[0].operands[0], chain[-1]
            if first.type == last.result.type:
                self._replace(last, [], first)
                self._erase(chain[:-1])
            else:
                self._shorten(chain)

    def _shorten(self, chain: Sequence[DistOp]) -> None:
        last = chain[-1]
        try:
            now = sum(self._time(op) for op in chain)
            whole = OPERATIONS[REDISTRIBUTE.name].make(
                self.mesh, chain[0].operands[0], to=last.result.type
            )
        except (CostError, LayoutError):
            return
        whole.location = last.location
        self.function.body.block.insert_op_before(whole, last)
        try:
            time, program = choices(whole, self.wanted).listed[0]
        except DiagnosticError:  # on no levels, or too many sub-axes to search
            self._erase([whole])
            return
        steps = len(program.steps) if program else len(chain)
        if program and (time < now * (1 - TIE) or (time <= now * (1 + TIE) and steps < len(chain))):
            self._replace(last, [], whole.result)
            self._erase(chain[:-1])
            put(whole, program, self.listener)
        else:
            self._erase([whole])

    def _time(self, op: DistOp) -> float:
        """Seconds of a step as it stands.

        Raises:
            CostError: it has no cost.
        """
        if op.kind.placeholder:
            return choices(op, self.wanted).listed[0][0]
        if op.kind.local:
            return 0.0
        return step_cost(collective_of(op, self.mesh), self.wanted.model).time

    def _replace(self, op: Operation, ops: Sequence[Operation], value: SSAValue) -> None:
        rewriter = PatternRewriter(op)
        if self.listener is not None:
            rewriter.extend_from_listener(self.listener)
        rewriter.insert(ops, InsertPoint.before(op))
        rewriter.replace(op, [], [value])

    def _erase(self, ops: Sequence[DistOp]) -> None:
        for op in reversed(ops):
            PatternRewriter(op).erase(op)


def chains(function: FuncOp) -> Iterator[list[DistOp]]:
    """Runs of two and more operations that change a layout only, each on the result of the one
    before, which nothing else uses."""
    seen: set[DistOp] = set()
    for op in function.body.ops:
        first = layout_change(op)
        if first is None or first in seen:
            continue
        chain = [first]
        while (after := layout_change(only_user(chain[-1].result))) is not None:
            chain.append(after)
        seen.update(chain)
        if len(chain) > 1:
            yield chain


def layout_change(op: object) -> DistOp | None:
    """An operation, if it changes a layout only, and says neither how nor that it may wait."""
    if not isinstance(op, DistOp) or not op.kind.layout_only:
        return None
    return None if op.properties.keys() & {"algorithm", "async"} else op


def only_user(value: SSAValue) -> Operation | None:
    """The operation that uses a value, if there is just one use of it."""
    uses = list(islice(value.uses, 2))
    return uses[0].operation if len(uses) == 1 else None


def _once(value: SSAValue) -> bool:
    return only_user(value) is not None
