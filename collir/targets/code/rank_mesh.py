"""The class of a mesh in Python for ranks: its name, coordinates and groups."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collir.dialects.local import LocalFuncOp
from collir.layout import Mesh
from collir.layout.local import CoordinateTable
from collir.targets.code.python_text import (
    METHODS,
    class_name,
    comment,
    table_text,
    variables,
)
from collir.targets.code.rank_names import RankNames, tables_in
from collir.targets.code.ranks import OverList, axes_text


@dataclass(frozen=True)
class MeshText(RankNames):
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
        tables = tables_in(functions)
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

    def member(self, name: str) -> str:
        return f"self.{name}"
