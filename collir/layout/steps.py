"""The rows of the tables of operations: one for every operation on distributed tensors.

A row says how an operation is written, how it is typed, what it does to the states of its
sub-axes, whether it sends, and where its result lies in memory. The operations of
the dialects, the syntax, the searches and the targets are derived from the tables (``coll`` and
``nn``), so that no other module lists the operations with a certain property. The oracles
(``collir.semantics``) do not use them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, ParamSpec

from collir.layout import gradients
from collir.layout.algorithm_names import AlgorithmName
from collir.layout.errors import LayoutError
from collir.layout.expansions import Expansion
from collir.layout.gradients import Gradient
from collir.layout.mesh import Mesh
from collir.layout.sizes import Size
from collir.layout.structure import Linear, Structure, map_structure
from collir.layout.types import DistType, Place, State

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
        is_dim: True if it is the number of a dimension, or several: these have no formula.
        of_dims: the meaning of its entry for each dimension of the result: a size, the number of a
            dimension of the operand, or nothing.
    """

    keyword: str
    name: str
    kind: ArgumentKind
    default: int | None = None
    hint: bool = False
    is_dim: bool = False
    of_dims: Literal["size", "number", ""] = ""

    @property
    def required(self) -> bool:
        """True if it must be written."""
        return self.default is None and not self.hint and self.kind is not ArgumentKind.FLAG


OVER = Parameter("over", "axes", ArgumentKind.AXES)
DIM = Parameter("dim", "dim", ArgumentKind.INTEGER, is_dim=True)
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
    """Return the bytes moved by a step that copies all operands that are not in place yet."""
    return 2 * sum(operands)


@dataclass(frozen=True, eq=False, kw_only=True)
class StepKind:
    """A row of a table.

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
        rearranges: the same of a step that moves elements and whose rule is its own.
        gradient: the cotangents of the operands; None if it has none, or is ``layout_only``: the
            cotangent is then that of the result.
        no_gradient: why it has no gradient, and what to do about that; may be empty.
        undone: a function from the arguments of a step to the arguments with which a second step of
            the same kind undoes it, or None; without the function, no step undoes it.
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
    rearranges: Callable[[Sequence[DistType], Arguments], Structure] | None = None
    gradient: Gradient | None = None
    no_gradient: str = ""
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
        result = self._typed(mesh, operands, arguments)
        if len(operands) != 1 or not result.agrees(operands[0]):
            raise self._over_nothing()

    def _over_nothing(self) -> LayoutError:
        return LayoutError(f"{self.name} needs at least one sub-axis")

    def _typed(self, mesh: Mesh, operands: Sequence[DistType], arguments: Arguments) -> DistType:
        """Return the type of the result; sub-axes may be missing."""
        if self.operands is None and not operands:
            raise LayoutError(f"{self.name} needs at least one operand")
        for parameter in self.parameters:
            value = arguments.get(parameter.name) if parameter.is_dim else None
            numbers = value if isinstance(value, tuple) else (value,)
            if any(isinstance(number, Size) for number in numbers):
                raise LayoutError(
                    f"{self.name} takes numbers of dimensions, no formulas: write the number",
                    parameter=parameter.name,
                )
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
        if isinstance(algorithm, AlgorithmName):
            if algorithm.collective != self.name:
                raise LayoutError(
                    f"{algorithm} is an algorithm of {algorithm.collective}, and of no {self.name}",
                    parameter=USING.name,
                )
        elif algorithm is not None and algorithm not in self.algorithms:
            raise LayoutError(
                f"there is no algorithm '{algorithm}' for {self.name}: "
                f"use {', '.join(self.algorithms)}",
                parameter=USING.name,
            )
        return result

    def indices(self, operands: Sequence[DistType], arguments: Arguments) -> Structure | None:
        """Return how dimensions relate; None if that depends on the layout, or is not known."""
        if structure := self.structure or self.rearranges:
            return structure(operands, arguments)
        unmoved = self.elementwise or self.layout_only
        return map_structure(self.name, operands, Linear.ALL, flops=0) if unmoved else None

    def place_in_operand(self, mesh: Mesh, operand: DistType, arguments: Arguments) -> int | None:
        """Return where in the memory of the first operand the result starts, in elements.

        None if the result has memory of its own.
        """
        if self.is_view:
            return 0
        return None if self.place is None else self.place(operand.local_shape(mesh), arguments)

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
        """True if gradients do not see the values that its result depends on."""
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


P = ParamSpec("P")


def rows_in(table: dict[str, StepKind], kind: Callable[P, StepKind]) -> Callable[P, StepKind]:
    """Return a constructor of rows that adds them to a table.

    Raises:
        ValueError: by the constructor, if the table has a row of that name.
    """

    def row(*args: P.args, **facts: P.kwargs) -> StepKind:
        new = kind(*args, **facts)
        if new.name in table:
            raise ValueError(f"there is a step {new.name} already")
        table[new.name] = new
        return new

    return row
