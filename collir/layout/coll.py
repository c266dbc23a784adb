"""The rows of the coll dialect: collectives, changes of layout, and local operations."""

import math
from collections.abc import Sequence

from collir.algorithms.table import names_of
from collir.layout import gradients, local_rules, rearrangements, rules
from collir.layout.operation_table import OperationTable
from collir.layout.sizes import same_key, same_size
from collir.layout.steps import (
    AHEAD,
    ASYNC,
    AT,
    DIM,
    OVER,
    TO,
    USING,
    ArgumentKind,
    Arguments,
    Parameter,
    Shape,
    StepKind,
    copies,
    reads_what_it_writes,
    rows_in,
)
from collir.layout.structure import Linear, map_structure
from collir.layout.types import DistType, State

STEPS: OperationTable[StepKind] = OperationTable("STEPS", __name__)
"""The rows of the coll dialect by name, in the order in which they are listed to users."""


row = rows_in(STEPS, StepKind)

# ---------------------------------------------------------------------------------------------
# Where results lie in memory, and which steps change nothing
# ---------------------------------------------------------------------------------------------


def _transposed(shape: Shape, arguments: Arguments) -> int | None:
    """Return offset 0 if a transpose exchanges only dimensions of local size 1, else None."""
    order = arguments["order"]
    assert isinstance(order, tuple)
    moved = [dim for dim in order if isinstance(dim, int) and not same_size(shape[dim], 1)]
    return 0 if moved == sorted(moved) else None


def _cut_off(shape: Shape, arguments: Arguments) -> int | None:
    """Return the offset of a pad that only cuts off and whose result is contiguous, else None."""
    dim, low, high = (arguments[name] for name in ("dim", "low", "high"))
    assert isinstance(dim, int) and isinstance(low, int) and isinstance(high, int)
    if low > 0 or high > 0 or not same_size(math.prod(shape[:dim]), 1):
        return None
    return -low * math.prod(shape[dim + 1 :])


def _same_type(x: DistType, y: DistType, arguments: Arguments) -> bool:
    return x == y


def _always(arguments: Arguments, **numbers: int) -> bool:
    """Return whether arguments are these numbers for all values of a function's parameters."""
    return all(same_key(arguments[name], number) for name, number in numbers.items())


def _in_order(x: DistType, y: DistType, arguments: Arguments) -> bool:
    return arguments["order"] == tuple(range(len(x.dims)))


# ---------------------------------------------------------------------------------------------
# The rows
# ---------------------------------------------------------------------------------------------

ALL_REDUCE = row(
    name="all_reduce",
    aliases=("psum", "all_sum"),
    rule=rules.all_reduce,
    parameters=(OVER, USING, ASYNC, AHEAD),
    before="partial",
    after="replicated",
    sends=True,
    algorithms=names_of("all_reduce"),
)
REDUCE = row(
    name="reduce",
    rule=rules.reduce,
    parameters=(OVER, USING, ASYNC, AHEAD),
    before="partial",
    after="root",
    sends=True,
    algorithms=names_of("reduce"),
)
BROADCAST = row(
    name="broadcast",
    rule=rules.broadcast,
    parameters=(OVER, USING, ASYNC, AHEAD),
    before="root",
    after="replicated",
    sends=True,
    algorithms=names_of("broadcast"),
)
REDUCE_SCATTER = row(
    name="reduce_scatter",
    rule=rules.reduce_scatter,
    parameters=(OVER, DIM, USING, ASYNC, AHEAD),
    before="partial",
    after="sharded",
    sends=True,
    algorithms=names_of("reduce_scatter"),
)
ALL_GATHER = row(
    name="all_gather",
    rule=rules.all_gather,
    parameters=(OVER, DIM, USING, ASYNC, AHEAD),
    before="sharded",
    after="replicated",
    sends=True,
    algorithms=names_of("all_gather"),
)
SCATTER = row(
    name="scatter",
    rule=rules.scatter,
    parameters=(OVER, DIM, USING, ASYNC, AHEAD),
    before="root",
    after="sharded",
    sends=True,
    algorithms=names_of("scatter"),
)
GATHER = row(
    name="gather",
    rule=rules.gather,
    parameters=(OVER, DIM, USING, ASYNC, AHEAD),
    before="sharded",
    after="root",
    sends=True,
    algorithms=names_of("gather"),
)
ALL_TO_ALL = row(
    name="all_to_all",
    rule=rules.all_to_all,
    parameters=(
        OVER,
        Parameter("dim", "source", ArgumentKind.INTEGER, is_dim=True),
        Parameter("to", "target", ArgumentKind.INTEGER, is_dim=True),
        USING,
        ASYNC,
        AHEAD,
    ),
    before="sharded",
    after="sharded",
    sends=True,
    algorithms=names_of("all_to_all"),
)
SEND = row(
    name="send",
    rule=rules.send,
    parameters=(
        OVER,
        Parameter("from", "sender", ArgumentKind.COORDINATE),
        Parameter("to", "receiver", ArgumentKind.COORDINATE),
        ASYNC,
        AHEAD,
    ),
    before="root",
    after="root",
    sends=True,
)


