"""Python that all Python targets share: names, coordinates, and steps that send nothing.

Every value of a function is a variable of its own, an array whose elements lie in order; where a
rank holds nothing of a value, the variable is None. Steps that no result needs are left out.
"""

import builtins
import keyword
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.ir.blocks import Part, cuts_in, parts_of, shares_by_dim, shares_in
from collir.ir.buffers import plan_buffers
from collir.ir.functions import check_programs, functions_of
from collir.ir.loops import body_name, repeats_in
from collir.ir.models import models_for_code
from collir.layout import DistType, DType, Mesh, Reduction, place_at
from collir.layout.coll import MASK, PAD
from collir.layout.cuts import GroupShares
from collir.layout.mesh import digits_over
from collir.semantics.reference.buffers import NUMPY
from collir.syntax.writer import nested_text
from collir.targets.code.emitters import (
    Emitters,
    StepEmitter,
    check_uneven,
    root_place,
    taking_part,
    written_step,
)
from collir.targets.code.names import Definition, check_definitions, distinct
from collir.targets.code.numpy_methods import METHODS as NUMPY_METHODS
from collir.targets.code.ranks import OverList, RankText, axes_text, by_rank
from collir.targets.code.torch_methods import METHODS as TORCH_METHODS

WIDTH = 88
"""The letters of a line; longer calls get a line for every argument."""

USED = frozenset(
    """
    self xp torch dist F np MPI time itertools ml_dtypes start to from_ sent parts work
    SUM_OF_F16 PROD_OF_F16 MAX_OF_F16 MIN_OF_F16 SUM_OF_BF16 PROD_OF_BF16 MAX_OF_BF16 MIN_OF_BF16
    """.split()  # noqa: SIM905
)
"""Names that the emitted functions use, and no variable may have."""

BLOCK_METHODS = ("_cut_blocks", "_joined_blocks", "_padded")
"""Names of the methods for blocks that differ in size."""

METHODS = frozenset(
    ["free", "comm", "rank", "xp", "device", "_argument", "_packed", *BLOCK_METHODS]
    + [f"_{name}" for name in (*NUMPY_METHODS, *TORCH_METHODS)]
)
"""Names of the attributes and methods of every mesh, which no function may have."""


# ---------------------------------------------------------------------------------------------
# Names and text
# ---------------------------------------------------------------------------------------------


def comment(text: str) -> str:
    """Return text that cannot end a comment or a string: in MLIR, axes may have any name."""
    return re.sub(r'[^ -~]|\\|"', "_", text)


def remark(text: str) -> str:
    """Return text that cannot end a comment of one line."""
    return re.sub(r"[^ -~]|\\", "_", text)


def variables(names: Sequence[str], taken: Iterable[str] = ()) -> list[str]:
    """Return a distinct Python variable for each of the names of values, none of them taken."""
    return distinct(map(_variable, names), {*taken, *USED})


def _variable(name: str) -> str:
    """Return a variable for a name, which may be the same as for another name."""
    base = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    if base[0].isdigit():
        base = f"v{base}"
    used = keyword.iskeyword(base) or hasattr(builtins, base) or base in USED
    return f"{base}_" if used else base


def class_name(mesh: str) -> str:
    """Return the class of a mesh: DataMesh for @data_mesh."""
    return "".join(word[:1].upper() + word[1:] for word in mesh.split("_"))


def identifier_problem(name: str) -> str | None:
    """Return the reason why nothing in Python can have this name, or None."""
    if keyword.iskeyword(name):
        return f"'{name}' is a keyword of Python"
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        return "names in Python are letters, digits and _"
    return None


def function_problem(name: str) -> str | None:
    """Return the reason why a class cannot have a method of this name, or None."""
    if name in METHODS:
        return f"'{name}' is a name of the emitted code"
    if name.startswith("__"):
        return "names that start with '__' are Python's own"
    return identifier_problem(name)


def class_problem(name: str) -> str | None:
    """Return the reason why a module cannot have a class of this name, or None."""
    if hasattr(builtins, name) and not keyword.iskeyword(name):
        return f"'{name}' is a name of Python's own"
    if name in USED:
        return f"'{name}' is a name of the emitted code"
    return identifier_problem(name)


