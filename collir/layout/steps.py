"""The table of steps: one row for every operation on distributed tensors.

A row says how an operation is written, how it is typed, what it does to the states of its
sub-axes, whether it sends, and where its result lies in memory. The dialect's operations, the
syntax, the searches and the targets are derived from the table, so that no other module lists the
operations with a certain property. The oracles (``collir.semantics``) do not use it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from collir.layout import gradients, rules
from collir.layout.errors import LayoutError
from collir.layout.expansions import Expansion
from collir.layout.gradients import Gradient
from collir.layout.mesh import Mesh
from collir.layout.operation_table import OperationTable
from collir.layout.sizes import Size
from collir.layout.structure import Structure
from collir.layout.types import DistType, Place, State, same_with_formulas

# ---------------------------------------------------------------------------------------------
# How a step is written
# ---------------------------------------------------------------------------------------------


class ArgumentKind(Enum):
    """The kind of an argument, which follows the keyword of a clause."""

    AXES = auto()
    """Sub-axes in order: a tuple of names."""
    PLACE = auto()
    """A coordinate on each of some sub-axes: a ``Place``."""
    INTEGER = auto()
    COORDINATE = auto()
    """An integer that counts coordinates of sub-axes, and is no dimension."""
    SIZES = auto()
    """Integers in order: a tuple."""
    NUMBER = auto()
    NAME = auto()
    FLAG = auto()
    """No value: the keyword alone, which means True."""
    TYPE = auto()
    """The type of a tensor: a ``DistType``."""
    TEXT = auto()
    """A text in quotes, written without a keyword before the operands."""


Argument = tuple[str, ...] | Place | int | tuple[int, ...] | float | str | DistType
"""The value of an argument; its Python type depends on its ``ArgumentKind``."""

Arguments = Mapping[str, Argument]
"""The arguments of a step by the names of their parameters."""


@dataclass(frozen=True)
class Parameter:
    """An argument that a step takes, written ``keyword argument`` and kept in property ``name``.

    Attributes:
        default: the value if it is not written; None if it must be written.
        hint: True if it says how the step is carried out and not what it does. It may then be left
            out, and the typing rule does not take it.
        of_dims: what it has for each dimension of the result: its size, the dimension of the
            operand that it is, or nothing.
    """

    keyword: str
    name: str
    kind: ArgumentKind
    default: int | None = None
    hint: bool = False
    of_dims: Literal["size", "number", ""] = ""

    @property
    def required(self) -> bool:
        """True if it must be written."""
        return self.default is None and not self.hint and self.kind is not ArgumentKind.FLAG


OVER = Parameter("over", "axes", ArgumentKind.AXES)
DIM = Parameter("dim", "dim", ArgumentKind.INTEGER)
TO = Parameter("to", "to", ArgumentKind.TYPE)
AT = Parameter("at", "place", ArgumentKind.PLACE)
USING = Parameter("using", "algorithm", ArgumentKind.NAME, hint=True)
ASYNC = Parameter("async", "async", ArgumentKind.FLAG, hint=True)
AHEAD = Parameter("ahead", "ahead", ArgumentKind.FLAG, hint=True)

# ---------------------------------------------------------------------------------------------
# What a step does
# ---------------------------------------------------------------------------------------------

Shape = tuple[int, ...]
"""The shape of a device's buffer of a tensor."""


def reads_all(operands: Sequence[int], written: int) -> int:
    """Return the bytes moved by a step that reads its operands and writes its result."""
    return written + sum(operands)


def reads_what_it_writes(operands: Sequence[int], written: int) -> int:
    """Return the bytes moved by a step that reads no more of an operand than it writes."""
    return written + min(written, *operands)


def copies(operands: Sequence[int], written: int) -> int:
    """Return the bytes moved by a step that copies the operands that are not in place yet."""
    return 2 * sum(operands)