def _shift_back(arguments: Arguments) -> Arguments | None:
    """Return the arguments of the shift that undoes one; an open shift loses blocks."""
    distance = arguments["distance"]
    assert isinstance(distance, int)
    back = {name: x for name, x in arguments.items() if name not in (ASYNC.name, AHEAD.name)}
    return None if "open" in arguments else {**back, "distance": -distance}


SHIFT = row(
    name="shift",
    rule=rules.shift,
    parameters=(
        OVER,
        Parameter("by", "distance", ArgumentKind.COORDINATE),
        Parameter("open", "open", ArgumentKind.FLAG),
        ASYNC,
        AHEAD,
    ),
    sends=True,
    by_layout=True,
    gradient=gradients.shifted_back,
    undone=_shift_back,
)
PERMUTE = row(name="permute", rule=rules.permute, parameters=(TO,), sends=True, identity=_same_type)
REDISTRIBUTE = row(
    name="redistribute",
    rule=rules.redistribute,
    parameters=(TO,),
    placeholder=True,
    identity=_same_type,
)
SLICE = row(
    name="slice",
    rule=rules.slice,
    parameters=(OVER, DIM),
    before="replicated",
    after="sharded",
    moved=reads_what_it_writes,
)
KEEP_ROOT = row(
    name="keep_root",
    rule=rules.keep_root,
    parameters=(OVER,),
    before="replicated",
    after="root",
    is_view=True,
)
KEEP = row(
    name="keep",
    rule=rules.keep,
    parameters=(AT,),
    before="replicated",
    after="root",
    is_view=True,
)
PART = row(
    name="part",
    rule=rules.part,
    parameters=(OVER, Parameter("at", "coordinate", ArgumentKind.COORDINATE), DIM),
    by_layout=True,
    is_view=True,
)
ASSEMBLE = row(
    name="assemble",
    rule=rules.assemble,
    parameters=(OVER, DIM),
    operands=None,
    by_layout=True,
    assembles=True,
    moved=lambda operands, written: 2 * written,
)
MASK = row(
    name="mask",
    rule=rules.mask,
    parameters=(OVER, Parameter("op", "reduction", ArgumentKind.NAME)),
    before="replicated",
    after="partial",
    elementwise=True,
)
TERMS = row(
    name="terms",
    rule=rules.terms,
    no_gradient="terms depend on how a value was made; reduce it in their place",
    parameters=(OVER, DIM),
    by_layout=True,
    is_view=True,
)
SPLIT = row(
    name="split",
    rule=local_rules.split,
    rearranges=rearrangements.split,
    gradient=gradients.reshaped,
    parameters=(DIM, Parameter("into", "sizes", ArgumentKind.SIZES)),
    is_view=True,
)
MERGE = row(
    name="merge",
    rule=local_rules.merge,
    rearranges=rearrangements.merged,
    gradient=gradients.reshaped,
    parameters=(DIM,),
    is_view=True,
)
RESHAPE = row(
    name="reshape",
    rule=local_rules.reshape,
    rearranges=rearrangements.reshaped,
    gradient=gradients.reshaped,
    parameters=(Parameter("to", "shape", ArgumentKind.SIZES, of_dims="size"),),
    is_view=True,
    identity=_same_type,
)
TRANSPOSE = row(
    name="transpose",
    rule=local_rules.transpose,
    rearranges=rearrangements.transposed,
    gradient=gradients.transposed,
    parameters=(Parameter("order", "order", ArgumentKind.SIZES, is_dim=True, of_dims="number"),),
    place=_transposed,
    identity=_in_order,
)
PAD = row(
    name="pad",
    rule=local_rules.pad,
    rearranges=rearrangements.padded,
    gradient=gradients.cut_out,
    parameters=(
        DIM,
        Parameter("low", "low", ArgumentKind.INTEGER, default=0),
        Parameter("high", "high", ArgumentKind.INTEGER, default=0),
        Parameter("value", "value", ArgumentKind.NUMBER, default=0),
    ),
    place=_cut_off,
    moved=reads_what_it_writes,
    identity=lambda x, y, arguments: _always(arguments, low=0, high=0),
)
SCALE = row(
    name="scale",
    rule=local_rules.scale,
    gradient=gradients.scaled,
    parameters=(Parameter("by", "factor", ArgumentKind.NUMBER),),
    elementwise=True,
    identity=lambda x, y, arguments: _always(arguments, factor=1),
)
CAST = row(
    name="cast",
    rule=local_rules.cast,
    gradient=gradients.cast_back,
    parameters=(Parameter("to", "dtype", ArgumentKind.NAME),),
    elementwise=True,
    identity=_same_type,
)
ADD = row(name="add", rule=local_rules.add, gradient=gradients.same, operands=2, elementwise=True)
CONCAT = row(
    name="concat",
    rule=local_rules.concat,
    rearranges=rearrangements.joined,
    gradient=gradients.part_of,
    parameters=(DIM,),
    operands=None,
    packs=True,
    moved=copies,
)
COMPUTE = row(
    name="compute",
    rule=local_rules.compute,
    parameters=(Parameter("flops", "flops", ArgumentKind.NUMBER),),
    operands=None,
    computes=True,
    is_view=True,
)
BARRIER = row(
    name="barrier",
    rule=local_rules.barrier,
    rearranges=lambda operands, _: map_structure("barrier", operands, Linear.ALL, flops=0),
    gradient=gradients.same,
    is_view=True,
    fixed=True,
)
REINTERPRET = row(
    name="reinterpret",
    rule=local_rules.reinterpret,
    parameters=(TO,),
    is_view=True,
    fixed=True,
    no_gradient="nothing says what the elements of its operand are",
)