def check_names(module: ModuleOp, meshes: Container[str]) -> None:
    """Check that functions, and the meshes they are on, can have the same names in Python.

    Raises:
        DiagnosticError: all the names that Python cannot have.
    """

    def class_definition(mesh: str) -> Definition:
        name = class_name(mesh)
        return Definition(name, class_problem(name), "class")

    check_definitions(
        module,
        "Python",
        lambda mesh: [class_definition(mesh)] if mesh in meshes else [],
        lambda function: [Definition(function, function_problem(function), None)],
        models=True,
    )


def call(head: str, arguments: Sequence[str], indent: int = 16) -> list[str]:
    """Return the lines of a call that is indented by a number of letters."""
    line = f"{head}({', '.join(arguments)})"
    if indent + len(line) <= WIDTH:
        return [line]
    return [f"{head}(", *(f"    {argument}," for argument in arguments), ")"]


def summed(name: str, terms: Sequence[str], indent: int) -> list[str]:
    """Return the lines that assign a sum to a variable, indented by a number of letters."""
    line = f"{name} = {' + '.join(terms)}"
    if indent + len(line) <= WIDTH:
        return [line]
    return [f"{name} = (", f"    {terms[0]}", *(f"    + {term}" for term in terms[1:]), ")"]


def tuple_text(items: Sequence[object]) -> str:
    """Return a tuple as Python writes it."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(map(str, items))})"


def table_text(items: Sequence[int]) -> str:
    """Return a tuple of integers; if it is long, equal ones that follow each other as products."""
    runs = [(item, len(list(group))) for item, group in groupby(items)]
    if len(items) <= _LONG_TABLE or 4 * len(runs) > len(items):
        return tuple_text(items)
    return f"({' + '.join(f'({item},) * {count}' for item, count in runs)})"


_LONG_TABLE = 16
"""The most numbers of a table that are always written one by one."""


def product_lines(function: str, text: str, indent: int) -> list[str]:
    """Return the lines of a call whose argument is a product, indented by a number of letters."""
    if indent + len(function) + len(text) + 2 <= WIDTH:
        return [f"{function}({text})"]
    factors: list[str] = []
    for part in re.split(r" (?=[*/] )", text):
        if factors and factors[-1].count("(") > factors[-1].count(")"):
            factors[-1] += f" {part}"
        else:
            factors.append(part)
    return [f"{function}(", *(f"    {factor}" for factor in factors), ")"]


def number_text(value: float, dtype: DType) -> str:
    """Return a constant, rounded to a dtype: in f32 and f64 the shortest text that rounds to it."""
    if dtype is DType.BOOL:
        return str(bool(value))
    if not dtype.is_float:
        return str(int(value))
    rounded = NUMPY[dtype].type(value)
    return repr(float(str(rounded) if dtype in (DType.F32, DType.F64) else rounded))


@dataclass(frozen=True)
class MeshText(RankText):
    """The Python class of a mesh: its name, and the attributes for coordinates and groups.

    Attributes:
        members: the attribute for the coordinate on each sub-axis.
        groups: the attribute for each list of sub-axes that a program sends over.
        sends: whether ranks send to any rank of the mesh too.
    """

    AND = "and"
    DIVIDE = "//"
    CHOICE = "{then} if {condition} else {other}"

    mesh: Mesh
    members: dict[str, str]
    groups: dict[OverList, str]
    sends: bool
    shares: dict[OverList, str]
    parts: dict[tuple[OverList, GroupShares], str]

    @staticmethod
    def of(mesh: Mesh, functions: Sequence[FuncOp], lists: Iterable[OverList], sends: bool):
        """Return distinct names, also where ``a_b.c`` and ``a.b_c`` would look the same."""
        axes = [sub.name for sub in mesh.sub_axes]
        over = list(lists)
        cuts = list(dict.fromkeys(cut for f in functions for cut in cuts_in(f, mesh)))
        rows = list(dict.fromkeys(row for f in functions for row in shares_in(f, mesh)))
        attributes = [*axes, *("over_" + "_".join(group) for group in over)]
        attributes += ["share_" + "_".join(mesh.short(cut)) for cut in cuts]
        attributes += ["parts_" + "_".join(mesh.short(row)) for row, _ in rows]
        taken = {*METHODS, *(f.sym_name.data for f in functions)}
        names = iter(variables(attributes, taken))
        members = {axis: next(names) for axis in axes}
        groups = {group: next(names) for group in over}
        shares = {cut: next(names) for cut in cuts}
        return MeshText(mesh, members, groups, sends, shares, {row: next(names) for row in rows})

    @property
    def class_name(self) -> str:
        """The name of the class."""
        return class_name(self.mesh.name)

    def description(self) -> str:
        """Return the name, the machine, the ranks and the axes of the mesh in a line."""
        mesh = self.mesh
        ranks = "1 rank" if mesh.devices == 1 else f"{mesh.devices} ranks"
        return comment(f"Mesh @{mesh.name} on @{mesh.machine.name}: {ranks}, {axes_text(mesh)}")

    def coordinates(self) -> list[str]:
        """Return the statements that set this rank's coordinates from ``rank``."""
        lines = ["# This rank's coordinates on the sub-axes."] if self.mesh.sub_axes else []
        lines += [f"{coordinate} = {value}" for coordinate, value in self.definitions("rank")]
        if self.shares or self.parts:
            lines.append("# The units of this rank, and of the ranks of its groups, by weights.")
        for over, name in self.shares.items():
            shares = self.mesh.uneven[over[0]].shares(over)
            lines += [f"self.{name} = {table_text(shares)}[{self.index_over(over)}]"]
        for (_, shares), name in self.parts.items():
            rows = [table_text(row) for row in shares.rows]
            if not shares.rest:
                lines.append(f"self.{name} = {rows[0]}")
                continue
            lines += call(f"self.{name} = ", rows, 8)
            lines[-1] += f"[{self.index_over(shares.rest)}]"
        return lines

    def coordinate(self, axis: str) -> str:
        return self.member(self.members[axis])

    def member(self, name: str) -> str:
        return f"self.{name}"

    def not_at_zero(self, axes: OverList) -> str:
        """Return the condition that this rank is not at coordinate 0 of all the sub-axes."""
        if len(axes) == 1:
            return f"{self.coordinate(axes[0])} != 0"
        return f"not ({self.at_zero(axes)})"

    def partner(self, name: str, x: DistType, y: DistType, indent: int) -> list[str]:
        """Return a variable for the rank whose place in layout ``y`` is this rank's in layout
        ``x``."""
        return summed(name, ["self.rank", *self.to_partner(x, y)], indent)