@dataclass(frozen=True, eq=False, kw_only=True)
class StepKind:
    """A row of the table.

    Attributes:
        name: the name in ``.coll`` files, and after the dialect's name in MLIR.
        rule: the typing rule. It takes a mesh, the operand types (as one sequence if the number of
            operands is free), and the arguments that are no hints, in order; it returns the type
            of the result, or raises ``LayoutError``.
        parameters: the parameters in the order in which they are written.
        operands: the number of operands; None for any number from 1.
        before, after: the states of its sub-axes in operand and result; None if it does not lead
            from one state to another.
        sends: True if devices send each other data.
        placeholder: True if a search has to replace it by other steps.
        computes: True if it is a computation that takes time and that all later steps wait for.
        algorithms: the names that ``using`` accepts.
        by_layout: True if what it does to the tensor depends on the layout of its operand, so that
            no other step of its value may change places with it.
        fixed: True if no pass merges it with an equal step, moves a step through it, or folds it.
        is_view: True if the result is the memory of the first operand, whatever their shapes.
        packs: True if the result is the concatenation of the operands along argument ``dim``.
        assembles: True if the result is, on each device, the one operand that the device holds.
        elementwise: True if each element of the result depends on the elements of the operands at
            its place alone, of a row without a structure.
        place: a function of the operand's local shape and the arguments. It returns the offset of
            the result in the operand's memory, in elements, or None if the result has memory of
            its own. Without the function, only a view has no memory of its own.
        moved: a function of the bytes of the operands and the result that returns the bytes read
            and written.
        identity: a function of the types of operand and result and the arguments that returns
            whether the step changes nothing. Without the function, it always changes something.
        structure: a function of the operand types and the arguments that returns how dimensions
            relate, from which rule and work follow; None if the rule is its own.
        gradient: the cotangents of the operands; None if it has none, or is ``layout_only``: the
            cotangent is then that of the result.
        undone: a function of the arguments that returns those of the same step that undoes it, or
            None; without the function, no step undoes it.
        expansion: steps that do the same; None if it is no composite of others.
        aliases: what it is called elsewhere, for suggestions.
    """

    name: str
    rule: Callable[..., DistType]
    parameters: tuple[Parameter, ...] = ()
    operands: int | None = 1
    before: State | None = None
    after: State | None = None
    sends: bool = False
    placeholder: bool = False
    computes: bool = False
    algorithms: tuple[str, ...] = ()
    by_layout: bool = False
    fixed: bool = False
    is_view: bool = False
    packs: bool = False
    assembles: bool = False
    elementwise: bool = False
    place: Callable[[Shape, Arguments], int | None] | None = None
    moved: Callable[[Sequence[int], int], int] = reads_all
    identity: Callable[[DistType, DistType, Arguments], bool] | None = None
    structure: Callable[[Sequence[DistType], Arguments], Structure] | None = None
    gradient: Gradient | None = None
    undone: Callable[[Arguments], Arguments | None] | None = None
    expansion: Expansion | None = None
    aliases: tuple[str, ...] = ()

    def result_type(
        self, mesh: Mesh, operands: Sequence[DistType], arguments: Arguments
    ) -> DistType:
        """Return the type of the result.

        Raises:
            LayoutError: the step is not well typed, it names no sub-axis, or there is no such
                algorithm.
        """
        if self.is_over_nothing(arguments):
            raise self._over_nothing()
        return self._typed(mesh, operands, arguments)

    def is_over_nothing(self, arguments: Arguments) -> bool:
        """Return whether arguments name no sub-axis although the step takes some."""
        return () in (arguments.get(OVER.name), arguments.get(AT.name))

    def check_over_nothing(
        self, mesh: Mesh, operands: Sequence[DistType], arguments: Arguments
    ) -> None:
        """Check a step whose axes all have size 1, so that its result is its operand.

        Raises:
            LayoutError: another argument is wrong, or the step is not its operand.
        """
        if [self._typed(mesh, operands, arguments)] != list(operands):
            raise self._over_nothing()

    def _over_nothing(self) -> LayoutError:
        return LayoutError(f"{self.name} needs at least one sub-axis")

    def _typed(self, mesh: Mesh, operands: Sequence[DistType], arguments: Arguments) -> DistType:
        """Return the type of the result; sub-axes may be missing."""
        if self.operands is None and not operands:
            raise LayoutError(f"{self.name} needs at least one operand")
        operand_types = [operands] if self.operands is None else operands
        needed = [
            parameter.name in arguments
            if parameter.kind is ArgumentKind.FLAG
            else arguments[parameter.name]
            for parameter in self.parameters
            if not parameter.hint
        ]
        result = self.rule(mesh, *operand_types, *needed)
        algorithm = arguments.get(USING.name)
        if algorithm is not None and algorithm not in self.algorithms:
            raise LayoutError(
                f"there is no algorithm '{algorithm}' for {self.name}: "
                f"use {', '.join(self.algorithms)}",
                parameter=USING.name,
            )
        return result

    def place_in_operand(self, mesh: Mesh, operand: DistType, arguments: Arguments) -> int | None:
        """Return where in the memory of the first operand the result starts, in elements.

        None if the result has memory of its own.
        """
        if self.is_view:
            return 0
        return None if self.place is None else self.place(operand.local_shape(mesh), arguments)

    def is_free(self, mesh: Mesh, operand: DistType, arguments: Arguments) -> bool:
        """Return whether the step is only another view of its operand, for which nothing waits."""
        return not self.computes and self.place_in_operand(mesh, operand, arguments) is not None

    # --- derived properties -------------------------------------------------------------------

    @property
    def local(self) -> bool:
        """True if every device carries it out by itself."""
        return not self.sends and not self.placeholder

    @property
    def layout_only(self) -> bool:
        """True if it changes the layout of the tensor and not its values or shape."""
        return not self.by_layout and (not self.local or self.before is not None)

    @property
    def reduces(self) -> bool:
        """True for a collective that reduces."""
        return self.sends and self.before == "partial"

    @property
    def shards(self) -> bool:
        """True if its operand is not sharded and its result is."""
        return self.after == "sharded" != self.before

    @property
    def hides(self) -> bool:
        """True if gradients do not see what its result depends on."""
        return self.gradient is gradients.nothing

    @property
    def gathers(self) -> bool:
        """True if its operand is sharded and its result is not."""
        return self.before == "sharded" != self.after

    @property
    def exchanges(self) -> bool:
        """True if it moves shards from one dimension to another."""
        return self.before == self.after == "sharded"

    @property
    def pairs(self) -> bool:
        """True if a device sends to at most one other device, and receives from one."""
        return self.sends and self.before == self.after != "sharded"

    @property
    def ordered(self) -> bool:
        """True if the order of its sub-axes matters."""
        return "sharded" in (self.before, self.after)

    @property
    def is_searched(self) -> bool:
        """True if searches may use it in programs.

        Such a step takes sub-axes along the way from partial to replicated, and has no parameters
        but sub-axes and dimensions.
        """
        needed = [parameter for parameter in self.parameters if not parameter.hint]
        dims = sum(parameter.kind is ArgumentKind.INTEGER for parameter in needed)
        return (
            self.sends
            and (self.before, self.after) in _SEARCHED
            and dims == (2 if self.exchanges else self.ordered)
            and OVER in needed
            and len(needed) == dims + 1
        )

    @property
    def may_be_async(self) -> bool:
        """True if it may be ``async``."""
        return ASYNC in self.parameters

    @property
    def joins(self) -> bool:
        """True if it makes one tensor of several, and is no operation of a model."""
        several = self.operands != 1 and self.structure is None
        return several and not self.computes and not self.by_layout

    @property
    def maps(self) -> bool:
        """True for a local step on one tensor that changes more than its layout and may move; no
        operation of a model does."""
        alone = self.local and self.operands == 1 and not (self.by_layout or self.fixed)
        return alone and not self.layout_only and self.structure is None


