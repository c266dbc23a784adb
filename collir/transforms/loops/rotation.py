"""Loops as they run: ``ahead`` steps belong to the iteration before.

Such a loop is rotated. The ahead steps of the first iteration, and the steps that feed them, stand
in front of the loop. Each iteration begins with the ahead steps of the next one, and takes the
results of its own from new carries. The last iteration has no next one, and is written out behind
the loop.
"""

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.machine import function_of, mesh_of
from collir.dialects.nested import RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.ahead import chain_ahead, start_early, steps_ahead
from collir.ir.calls import callees_first, calls_in, inline_call
from collir.ir.loops import repeats_in
from collir.ir.names import set_name
from collir.ir.roles import pass_role
from collir.ir.steps import is_free
from collir.layout import Mesh
from collir.layout.coll import CONCAT, PAD, RESHAPE
from collir.layout.sizes import formula_of
from collir.layout.steps import AHEAD
from collir.transforms.instantiation import fix_parameters
from collir.transforms.loops.unrolling import StepsBefore, unroll


def rotate(loop: RepeatOp) -> None:
    """Put the steps of a loop that are ahead into the iteration before, in place.

    If the number of iterations is a formula, its parameters get the values that they have.
    """
    if not steps_ahead(loop):
        return
    function = function_of(loop)
    assert function is not None
    fix_parameters(function, formula_of(loop.times).parameters)
    if loop.times == 1:
        unroll(loop)
        return
    split = _Split.of(loop)
    if split.carried:
        _Rotation(loop, split).run()
    else:  # nothing needs the steps ahead
        for op in steps_ahead(loop):
            del op.properties[AHEAD.name]


def rotate_all(root: Operation) -> None:
    """Rotate all loops in an operation, inner loops first, in place.

    A call that gives a value to a parameter which its callee loses is inlined. Callees of such
    gradients are not rotated.
    """
    kept = _with_parameters_in_place(root) if isinstance(root, ModuleOp) else set[FuncOp]()
    for loop in reversed(repeats_in(root)):
        if function_of(loop) not in kept:
            rotate(loop)


def _with_parameters_in_place(module: ModuleOp) -> set[FuncOp]:
    """Inline calls that give values to parameters fixed by the rotation.

    Return the functions whose parameters have to stay.
    """
    fixed: dict[FuncOp, set[str]] = {}
    kept: set[FuncOp] = set()
    for function in callees_first(module):
        for call in list(calls_in(function)):
            callee = call.function()
            if callee is None or fixed.get(callee, set()).isdisjoint(call.values):
                continue
            if call.sought:
                kept.add(callee)
            else:
                _ = inline_call(call, function)
        loops = filter(steps_ahead, repeats_in(function))
        fixed[function] = {name for x in loops for name in formula_of(x.times).parameters}
    return kept


class _Split:
    """The body of a loop in two parts: the ahead steps with all that they need, and the rest.

    Attributes:
        chain: the steps that are ahead, and the steps that feed them.
        rest: the operations of the iteration itself. Views in the chain are here too, if the rest
            needs them.
        carried: the values of the chain that the rest needs, which become carries.
    """

    def __init__(self, chain: list[DistOp], rest: list[Operation], carried: list[SSAValue]):
        self.chain, self.rest, self.carried = chain, rest, carried

    @staticmethod
    def of(loop: RepeatOp) -> "_Split":
        """Return the parts of the body of a loop."""
        mesh, ops = mesh_of(loop), list(loop.body.block.ops)
        chain = chain_ahead(loop)
        ahead = set[Operation](chain)
        rest = {op for op in ops[:-1] if op not in ahead}
        carried: dict[SSAValue, None] = {}
        needed = [operand for op in (*rest, ops[-1]) for operand in op.operands]
        while needed:
            value = needed.pop()
            if value.owner not in ahead:
                continue
            if _is_view(value, mesh):
                assert isinstance(value.owner, DistOp)
                rest.add(value.owner)
                needed += value.owner.operands
            else:
                carried[value] = None
        results = (result for op in chain for result in op.results)
        in_order = [op for op in ops if op in rest]
        return _Split(chain, in_order, [value for value in results if value in carried])


def _is_view(value: SSAValue, mesh: Mesh) -> bool:
    op = value.owner
    return isinstance(op, DistOp) and is_free(op, mesh)


