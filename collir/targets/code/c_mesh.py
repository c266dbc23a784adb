"""The struct of a mesh in C and C++, to which a handle points, and its members."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collir.dialects.local import LocalFuncOp, StartOp
from collir.layout import Mesh
from collir.layout.cuts import with_shares
from collir.layout.local import CoordinateTable, table
from collir.targets.code.c_text import C, Comment, Words, comment, factor_text, size_text, variables
from collir.targets.code.rank_names import RankNames, tables_in
from collir.targets.code.ranks import OverList, axes_text

HANDLE = "mesh"
"""The parameter of functions that points to the struct of their mesh."""

MEMBERS = (
    *("rank", "comm", "workspace", "streams", "events"),
    *("pending", "counts", "inputs", "outputs", "sizes"),
)
"""The members that are no communicators, coordinates or numbers."""


@dataclass
class CMesh(RankNames):
    """The names of a mesh in C and C++.

    Attributes:
        functions: the programs of the ranks.
        words: the names that the language does not leave to members.
        has_handle: whether functions take a handle of the mesh.
        prefix: the beginning of the names of what other files see.
        members: the member for the coordinate on each sub-axis.
        communicators: the member for each ordered list of sub-axes that a program sends over.
        tables: the member for the number of this rank in each table by coordinates.
    """

    AND = "&&"
    DIVIDE = "/"
    CHOICE = "{condition} ? {then} : {other}"

    mesh: Mesh
    functions: Sequence[LocalFuncOp]
    words: Words = C
    has_handle: bool = True
    prefix: str = ""

    def __post_init__(self) -> None:
        mesh = self.mesh
        lists = list(dict.fromkeys(op.axes.data for op in self.starts() if op.axes.data))
        axes, tables = [sub.name for sub in mesh.sub_axes], tables_in(self.functions)
        words = [*axes, *("over_" + "_".join(over) for over in lists)]
        words += ["by_" + "_".join(mesh.short(atom.axes)) for atom in tables]
        # Names are distinct, also where `a_b.c` and `a.b_c` would look the same.
        names = iter(variables([*MEMBERS, *words], self.words)[len(MEMBERS) :])
        self.members = {axis: next(names) for axis in axes}
        self.communicators: dict[OverList, str] = {over: next(names) for over in lists}
        self.tables = {atom: next(names) for atom in tables}

    def starts(self) -> list[StartOp]:
        """Return the collectives of the functions."""
        return [op for f in self.functions for op in f.walk() if isinstance(op, StartOp)]

    # --- expressions --------------------------------------------------------------------------

    @property
    def symbol(self) -> str:
        """The beginning of the names of what belongs to the mesh."""
        return f"{self.prefix}{self.mesh.name}"

    @property
    def kind(self) -> str:
        """The type that a handle points to."""
        return f"struct {self.symbol}_mesh"

    def member(self, name: str) -> str:
        return f"{HANDLE}->{name}"

    def atom(self, atom: str) -> str:
        if atom in self.members and not isinstance(atom, CoordinateTable):
            return f"(size_t){self.coordinate(atom)}"
        return super().atom(atom)

    def real(self, atom: str) -> str:
        return f"(double){atom}"

    def spelled(self, number: int) -> str:
        return size_text(self.own(number))

    def factor(self, number: int) -> str:
        """Return a number of this rank as a factor of a product."""
        return factor_text(self.own(number))

    def resolved(self, text: str) -> str:
        """Return a text with this rank's shares in place of the tokens of sizes that differ."""

        def share(over: OverList) -> str:
            return self.factor(table(over, self.mesh.uneven[over[0]].shares(over)))

        return with_shares(text, share)

    def communicator(self, over: OverList) -> str:
        """Return the communicator of a list of sub-axes; without any, that of the mesh."""
        return self.member(self.communicators[over] if over else "comm")

    # --- statements ---------------------------------------------------------------------------

    def struct(self, communicator: str, note: str, more: Sequence[str]) -> list[str]:
        """Return the struct.

        Args:
            communicator: the type of a communicator.
            note: a comment behind the one of all ranks.
            more: members that are not the same in all languages.
        """
        mesh = self.mesh
        lines: list[str] = [
            Comment(
                f"/* mesh @{mesh.name} on @{comment(mesh.machine.name)}: {mesh.devices} ranks, "
                f"{comment(axes_text(mesh))}. */"
            ),
            f"{self.kind} {{",
            f"  {communicator} comm;{note}",
            "  int rank;",
        ]
        if mesh.sub_axes:
            coordinates = ", ".join(self.members[sub.name] for sub in mesh.sub_axes)
            lines.append(f"  int {coordinates}; /* this rank's coordinates */")
        lines += [
            f"  {communicator} {name}; /* ranks that differ in {comment(', '.join(over))} only */"
            for over, name in self.communicators.items()
        ]
        lines += [
            f"  size_t {name}; /* {_shortened(comment(atom))} */"
            for atom, name in self.tables.items()
        ]
        return [*lines, *more, "};", ""]

    def numbers(self) -> list[str]:
        """Return the statements that set this rank's coordinates and its numbers in tables."""
        values = self.definitions(self.member("rank"))
        lines = [f"  {coordinate} = {value};" for coordinate, value in values]
        for atom, name in self.tables.items():
            numbers = ", ".join(map(str, atom.values))
            lines.append(f"  {{ static const size_t parts[] = {{{numbers}}};")
            lines.append(f"    {self.member(name)} = parts[{self.index_over(atom.axes)}]; }}")
        return lines

    def splits(self) -> list[tuple[str, str, str]]:
        """Return for each communicator of a list of sub-axes its colour, its key, and itself."""
        found: list[tuple[str, str, str]] = []
        for over, name in self.communicators.items():
            rest = [sub.name for sub in self.mesh.sub_axes if sub.name not in over]
            found.append((self.index_over(rest), self.index_over(over), self.member(name)))
        return found


def _shortened(text: str) -> str:
    """Return a text of at most a line."""
    return text if len(text) <= 60 else f"{text[:40]} ...{text[text.rindex('][') :][1:]}"


def by_mesh(functions: Iterable[LocalFuncOp], name: str) -> list[LocalFuncOp]:
    """Return the functions on the mesh of a name."""
    return [f for f in functions if f.mesh.string_value() == name]
