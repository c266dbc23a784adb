"""The struct of a mesh in C for MPI: coordinates, communicators, and the reductions it lacks."""

from collir.dialects.local import StartOp
from collir.dialects.local_types import buffer_of
from collir.layout import Reduction
from collir.targets.code.c_mesh import CMesh
from collir.targets.code.c_text import AS_BITS, CustomOperator
from collir.targets.code.ranks import needed_ranks


class MpiMesh(CMesh):
    """The struct of a mesh in C for MPI."""

    @property
    def operators(self) -> list[CustomOperator]:
        """The reductions that MPI does not know."""
        return list(dict.fromkeys(filter(None, map(custom_operator, self.starts()))))

    def text(self, has_memory: bool) -> list[str]:
        """Return the struct, and the functions that fill and empty it.

        Args:
            has_memory: whether functions keep memory for their temporaries.
        """
        lines = self.struct("static", "MPI_Comm")
        lines += [f"  MPI_Op {operator.name};" for operator in self.operators]
        end = [f"}} {self.variable};", ""]
        return [*lines, *end, *self._init(), *self._finalize(has_memory)]

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
        lines += self.numbers()
        for colour, key, name in self.splits():
            lines.append(f"  TRY(MPI_Comm_split({variable}.comm, {colour},")
            lines.append(f"                     {key}, &{name}));")
            lines.append(f"  TRY(MPI_Comm_set_errhandler({name}, MPI_ERRORS_RETURN));")
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