_SEARCHED: set[tuple[State | None, State | None]] = {
    ("partial", "replicated"),
    ("partial", "sharded"),
    ("partial", "root"),
    ("root", "replicated"),
    ("root", "sharded"),
    ("sharded", "replicated"),
    ("sharded", "root"),
    ("sharded", "sharded"),
}
"""The pairs of states (before, after) of steps that searches may use."""

STEPS: OperationTable[StepKind] = OperationTable("STEPS", __name__)
"""The rows of the coll dialect by name, in the order in which they are listed to users."""


def row(kind: StepKind, table: dict[str, StepKind] = STEPS) -> StepKind:
    """Add a row to a table (``STEPS``, if none is given), and return it.

    Raises:
        ValueError: there is one of that name.
    """
    if kind.name in table:
        raise ValueError(f"there is a step {kind.name} already")
    table[kind.name] = kind
    return kind


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


# ---------------------------------------------------------------------------------------------
# Where results lie in memory, and which steps change nothing
# ---------------------------------------------------------------------------------------------


def _transposed(shape: Shape, arguments: Arguments) -> int | None:
    """Return offset 0 if a transpose exchanges only dimensions of local size 1, else None."""
    order = arguments["order"]
    assert isinstance(order, tuple)
    moved = [dim for dim in order if isinstance(dim, int) and shape[dim] != 1]
    return 0 if moved == sorted(moved) else None


