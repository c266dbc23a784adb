"""The struct of a mesh in C for MPI: coordinates, communicators, and the reductions it lacks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collir.dialects.local import LocalFuncOp, StartOp
from collir.dialects.local_types import buffer_of
from collir.layout import Mesh, Reduction
from collir.layout.cuts import with_shares
from collir.layout.local import CoordinateTable, table
from collir.targets.code.c_text import (
    AS_BITS,
    Comment,
    CustomOperator,
    comment,
    factor_text,
    size_text,
    variables,
)
from collir.targets.code.rank_names import RankNames, tables_in
from collir.targets.code.ranks import OverList, axes_text, needed_ranks


@dataclass(frozen=True)
class MpiMesh(RankNames):
    """The C struct of a mesh: its variable, and its members.

    Attributes:
        members: the member for the coordinate on each sub-axis.
        communicators: the member for each ordered list of sub-axes that a program sends over.
        tables: the member for the number of this rank in each table by coordinates.
        operators: the reductions that MPI does not know.
    """

    AND = "&&"
    DIVIDE = "/"
    CHOICE = "{condition} ? {then} : {other}"

    mesh: Mesh
    variable: str
    members: dict[str, str]
    communicators: dict[OverList, str]
    tables: dict[CoordinateTable, str]
    operators: Sequence[CustomOperator]

    @staticmethod
    def of(mesh: Mesh, functions: Iterable[LocalFuncOp]) -> "MpiMesh":
        """Return distinct names, also where ``a_b.c`` and ``a.b_c`` would look the same."""
        functions = list(functions)
        starts = [op for f in functions for op in f.walk() if isinstance(op, StartOp)]
        lists = list(dict.fromkeys(op.axes.data for op in starts if op.axes.data))
        axes, tables = [sub.name for sub in mesh.sub_axes], tables_in(functions)
        words = [*axes, *("over_" + "_".join(over) for over in lists)]
        words += ["by_" + "_".join(mesh.short(atom.axes)) for atom in tables]
        # `rank` and `comm` are members of every mesh.
        names = iter(variables(["rank", "comm", *words])[2:])
        members = {axis: next(names) for axis in axes}
        communicators = {over: next(names) for over in lists}
        operators = dict.fromkeys(filter(None, map(custom_operator, starts)))
        own = {atom: next(names) for atom in tables}
        return MpiMesh(mesh, f"mesh_{mesh.name}", members, communicators, own, tuple(operators))

    def member(self, name: str) -> str:
        return f"{self.variable}.{name}"

    def atom(self, atom: str) -> str:
        if atom in self.members and not isinstance(atom, CoordinateTable):
            return f"(size_t){self.coordinate(atom)}"
        return super().atom(atom)

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

    def real(self, atom: str) -> str:
        return f"(double){atom}"

    def communicator(self, over: OverList) -> str:
        """Return the communicator of a list of sub-axes; without any, that of the mesh."""
        return self.member(self.communicators[over] if over else "comm")

    def struct(self, has_memory: bool) -> list[str]:
        """Return the struct, and the functions that fill and empty it.

        Args:
            has_memory: whether functions keep memory for their temporaries.
        """
        mesh, variable = self.mesh, self.variable
        lines = [
            Comment(
                f"/* mesh @{mesh.name} on @{comment(mesh.machine.name)}: {mesh.devices} ranks, "
                f"{comment(axes_text(mesh))}. */"
            ),
            "static struct {",
            "  MPI_Comm comm;",
            "  int rank;",
        ]
        if mesh.sub_axes:
            coordinates = ", ".join(self.members[sub.name] for sub in mesh.sub_axes)
            lines.append(f"  int {coordinates}; /* this rank's coordinates */")
        lines += [
            f"  MPI_Comm {name}; /* ranks that differ in {comment(', '.join(over))} only */"
            for over, name in self.communicators.items()
        ]
        lines += [
            f"  size_t {name}; /* {_shortened(comment(atom))} */"
            for atom, name in self.tables.items()
        ]
        lines += [f"  MPI_Op {operator.name};" for operator in self.operators]
        return [*lines, f"}} {variable};", "", *self._init(), *self._finalize(has_memory)]

    def _init(self) -> list[str]:
        mesh, variable = self.mesh, self.variable
        lines = [
            f"int {mesh.name}_init(MPI_Comm comm)",
            "{",
            "  int err = MPI_SUCCESS, size;",
            "  TRY(MPI_Comm_size(comm, &size));",
            f'  if (size != {mesh.devices}) return wrong_size("{needed_ranks(mesh)}", size);',
            f"  TRY(MPI_Comm_dup(comm, &{variable}.comm));",
            f"  TRY(MPI_Comm_set_errhandler({variable}.comm, MPI_ERRORS_RETURN));",
            f"  TRY(MPI_Comm_rank({variable}.comm, &{variable}.rank));",
        ]
        values = self.definitions(f"{variable}.rank")
        lines += [f"  {coordinate} = {value};" for coordinate, value in values]
        for atom, name in self.tables.items():
            numbers = ", ".join(map(str, atom.values))
            lines.append(f"  {{ static const size_t parts[] = {{{numbers}}};")
            lines.append(f"    {variable}.{name} = parts[{self.index_over(atom.axes)}]; }}")
        for axes, name in self.communicators.items():
            rest = [sub.name for sub in mesh.sub_axes if sub.name not in axes]
            lines.append(f"  TRY(MPI_Comm_split({variable}.comm, {self.index_over(rest)},")
            lines.append(f"                     {self.index_over(axes)}, &{variable}.{name}));")
            lines.append(f"  TRY(MPI_Comm_set_errhandler({variable}.{name}, MPI_ERRORS_RETURN));")
        for operator in self.operators:
            lines.append(f"  TRY(MPI_Op_create({operator.name}, 1, &{variable}.{operator.name}));")
        return [*lines, "done:", "  return err;", "}", ""]

    def _finalize(self, has_memory: bool) -> list[str]:
        lines = [f"void {self.mesh.name}_finalize(void)", "{"]
        names = [*self.communicators.values(), "comm"]
        lines += [f"  MPI_Comm_free(&{self.member(name)});" for name in names]
        lines += [f"  MPI_Op_free(&{self.member(operator.name)});" for operator in self.operators]
        if has_memory:
            lines.append("  free(collir_workspace.start);")
            lines.append("  collir_workspace.start = NULL, collir_workspace.bytes = 0;")
        return [*lines, "}", ""]


def _shortened(text: str) -> str:
    """Return a text of at most a line."""
    return text if len(text) <= 60 else f"{text[:40]} ...{text[text.rindex('][') :][1:]}"


_BY_SUM = {Reduction.AVG: Reduction.SUM}
"""The reductions that are another one and a division."""

_ON_FLOATS = {
    Reduction.SUM: "a + b",
    Reduction.PROD: "a * b",
    Reduction.MAX: "a != a || a > b ? a : b",  # a NaN stays, on either side
    Reduction.MIN: "a != a || a < b ? a : b",
}


def custom_operator(op: StartOp) -> CustomOperator | None:
    """Return the operator that reduces a type MPI does not know, or None if MPI has one."""
    dtype, reduction = buffer_of(op.source).dtype, op.operation
    if dtype not in AS_BITS or reduction is None:
        return None
    return CustomOperator(_BY_SUM.get(reduction, reduction), dtype)


def operator_text(operator: CustomOperator) -> list[str]:
    """Return the function of a reduction that MPI does not know."""
    dtype = operator.dtype
    return [
        f"static void {operator.name}(void *in, void *inout, int *n, MPI_Datatype *type)",
        "{",
        "  const uint16_t *x = in;",
        "  uint16_t *y = inout;",
        "  (void)type;",
        "  for (int i = 0; i < *n; ++i) {",
        f"    float a = {dtype}_load(x[i]), b = {dtype}_load(y[i]);",
        f"    y[i] = {dtype}_store({_ON_FLOATS[operator.reduction]});",
        "  }",
        "}",
        "",
    ]
