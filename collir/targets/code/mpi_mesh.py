"""The struct of a mesh in C for MPI: communicators, and the reductions that MPI lacks."""

from collections.abc import Iterable

from xdsl.dialects.func import FuncOp

from collir.layout import DistType, Reduction
from collir.targets.code.c_mesh import coordinates_text, struct_text
from collir.targets.code.c_mesh import mesh_names as shared_mesh_names
from collir.targets.code.c_text import AS_BITS, CustomOperator, MeshNames
from collir.targets.code.ranks import needed_ranks

_BY_SUM = {Reduction.AVG: Reduction.SUM}
"""The reductions that are another one and a division."""

_ON_FLOATS = {
    Reduction.SUM: "a + b",
    Reduction.PROD: "a * b",
    Reduction.MAX: "a != a || a > b ? a : b",  # a NaN stays, on either side
    Reduction.MIN: "a != a || a < b ? a : b",
}


def mesh_text(names: MeshNames) -> list[str]:
    """Return the struct of a mesh, and the functions that fill and empty it."""
    mesh = names.mesh
    lines = struct_text(names, "static", "MPI_Comm")
    lines += [f"  MPI_Op {operator.name};" for operator in names.operators]
    variable = names.variable
    lines += [f"}} {variable};", ""]
    lines += [
        f"int {mesh.name}_init(MPI_Comm comm)",
        "{",
        "  int err = MPI_SUCCESS, size;",
        "  TRY(MPI_Comm_size(comm, &size));",
        f'  if (size != {mesh.devices}) return wrong_size("{needed_ranks(mesh)}", size);',
        f"  TRY(MPI_Comm_dup(comm, &{variable}.comm));",
        f"  TRY(MPI_Comm_set_errhandler({variable}.comm, MPI_ERRORS_RETURN));",
        f"  TRY(MPI_Comm_rank({variable}.comm, &{variable}.rank));",
    ]
    lines += coordinates_text(names)
    for axes, name in names.communicators.items():
        rest = [sub.name for sub in mesh.sub_axes if sub.name not in axes]
        lines.append(f"  TRY(MPI_Comm_split({variable}.comm, {names.index_over(rest)},")
        lines.append(f"                     {names.index_over(axes)}, &{variable}.{name}));")
        lines.append(f"  TRY(MPI_Comm_set_errhandler({variable}.{name}, MPI_ERRORS_RETURN));")
    for operator in names.operators:
        lines.append(f"  TRY(MPI_Op_create({operator.name}, 1, &{variable}.{operator.name}));")
    lines += ["done:", "  return err;", "}", ""]
    lines += [f"void {mesh.name}_finalize(void)", "{"]
    lines += [f"  MPI_Comm_free(&{variable}.{name});" for name in names.communicators.values()]
    lines += [f"  MPI_Comm_free(&{variable}.comm);"]
    lines += [f"  MPI_Op_free(&{variable}.{operator.name});" for operator in names.operators]
    lines += ["}", ""]
    return lines


def custom_operator(x: DistType) -> CustomOperator | None:
    """Return the operator that reduces a type MPI does not know, or None if MPI has one."""
    if x.dtype not in AS_BITS or x.reduction is None:
        return None
    return CustomOperator(_BY_SUM.get(x.reduction, x.reduction), x.dtype)


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


def mesh_names(functions: Iterable[FuncOp]) -> dict[str, MeshNames]:
    """Return for every mesh that functions are on its names, with the communicators and operators
    that the functions need."""
    return shared_mesh_names(functions, operator=custom_operator)