def _cut_off(shape: Shape, arguments: Arguments) -> int | None:
    """Return the offset of a pad that only cuts off and whose result is contiguous, else None."""
    dim, low, high = (arguments[name] for name in ("dim", "low", "high"))
    assert isinstance(dim, int) and isinstance(low, int) and isinstance(high, int)
    if low > 0 or high > 0 or math.prod(shape[:dim]) != 1:
        return None
    return -low * math.prod(shape[dim + 1 :])


def _same_type(x: DistType, y: DistType, arguments: Arguments) -> bool:
    return same_with_formulas(x, y)


def _always(arguments: Arguments, **numbers: int) -> bool:
    """Return whether arguments are these numbers for all values of a function's parameters."""
    return all(
        arguments[name] == number and not isinstance(arguments[name], Size)
        for name, number in numbers.items()
    )


def _in_order(x: DistType, y: DistType, arguments: Arguments) -> bool:
    return arguments["order"] == tuple(range(len(x.dims)))


# ---------------------------------------------------------------------------------------------
# The rows
# ---------------------------------------------------------------------------------------------

ALL_REDUCE = row(
    StepKind(
        name="all_reduce",
        aliases=("psum", "all_sum"),
        rule=rules.all_reduce,
        parameters=(OVER, USING, ASYNC, AHEAD),
        before="partial",
        after="replicated",
        sends=True,
        algorithms=(
            "ring",
            "recursive_doubling",
            "halving_doubling",
            "binary_tree",
            "double_binary_tree",
            "direct",
        ),
    )
)
REDUCE = row(
    StepKind(
        name="reduce",
        rule=rules.reduce,
        parameters=(OVER, USING, ASYNC, AHEAD),
        before="partial",
        after="root",
        sends=True,
        algorithms=("binomial", "halving_doubling", "chain", "binary_tree", "double_binary_tree"),
    )
)
BROADCAST = row(
    StepKind(
        name="broadcast",
        rule=rules.broadcast,
        parameters=(OVER, USING, ASYNC, AHEAD),
        before="root",
        after="replicated",
        sends=True,
        algorithms=("binomial", "scatter_all_gather", "chain", "binary_tree", "double_binary_tree"),
    )
)
REDUCE_SCATTER = row(
    StepKind(
        name="reduce_scatter",
        rule=rules.reduce_scatter,
        parameters=(OVER, DIM, USING, ASYNC, AHEAD),
        before="partial",
        after="sharded",
        sends=True,
        algorithms=("ring", "recursive_halving", "pat", "pairwise", "direct"),
    )
)
ALL_GATHER = row(
    StepKind(
        name="all_gather",
        rule=rules.all_gather,
        parameters=(OVER, DIM, USING, ASYNC, AHEAD),
        before="sharded",
        after="replicated",
        sends=True,
        algorithms=("ring", "recursive_doubling", "bruck", "pat", "direct"),
    )
)
SCATTER = row(
    StepKind(
        name="scatter",
        rule=rules.scatter,
        parameters=(OVER, DIM, USING, ASYNC, AHEAD),
        before="root",
        after="sharded",
        sends=True,
        algorithms=("binomial", "direct"),
    )
)
GATHER = row(
    StepKind(
        name="gather",
        rule=rules.gather,
        parameters=(OVER, DIM, USING, ASYNC, AHEAD),
        before="sharded",
        after="root",
        sends=True,
        algorithms=("binomial", "direct"),
    )
)
ALL_TO_ALL = row(
    StepKind(
        name="all_to_all",
        rule=rules.all_to_all,
        parameters=(
            OVER,
            Parameter("dim", "source", ArgumentKind.INTEGER),
            Parameter("to", "target", ArgumentKind.INTEGER),
            USING,
            ASYNC,
            AHEAD,
        ),
        before="sharded",
        after="sharded",
        sends=True,
        algorithms=("pairwise", "bruck", "direct"),
    )
)
SEND = row(
    StepKind(
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
)


def _shift_back(arguments: Arguments) -> Arguments | None:
    """Return the arguments of the shift that undoes one; an open shift loses blocks."""
    distance = arguments["distance"]
    assert isinstance(distance, int)
    back = {name: x for name, x in arguments.items() if name not in (ASYNC.name, AHEAD.name)}
    return None if "open" in arguments else {**back, "distance": -distance}


SHIFT = row(
    StepKind(
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
)
PERMUTE = row(
    StepKind(name="permute", rule=rules.permute, parameters=(TO,), sends=True, identity=_same_type)
)
REDISTRIBUTE = row(
    StepKind(
        name="redistribute",
        rule=rules.redistribute,
        parameters=(TO,),
        placeholder=True,
        identity=_same_type,
    )
)
SLICE = row(
    StepKind(
        name="slice",
        rule=rules.slice,
        parameters=(OVER, DIM),
        before="replicated",
        after="sharded",
        moved=reads_what_it_writes,
    )
)
KEEP_ROOT = row(
    StepKind(
        name="keep_root",
        rule=rules.keep_root,
        parameters=(OVER,),
        before="replicated",
        after="root",
        is_view=True,
    )
)
KEEP = row(
    StepKind(
        name="keep",
        rule=rules.keep,
        parameters=(AT,),
        before="replicated",
        after="root",
        is_view=True,
    )
)
PART = row(
    StepKind(
        name="part",
        rule=rules.part,
        parameters=(OVER, Parameter("at", "coordinate", ArgumentKind.COORDINATE), DIM),
        by_layout=True,
        is_view=True,
    )
)
ASSEMBLE = row(
    StepKind(
        name="assemble",
        rule=rules.assemble,
        parameters=(OVER, DIM),
        operands=None,
        by_layout=True,
        assembles=True,
        moved=lambda operands, written: 2 * written,
    )
)
MASK = row(
    StepKind(
        name="mask",
        rule=rules.mask,
        parameters=(OVER, Parameter("op", "reduction", ArgumentKind.NAME)),
        before="replicated",
        after="partial",
        elementwise=True,
    )
)
TERMS = row(
    StepKind(
        name="terms",
        rule=rules.terms,
        parameters=(OVER, DIM),
        by_layout=True,
        is_view=True,
    )
)
SPLIT = row(
    StepKind(
        name="split",
        rule=rules.split,
        gradient=gradients.reshaped,
        parameters=(DIM, Parameter("into", "sizes", ArgumentKind.SIZES)),
        is_view=True,
    )
)
MERGE = row(
    StepKind(
        name="merge",
        rule=rules.merge,
        gradient=gradients.reshaped,
        parameters=(DIM,),
        is_view=True,
    )
)
RESHAPE = row(
    StepKind(
        name="reshape",
        rule=rules.reshape,
        gradient=gradients.reshaped,
        parameters=(Parameter("to", "shape", ArgumentKind.SIZES, of_dims="size"),),
        is_view=True,
        identity=_same_type,
    )
)
TRANSPOSE = row(
    StepKind(
        name="transpose",
        rule=rules.transpose,
        gradient=gradients.transposed,
        parameters=(Parameter("order", "order", ArgumentKind.SIZES, of_dims="number"),),
        place=_transposed,
        identity=_in_order,
    )
)
PAD = row(
    StepKind(
        name="pad",
        rule=rules.pad,
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
)
SCALE = row(
    StepKind(
        name="scale",
        rule=rules.scale,
        gradient=gradients.scaled,
        parameters=(Parameter("by", "factor", ArgumentKind.NUMBER),),
        elementwise=True,
        identity=lambda x, y, arguments: _always(arguments, factor=1),
    )
)
CAST = row(
    StepKind(
        name="cast",
        rule=rules.cast,
        gradient=gradients.cast_back,
        parameters=(Parameter("to", "dtype", ArgumentKind.NAME),),
        elementwise=True,
        identity=_same_type,
    )
)
ADD = row(
    StepKind(name="add", rule=rules.add, gradient=gradients.same, operands=2, elementwise=True)
)
CONCAT = row(
    StepKind(
        name="concat",
        rule=rules.concat,
        gradient=gradients.part_of,
        parameters=(DIM,),
        operands=None,
        packs=True,
        moved=copies,
    )
)
COMPUTE = row(
    StepKind(
        name="compute",
        rule=rules.compute,
        parameters=(Parameter("flops", "flops", ArgumentKind.NUMBER),),
        operands=None,
        computes=True,
        is_view=True,
    )
)
BARRIER = row(
    StepKind(name="barrier", rule=rules.barrier, gradient=gradients.same, is_view=True, fixed=True)
)