# ---------------------------------------------------------------------------------------------
# One function
# ---------------------------------------------------------------------------------------------


class Assignment(str):
    """The statement that assigns one expression, which is not conditional, to a variable."""

    __slots__ = ()

    @staticmethod
    def of(variable: str, expression: str) -> "Assignment":
        """Return the assignment of an expression to a variable."""
        return Assignment(f"{variable} = {expression}")


def wrapped(statement: str, indent: int) -> list[str]:
    """Return the lines of a statement that is indented by a number of letters.

    An assignment of a call that is too long has its arguments in a line of their own.
    """
    variable, _, call_text = statement.partition(" = ")
    function, _, arguments = call_text.partition("(")
    fits = indent + len(statement) <= WIDTH
    if fits or not isinstance(statement, Assignment) or not arguments.endswith(")"):
        return [statement]
    return [f"{variable} = {function}(", f"    {arguments[:-1]}", ")"]


@dataclass(frozen=True)
class Sent:
    """A collective with the variables of its arrays.

    Attributes:
        operand, out: the variables of the operand and of the result.
        x, y: the types of the operand and of the result.
        axes: the sub-axes in order.
        root: the condition that this rank is the root.
        group: the number of ranks in a group.
        before, after: the shapes of the arrays of the operand and of the result.
        new: the statement that makes an array for the result.
    """

    op: DistOp
    operand: str
    out: str
    x: DistType
    y: DistType
    axes: OverList
    root: str
    group: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    new: str


@dataclass(frozen=True)
class CutDim:
    """A dimension whose blocks differ in size.

    Attributes:
        parts: the sequence of the units of the ranks of this rank's group.
        unit: the size of a unit in the dimension.
        elements: the elements of a unit, in all dimensions.
    """

    dim: int
    parts: str
    unit: int
    elements: int

    @property
    def counts(self) -> str:
        """The elements of the ranks of the group, as a list."""
        return f"[{self.elements} * part for part in {self.parts}]"


NOWHERE = CutDim(0, "()", 1, 1)
"""The dimension that a collective does not have."""


