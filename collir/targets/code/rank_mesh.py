"""The class of a mesh in Python for ranks: its name, coordinates and groups."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from collir.dialects.local import ComputeOp, LocalFuncOp, StartOp, ViewOp, place_around
from collir.dialects.local_types import BufferType, buffer_of
from collir.layout import DistType, Mesh
from collir.layout.formulas import Formula
from collir.layout.local import CoordinateTable, LocalBuffer, atoms_in, rank_text
from collir.layout.sizes import OpenSize
from collir.targets.code.python_text import (
    METHODS,
    class_name,
    comment,
    table_text,
    variables,
)
from collir.targets.code.ranks import OverList, RankText, axes_text


@dataclass(frozen=True)
class MeshText(RankText):
    """The Python class of a mesh: its name, and the attributes for coordinates and groups.

    Attributes:
        members: the attribute for the coordinate on each sub-axis.
        groups: the attribute for each list of sub-axes that a program sends over.
        sends: whether ranks send to any rank of the mesh too.
        tables: the attribute for the number of this rank in each table by coordinates.
    """

    AND = "and"
    DIVIDE = "//"
    CHOICE = "{then} if {condition} else {other}"

    mesh: Mesh
    members: dict[str, str]
    groups: dict[OverList, str]
    sends: bool
    tables: dict[CoordinateTable, str]

    @staticmethod
    def of(mesh: Mesh, functions: Sequence[LocalFuncOp], lists: Iterable[OverList], sends: bool):
        """Return distinct names, also where ``a_b.c`` and ``a.b_c`` would look the same."""
        axes = [sub.name for sub in mesh.sub_axes]
        over = list(lists)
        atoms = atoms_in(number for f in functions for number in numbers_in(f))
        tables = [atom for atom in atoms if isinstance(atom, CoordinateTable)]
        attributes = [*axes, *("over_" + "_".join(group) for group in over)]
        attributes += ["by_" + "_".join(mesh.short(table.axes)) for table in tables]
        taken = {*METHODS, *(f.sym_name.data for f in functions)}
        names = iter(variables(attributes, taken))
        members = {axis: next(names) for axis in axes}
        groups = {group: next(names) for group in over}
        return MeshText(mesh, members, groups, sends, {table: next(names) for table in tables})

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
        if self.tables:
            lines.append("# Numbers of this rank: blocks differ in size.")
        for table, name in self.tables.items():
            values = table_text(table.values)
            lines += [f"self.{name} = {values}[{self.index_over(table.axes)}]"]
        return lines

    def named(self, x: LocalBuffer) -> LocalBuffer:
        """Return a buffer whose numbers have the attributes of this rank as their parameters."""
        return x.with_numbers(self.own)

    def own(self, number: int) -> int:
        """Return a number of ranks over the attributes of this rank."""
        if not isinstance(number, OpenSize):
            return number
        known = {**self.tables, **self.members}  # by atoms; others are attributes already
        formulas = {
            atom: Formula.parameter(self.member(known[atom]))
            for atom in number.formula.parameters
            if atom in known
        }
        return OpenSize(int(number), number.formula.substituted(formulas))

    def spelled(self, number: int) -> str:
        """Return a number of this rank as an expression."""
        return rank_text(self.own(number))

    def seconds_of(self, op: ComputeOp) -> str:
        """Return the seconds that a computation takes on this rank as an expression; empty if it
        takes none.

        Raises:
            DiagnosticError: see ``seconds_of_children``.
        """
        text = self.seconds(op.step(place=place_around(op)))
        size = buffer_of(op.inputs[0]).elements if op.inputs else 1
        if not text or not isinstance(size, OpenSize):
            return text
        [(powers, factor)] = self.own_formula(size).terms
        text = f"({text})" if " " in text else text
        factors = [str(atom) for atom, exponent in powers for _ in range(exponent)]
        return f"{' * '.join([text, *factors])} / {int(size) // int(factor)}"

    def own_formula(self, size: OpenSize) -> Formula:
        """Return the formula of a number over the attributes of this rank."""
        own = self.own(size)
        assert isinstance(own, OpenSize)
        return own.formula

    def coordinate(self, axis: str) -> str:
        return self.member(self.members[axis])

    def member(self, name: str) -> str:
        return f"self.{name}"

    def partner(self, name: str, x: DistType, y: DistType) -> str:
        """Return the statement of a variable for the rank whose place in layout ``y`` is this
        rank's in layout ``x``."""
        return f"{name} = {' + '.join(['self.rank', *self.to_partner(x, y)])}"


def numbers_in(function: LocalFuncOp) -> Iterator[int]:
    """Yield the numbers of a local function that may differ between ranks."""
    values: list[SSAValue] = list(function.body.block.args)
    ops: list[Operation] = list(function.walk())
    values += [x for op in ops for x in op.results]
    for op in ops:
        match op:
            case ViewOp():
                yield op.offset.data
            case StartOp():
                yield from (x for side in op.counts for x in side)
            case ComputeOp():
                yield from (x.data for x in op.starts or ())
            case _:
                pass
    for value in values:
        if isinstance(value.type, BufferType):
            yield from value.type.data.numbers