# ---------------------------------------------------------------------------------------------
# Rows by what they do
# ---------------------------------------------------------------------------------------------


def collectives_from(state: State) -> list[StepKind]:
    """Return the steps that searches may use on sub-axes in a state."""
    return [kind for kind in STEPS.values() if kind.is_searched and kind.before == state]


def step_between(before: State, after: State) -> StepKind | None:
    """Return the first step that takes sub-axes from one state to another, if there is one."""
    kinds = (kind for kind in STEPS.values() if (kind.before, kind.after) == (before, after))
    return next(kinds, None)


def _local_step(before: State, after: State, parameters: Sequence[Parameter]) -> StepKind | None:
    """Return the local step between two states that needs no parameters but ``parameters``."""
    for kind in STEPS.values():
        needed = {parameter for parameter in kind.parameters if not parameter.hint}
        states = kind.before, kind.after
        if kind.local and states == (before, after) and needed <= set(parameters):
            return kind
    return None


def local_twin(kind: StepKind) -> tuple[StepKind, ...] | None:
    """Return the local steps that equal a reduction on a replicated operand.

    The result is None if ``kind`` is no reduction or no local step equals it, and empty for an
    all_reduce, which does nothing then.
    """
    if not kind.reduces or kind.after is None:
        return None
    if kind.after == "replicated":
        return ()
    twin = _local_step("replicated", kind.after, kind.parameters)
    return twin and (twin,)


def local_inverse(kind: StepKind) -> StepKind | None:
    """Return the local step that turns a collective's result back into its operand, or None."""
    if not kind.sends or kind.before is None or kind.after is None or kind.exchanges:
        return None
    return _local_step(kind.after, kind.before, kind.parameters)
