"""The class of a mesh in Python for ranks: its name, coordinates and groups."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp

from collir.ir.blocks import cuts_in, shares_in
from collir.layout import DistType, Mesh
from collir.layout.cuts import GroupShares
from collir.targets.code.python_text import (
    METHODS,
    call,
    class_name,
    comment,
    summed,
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