@dataclass(frozen=True)
class Blocks:
    """The dimensions that a collective cuts and joins, whose blocks differ in size."""

    leaves: CutDim = NOWHERE
    comes: CutDim = NOWHERE


@dataclass(frozen=True)
class Local:
    """A step that sends nothing, with the variables of its arrays.

    Attributes:
        operands, out: the variables of the operands and of the result.
        x, y: the types of the first operand and of the result.
        shape: the shape of the result's array.
    """

    op: DistOp
    operands: list[str]
    out: str
    x: DistType
    y: DistType
    shape: tuple[int, ...]

    @property
    def operand(self) -> str:
        """The name of the first operand."""
        return self.operands[0]


@dataclass
class FunctionText(StepEmitter):
    """The method of one function; a target says how its arrays are made and sent.

    Attributes:
        needs: the helpers and modules that the method uses.
    """

    function: FuncOp
    names: MeshText
    needs: set[str] = field(default_factory=set[str])

    rest: ClassVar[str] = ""
    """The end of an index of the first dimensions only."""
    array: ClassVar[str]
    """The word for an array in docstrings, with its article."""

    def __post_init__(self) -> None:
        self.mesh = self.names.mesh
        plan = plan_buffers(self.function)
        self.returned = plan.returned
        self.shown = plan.names
        self.variable = dict(zip(plan.names, variables(list(plan.names.values())), strict=True))
        self.live = set(self.returned)
        for op in reversed(list(self.function.body.ops)):
            if any(result in self.live for result in op.results):
                self.live |= set(op.operands)
        taken = self.variable.values()
        most = max([len(op.results) for op in repeats_in(self.function)], default=0)
        rows = [f"row{index}" for index in range(most)]
        self.number, self.made, *self.rows = variables(["i", "made", *rows], taken)

    # --- what a target says -----------------------------------------------------------------

    @abstractmethod
    def library(self, name: str) -> str:
        """Return a function or type of the library of arrays."""

    @abstractmethod
    def dtype(self, dtype: DType) -> str:
        """Return an element type."""

    @abstractmethod
    def options(self, dtype: DType) -> str:
        """Return the last arguments of a call that makes an array."""

    @abstractmethod
    def packed(self, text: str) -> str:
        """Return an array with its elements in order."""

    @abstractmethod
    def copied(self, text: str) -> str:
        """Return an array with memory of its own."""

    @abstractmethod
    def cast(self, text: str, dtype: DType) -> str:
        """Return an array in another element type."""

    @abstractmethod
    def reshaped(self, text: str, shape: Sequence[int]) -> str:
        """Return an array under another shape."""

    @abstractmethod
    def transposed(self, text: str, order: Sequence[int]) -> str:
        """Return an array with its dimensions in another order, elements left where they are."""

    @abstractmethod
    def joined(self, arrays: Sequence[str], dim: int) -> list[str]:
        """Return the lines of an expression that joins arrays along a dimension."""

    @abstractmethod
    def constant(self, value: float, dtype: DType) -> str:
        """Return a factor, rounded to the element type."""

    def full(self, shape: Sequence[int], dtype: DType, value: float | None) -> str:
        """Return a new array of one value, or of no particular values."""
        text, options = tuple_text(shape), self.options(dtype)
        if value is None:
            return f"{self.library('empty')}({text}, {options})"
        if value == 0 and math.copysign(1, value) > 0:
            return f"{self.library('zeros')}({text}, {options})"
        return f"{self.library('full')}({text}, {number_text(value, dtype)}, {options})"

    def average(self, x: DistType, group: int, out: str) -> list[str]:
        """Return the division at the end of an avg."""
        return [f"{out} /= {group}"] if x.reduction is Reduction.AVG else []

    def shares(self, op: DistOp) -> bool:
        """Return whether the result of an operation may share memory with its operand."""
        if op.kind is PAD:
            return op.place_in_operand(self.mesh) is not None
        return op.kind.is_view or op.kind.computes or op.kind is MASK

    def computed(self, text: str, x: DistType) -> str:
        """Return the result of arithmetic as an array."""
        return text

    COLLECTIVES: ClassVar[Emitters[Sent]]
    """The statements of each collective, for the ranks that take part."""

    UNEVEN: ClassVar[dict[str, Callable[[Any, Sent, "Blocks"], list[str]]]]
    """The statements of each collective whose blocks differ in size."""

    def prologue(self) -> list[str]:
        """Return the statements before those of a method."""
        return []

    # --- the method -------------------------------------------------------------------------

    def text(self) -> list[str]:
        """Return the lines of the method, indented as in a class."""
        body = [line for arg in self.function.args for line in self._check_argument(arg)]
        for op in self.function.body.ops:
            if isinstance(op, DistOp) and op.result in self.live:
                body += self._step(op)
            elif isinstance(op, RepeatOp) and self.live.intersection(op.results):
                body += self._loop(op)
        body += self._return()
        arguments = [self.variable[arg] for arg in self.function.args]
        definition = call(f"def {self.function.sym_name.data}", ["self", *arguments], 5)
        definition[-1] += ":"
        text = [*self._docstring(), *self.prologue(), *body]
        lines = [f"    {line}" for line in definition]
        lines += [f"        {line}" if line else line for line in text]
        return [self.names.resolved(line) for line in lines]

    def _docstring(self) -> list[str]:
        lines = ['"""Every rank calls it with what it holds.', ""]
        if self.function.args:
            lines.append("Args:")
            lines += [
                f"    {self.variable[arg]}: {self._meaning(arg)}" for arg in self.function.args
            ]
        if self.function.args and self.returned:
            lines.append("")
        if self.returned:
            lines.append("Returns:")
            lines += [
                f"    {self.variable[value]}: {self._meaning(value)}" for value in self.returned
            ]
        if len(lines) == 2:
            return [f'{lines[0]}"""']
        return [*lines, '"""']

    def _meaning(self, value: SSAValue) -> str:
        """Return the type of a value, and the shape of the block on a rank."""
        x = dist_type(value)
        shape = tuple_text(x.local_shape(self.mesh))
        text = f"{comment(x.text(self.mesh))}, on each rank {self.array} of shape {shape}"
        if x.place:
            at = dict(x.place)
            where = " and ".join(f"{axis} = {at[axis]}" for axis in self.mesh.ordered(at))
            text += f" where {comment(where)}, else None"
        return f"{text}."

    def _check_argument(self, arg: SSAValue) -> list[str]:
        x, name = dist_type(arg), self.variable[arg]
        shape = tuple_text(x.local_shape(self.mesh))
        self.needs.add("argument")
        checked = call(f"{name} = self._argument", [f'"{name}"', name, self.dtype(x.dtype), shape])
        return self._where(self.names.at_place(x.place), [], checked)

    def _where(self, condition: str, before: list[str], lines: list[str]) -> list[str]:
        """Return statements for the ranks of a condition only, behind statements for all."""
        if not condition:
            return lines
        return [*before, f"if {condition}:", *(f"    {line}" for line in lines)]

    def _step(self, op: DistOp) -> list[str]:
        """Return the lines of an operation: its comment, and its statements."""
        out, condition = self.variable[op.result], self.names.at_place(taking_part(op))
        statements = self.statements(op)
        heading = f"# {remark(written_step(op, self.mesh, self.shown))}"
        if condition and len(statements) == 1 and isinstance(statements[0], Assignment):
            line = f"{statements[0]} if {condition} else None"
            if len(line) <= WIDTH - 8:
                return [heading, line]
        indent = 12 if condition else 8
        lines = [line for statement in statements for line in wrapped(statement, indent)]
        return [heading, *self._where(condition, [f"{out} = None"], lines)]

    def collective(self, op: DistOp) -> list[str]:
        x, y, axes = dist_type(op.input), dist_type(op.result), op.over
        operand, out = self.variable[op.input], self.variable[op.result]
        before, after = x.local_shape(self.mesh), y.local_shape(self.mesh)
        root, group = self.names.at_place(root_place(op)), self.mesh.group_size(axes)
        new = f"{out} = {self.full(after, y.dtype, None)}"
        sent = Sent(op, operand, out, x, y, axes, root, group, before, after, new)
        if parts := parts_of(op, self.mesh):
            check_uneven(op, self.UNEVEN)
            return self.UNEVEN[op.mnemonic](self, sent, self._blocks(sent, parts))
        return self.COLLECTIVES[op.mnemonic](self, sent)

    def _blocks(self, s: Sent, parts: Sequence[Part]) -> "Blocks":
        """Return how the ranks of a group share the dimensions that a collective cuts or joins."""
        blocks = Blocks()
        for part in parts:
            array = self.names.parts_of(s.axes, part.shares)
            cut = CutDim(part.dim, array, part.unit, part.row * part.rows)
            blocks = replace(blocks, comes=cut) if part.comes else replace(blocks, leaves=cut)
        return blocks

    def local_step(self, op: DistOp) -> list[str]:
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        operands = [self.variable[operand] for operand in op.operands]
        step = Local(op, operands, self.variable[op.result], x, y, y.local_shape(self.mesh))
        return self.LOCAL[op.mnemonic](self, step)

    def computation(self, op: DistOp) -> list[str]:
        return self.local_step(op)

    def ends(self, op: DistOp) -> tuple[str, str]:
        """Return the conditions that this rank sends, and that it receives, in a send."""
        sender, receiver = (
            self.names.at_place(place_at(digits_over(self.mesh, op.over, op.integer(name))))
            for name in ("sender", "receiver")
        )
        return sender, receiver

    def exchange(self, s: Sent, send: Sequence[str], received: Sequence[str]) -> list[str]:
        """Return the statements of a send: those that send, and those that receive."""
        sends, receives = self.ends(s.op)
        return [
            f"{s.out} = None",
            f"if {sends}:",
            *(f"    {line}" for line in send),
            f"elif {receives}:",
            f"    {s.new}",
            *(f"    {line}" for line in received),
        ]

    def _loop(self, op: RepeatOp) -> list[str]:
        """Return the lines of a loop, which calls the method of its body."""
        text = nested_text(op, lambda values: ", ".join(f"%{self.shown[x]}" for x in values))
        carries = [self.variable[result] for result in op.results[: len(op.carried)]]
        operands = [self.variable[operand] for operand in op.carried]
        results = ", ".join(f"%{self.shown[result]}" for result in op.results)
        lines = [f"# {remark(f'{results} = {text}')}"]
        # All at once, as a carry may begin as the result of the same name of another loop.
        lines += [f"{', '.join(carries)} = {', '.join(operands)}"] if carries else []
        arguments = [*carries, *(self._slice_of(x) for x in op.sliced)]
        arguments += [self.variable[operand] for operand in op.invariant]
        targets, behind = list(carries), list[str]()
        for index, result in enumerate(op.results[len(carries) :]):
            x, name = dist_type(result), self.variable[result]
            condition = self.names.at_place(x.place)
            new = self.full(x.local_shape(self.mesh), x.dtype, None)
            made = Assignment.of(name, new)
            if condition and len(line := f"{made} if {condition} else None") <= WIDTH - 8:
                lines.append(line)
            else:
                made_lines = wrapped(made, 12 if condition else 8)
                lines += self._where(condition, [f"{name} = None"], made_lines)
            row = self.rows[index] if condition else f"{name}[{self.number}, ...]"
            targets.append(row)
            if condition:
                behind += [f"if {condition}:", f"    {name}[{self.number}, ...] = {row}"]
        numbers = f"range({op.times})"
        lines.append(
            f"for {self.number} in {f'reversed({numbers})' if op.is_reverse else numbers}:"
        )
        method = f"self.{body_name(op)}"
        statement = f"{', '.join(targets)} = {method}({', '.join(arguments)})"
        if len(targets) == 1 or 12 + len(statement) <= WIDTH:
            made = call(f"{', '.join(targets)} = {method}", arguments, 12)
        else:
            made = call(f"{self.made} = {method}", arguments, 12)
            made += [f"{target} = {self.made}[{n}]" for n, target in enumerate(targets)]
        return [*lines, *(f"    {line}" for line in (*made, *behind))]

    def _slice_of(self, value: SSAValue) -> str:
        row = f"{self.variable[value]}[{self.number}, ...]"
        condition = self.names.at_place(dist_type(value).place)
        return f"{row} if {condition} else None" if condition else row

    def _return(self) -> list[str]:
        """Return the return statement; a result that shares memory with an argument or another
        result is copied."""
        memory: dict[SSAValue, SSAValue] = {value: value for value in self.function.args}
        for op in self.function.body.ops:
            if isinstance(op, DistOp):
                memory[op.result] = memory[op.operands[0]] if self.shares(op) else op.result
            else:
                memory |= {result: result for result in op.results}
        taken: set[SSAValue] = set(self.function.args)
        results: list[str] = []
        for value in self.returned:
            name = self.variable[value]
            if memory[value] in taken:
                root = self.names.at_place(dist_type(value).place)
                name = self.copied(name) + (f" if {root} else None" if root else "")
            taken.add(memory[value])
            results.append(name)
        if not results:
            return []
        line = f"return {', '.join(results)}"
        if len(line) <= WIDTH - 8:
            return [line]
        return ["return (", *(f"    {result}," for result in results), ")"]

    # --- operations that send nothing -------------------------------------------------------

    def _keep(self, s: Local) -> list[str]:
        return [Assignment.of(s.out, s.operand)]

    def _assemble(self, s: Local) -> list[str]:
        lines: list[str] = []
        for index, operand in enumerate(s.operands):
            place = place_at(digits_over(self.mesh, s.op.over, index))
            lines += [
                f"{'el' * bool(index)}if {self.names.at_place(place)}:",
                f"    {s.out} = {self.copied(operand)}",
            ]
        return lines

    def _barrier(self, s: Local) -> list[str]:
        return [Assignment.of(s.out, s.operand)]

    def _compute(self, s: Local) -> list[str]:
        # The operands that it waits for are used so, too.
        waited = [operand for operand in dict.fromkeys(s.operands[1:]) if operand != s.operand]
        lines = [f"_ = {operand}" for operand in waited]
        if seconds := self.names.seconds(s.op):
            self.needs.add("time")
            indent = 12 if self.names.at_place(taking_part(s.op)) else 8
            lines += product_lines("time.sleep", self.names.resolved(seconds), indent)
        return [*lines, Assignment.of(s.out, s.operand)]

    def _view(self, s: Local) -> list[str]:
        return [Assignment.of(s.out, self.reshaped(s.operand, s.shape))]

    def _transpose(self, s: Local) -> list[str]:
        moved = self.transposed(s.operand, s.op.sizes("order"))
        return [Assignment.of(s.out, self.packed(moved))]

    def _add(self, s: Local) -> list[str]:
        return [Assignment.of(s.out, self.computed(" + ".join(s.operands), s.y))]

    def _scale(self, s: Local) -> list[str]:
        factor = self.constant(s.op.number("factor"), s.x.dtype)
        return [Assignment.of(s.out, self.computed(f"{s.operand} * {factor}", s.y))]

    def _cast(self, s: Local) -> list[str]:
        return [Assignment.of(s.out, self.cast(s.operand, s.y.dtype))]

    def _concat(self, s: Local) -> list[str]:
        first, *rest = self.joined(s.operands, s.op.integer("dim"))
        return [Assignment.of(s.out, first), *rest]

    def _mask(self, s: Local) -> list[str]:
        ones = Reduction(s.op.word("reduction")) is Reduction.PROD
        like = f"{self.library('ones_like' if ones else 'zeros_like')}({s.operand})"
        root = self.names.at_zero(s.op.over)
        line = f"{s.out} = {s.operand} if {root} else {like}"
        if len(line) <= WIDTH - 12:
            return [line]
        return [f"if {root}:", f"    {s.out} = {s.operand}", "else:", f"    {s.out} = {like}"]

    def _slice(self, s: Local) -> list[str]:
        dim, index = s.op.integer("dim"), self.names.factor_over(s.op.over)
        size = s.shape[dim]
        start = f"{index} * {size}"
        if (shares := shares_by_dim(s.op, self.mesh)) is not None:
            parts = self.names.parts_of(s.op.over, shares[dim])
            before = f"sum({parts}[: {self.names.index_over(s.op.over)}])"
            start = f"{before} * {shares[dim].unit(size)}"
        rest = self.rest if dim + 1 < len(s.shape) else ""
        block = f"{s.operand}[{':, ' * dim}start : start + {size}{rest}]"
        return [f"start = {start}", f"{s.out} = {self.packed(block)}"]

    def _pad(self, s: Local) -> list[str]:
        op, x, y, operand, out = s.op, s.x, s.y, s.operand, s.out
        dim, low, high = (op.integer(name) for name in ("dim", "low", "high"))
        before, after = x.local_shape(self.mesh)[dim], y.local_shape(self.mesh)[dim]

        def part(name: str, start: int, stop: int, size: int) -> str:
            if (start, stop) == (0, size):
                return name
            first, last = str(start) if start else "", str(stop) if stop != size else ""
            # No space around a colon between numbers, as formatters have it.
            rest = self.rest if dim + 1 < len(x.dims) else ""
            return f"{name}[{':, ' * dim}{first}:{last}{rest}]"

        kept = part(operand, max(-low, 0), before - max(-high, 0), before)
        if low <= 0 and high <= 0:
            in_order = op.place_in_operand(self.mesh) is not None
            return [Assignment.of(out, kept if in_order else self.packed(kept))]
        place = part(out, max(low, 0), after - max(high, 0), after)
        made = self.full(y.local_shape(self.mesh), y.dtype, op.number("value"))
        return [Assignment.of(out, made), f"{place if place != out else f'{out}[...]'} = {kept}"]

    LOCAL: ClassVar[Emitters[Local]] = {
        "keep_root": _keep,
        "keep": _keep,
        "part": _keep,
        "assemble": _assemble,
        "compute": _compute,
        "barrier": _barrier,
        "terms": _view,
        "split": _view,
        "merge": _view,
        "reshape": _view,
        "transpose": _transpose,
        "add": _add,
        "scale": _scale,
        "cast": _cast,
        "concat": _concat,
        "mask": _mask,
        "slice": _slice,
        "pad": _pad,
    }
    """The statements of each step that sends nothing, for the ranks that hold its result."""