class _Rotation:
    """The parts of one rotated loop, put in front of it."""

    def __init__(self, loop: RepeatOp, split: _Split):
        self.loop, self.split = loop, split
        self.before = StepsBefore(loop)
        first, second = len(loop.carried), len(loop.carried) + len(loop.sliced)
        args = loop.body.block.args
        self.invariants: dict[SSAValue, SSAValue] = dict(
            zip(args[second:], loop.invariant, strict=True)
        )
        slices = dict(zip(args[first:second], loop.sliced, strict=True))
        ops = (*split.rest, loop.body.block.last_op)
        now = {operand for op in ops if op is not None for operand in op.operands}
        following = {operand for op in split.chain for operand in op.operands}
        self.now = {arg: x for arg, x in slices.items() if arg in now}
        self.following = {arg: x for arg, x in slices.items() if arg in following}

    def run(self) -> None:
        loop, split, order = self.loop, self.split, self.loop.order
        known: dict[SSAValue, SSAValue] = dict(self.invariants)
        known |= {arg: self.before.slice(x, order[0]) for arg, x in self.following.items()}
        for op in split.chain:  # the loop waits for them anyway
            copy = op.clone(known)
            copy.properties.pop(AHEAD.name, None)
            self.before.insert(copy)
        results = self._rotated([known[value] for value in split.carried]).results
        carries, stacks = len(loop.carried), len(loop.yielded) - len(loop.carried)
        values: dict[SSAValue, SSAValue] = dict(self.invariants)
        values |= zip((*loop.carries, *split.carried), results, strict=False)
        values |= {arg: self.before.slice(x, order[-1]) for arg, x in self.now.items()}
        for op in split.rest:
            self.before.insert(op.clone(values))
        last = [values[value] for value in loop.yielded]
        rows = results[len(results) - stacks :]
        joined = [self._joined(*pair) for pair in zip(rows, last[carries:], strict=True)]
        for result, value in zip(loop.results, [*last[:carries], *joined], strict=True):
            if value not in loop.operands:
                set_name(value, result.name_hint or value.name_hint)
                pass_role(result, value)
            result.replace_all_uses_with(value)
        assert loop.parent is not None
        loop.parent.erase_op(loop)

    def _rotated(self, known: list[SSAValue]) -> RepeatOp:
        """Put the loop without its last iteration in front of it, and return it.

        Args:
            known: the values that are ahead of the first iteration.
        """
        loop, split = self.loop, self.split
        first_rows, last_rows = {"low": 0, "high": -1}, {"low": -1, "high": 0}
        if loop.is_reverse:
            first_rows, last_rows = last_rows, first_rows
        sliced = [
            self.before.step(PAD, [x], dim=0, value=0.0, **rows)
            for slices, rows in ((self.now, first_rows), (self.following, last_rows))
            for x in slices.values()
        ]
        groups = [*loop.carried, *known], sliced, [*loop.invariant]
        rotated = loop.rebuilt(groups, self._body(), loop.times - 1)
        self.before.insert(rotated)
        carries = [*loop.results[: len(loop.carried)], *split.carried]
        for result, named in zip(rotated.results, carries, strict=False):
            set_name(result, named.name_hint)
            pass_role(named, result)
        return rotated

    def _body(self) -> Block:
        """Return the body of the rotated loop: what is ahead first, then the rest."""
        loop, split = self.loop, self.split
        here = [*loop.carries, *split.carried, *self.now]
        old = [*here, *self.following, *self.invariants]
        body = Block(arg_types=[arg.type for arg in old])
        for value, arg in zip(old, body.args, strict=True):
            set_name(arg, value.name_hint)
        first = len(old) - len(self.invariants)
        invariants: dict[SSAValue, SSAValue] = dict(
            zip(self.invariants, body.args[first:], strict=True)
        )
        ahead: dict[SSAValue, SSAValue] = dict(invariants)
        ahead |= zip(self.following, body.args[len(here) :], strict=False)
        for op in split.chain:
            copy = op.clone(ahead)
            start_early(copy)
            body.add_op(copy)
        values: dict[SSAValue, SSAValue] = dict(invariants)
        values |= zip(here, body.args, strict=False)
        for op in split.rest:
            body.add_op(op.clone(values))
        yielded = [values[value] for value in loop.yielded]
        carries = len(loop.carried)
        of_next = [ahead[value] for value in split.carried]
        end = YieldOp.create(operands=[*yielded[:carries], *of_next, *yielded[carries:]])
        last = loop.body.block.last_op
        end.location = end.location if last is None else last.location
        body.add_op(end)
        return body

    def _joined(self, rows: SSAValue, last: SSAValue) -> SSAValue:
        """Return the rows of a stack with that of the last iteration at its place."""
        row = self.before.step(RESHAPE, [last], shape=(1, *dist_type(last).shape))
        parts = [row, rows] if self.loop.is_reverse else [rows, row]
        return self.before.step(CONCAT, parts, dim=0)


# ---------------------------------------------------------------------------------------------
# Modules as they run
# ---------------------------------------------------------------------------------------------