# ---------------------------------------------------------------------------------------------
# The file
# ---------------------------------------------------------------------------------------------


def classes(
    module: ModuleOp,
    target: str,
    ordered: bool,
    named: Collection[str] | None = None,
) -> list[tuple[MeshText, list[FuncOp]]]:
    """Return for every mesh that functions are on its names and its functions.

    Args:
        ordered: whether every order of sub-axes has a group of its own.
        named: the functions to print where there are operations of models; the default is those
            that no other calls, as the steps of the rest are in them.

    Raises:
        DiagnosticError: names that Python cannot have, operations that are not collectives.
    """
    module, _ = models_for_code(module, named)
    functions = functions_of(module)
    check_programs(functions, f"has no form in {target}", nested=True)
    by_mesh: dict[str, list[FuncOp]] = {}
    for function in functions:
        by_mesh.setdefault(mesh_of(function).name, []).append(function)
    check_names(module, by_mesh)
    texts: list[tuple[MeshText, list[FuncOp]]] = []
    for members in by_mesh.values():
        mesh = mesh_of(members[0])
        steps = [op for f in members for op in f.body.ops if is_collective(op)]
        # In groups whose ranks ascend, pairs of ranks need no group: they send to any rank.
        lists = [op.over for op in steps if op.over and (ordered or not op.kind.pairs)]
        groups = dict.fromkeys(lists if ordered else (by_rank(mesh, axes) for axes in lists))
        sends = any(op.kind.pairs and not (ordered and op.over) for op in steps)
        texts.append((MeshText.of(mesh, members, groups, sends), members))
    return texts


def header(target: str, use: str, shown: str, rest: str) -> list[str]:
    """Return the docstring of an emitted module; ``shown`` is an example of its use, if any."""
    parts = [f'"""Written by collir {collir.__version__}: {target}.', use, shown, rest]
    return ["\n\n".join(filter(None, parts)), '"""']


def helpers(needs: Container[str], methods: Mapping[str, str]) -> list[str]:
    """Return the methods of a class that others need, each behind an empty line."""
    used = [method.rstrip() for need, method in methods.items() if need in needs]
    return [line for method in used for line in ("", method)]


def example(constructor: str, texts: Sequence[FunctionText]) -> str:
    """Return an example program that calls the first function of a module."""
    lines = [f"    {constructor}"]
    if texts:
        first = texts[0]
        arguments = ", ".join(first.variable[arg] for arg in first.function.args)
        results = ", ".join(first.variable[value] for value in first.returned)
        name = f"{first.names.mesh.name}.{first.function.sym_name.data}({arguments})"
        lines.append(f"    {results} = {name}" if results else f"    {name}")
    return "\n".join(lines)


def is_first(shape: Sequence[int], dim: int) -> bool:
    """Return whether the blocks of a dimension lie one behind the other."""
    return math.prod(shape[:dim]) == 1
