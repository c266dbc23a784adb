"""The struct of a mesh in C for MPI: coordinates, communicators, and the reductions it lacks."""

import math
from collections.abc import Sequence

from collir.dialects.local import StartOp
from collir.dialects.local_types import buffer_of
from collir.layout import Reduction
from collir.machine import host_level
from collir.targets.code.c_mesh import HANDLE, CMesh
from collir.targets.code.c_text import AS_BITS, CustomOperator
from collir.targets.code.ranks import needed_ranks


class MpiMesh(CMesh):
    """The struct of a mesh in C for MPI."""

    @property
    def operators(self) -> list[CustomOperator]:
        """The reductions that MPI does not know."""
        return list(dict.fromkeys(filter(None, map(custom_operator, self.starts()))))

    def interface(self) -> list[str]:
        """Return the declarations of the functions of the mesh."""
        m = self.symbol
        return [
            f"{self.kind};",
            f"int  {m}_create(MPI_Comm comm, {self.kind} **{HANDLE});",
            f"int  {m}_create_f(MPI_Fint comm, {self.kind} **{HANDLE});",
            f"void {m}_destroy({self.kind} *{HANDLE});",
        ]

    def text(self, has_memory: bool, members: Sequence[str]) -> list[str]:
        """Return the struct, and the functions that make and free it.

        Args:
            has_memory: whether functions have temporaries.
            members: what functions in parts keep from one to the other.
        """
        more = [f"  MPI_Op {operator.name};" for operator in self.operators]
        more += members
        more += ["  struct memory workspace; /* of the functions' temporaries */"] * has_memory
        lines = self.struct("MPI_Comm", "", more)
        return [*lines, *self._destroy(has_memory), *self._create()]

    def _create(self) -> list[str]:
        mesh = self.mesh
        comms = [*map(self.member, self.communicators.values()), self.member("comm")]
        lines = [
            f"int {self.symbol}_create(MPI_Comm comm, {self.kind} **made)",
            "{",
            f"  {self.kind} *{HANDLE} = calloc(1, sizeof *{HANDLE});",
            "  int err = MPI_SUCCESS, size;",
            "  *made = NULL;",
            f"  if (!{HANDLE}) return MPI_ERR_NO_MEM;",
            *(f"  {comm} = MPI_COMM_NULL;" for comm in comms),
            *(f"  {self.member(x.name)} = MPI_OP_NULL;" for x in self.operators),
            "  TRY(MPI_Comm_size(comm, &size));",
            f'  if (size != {mesh.devices}) TRY(wrong_size("{needed_ranks(mesh)}", size));',
            f"  TRY(MPI_Comm_dup(comm, &{self.member('comm')}));",
            f"  TRY(MPI_Comm_set_errhandler({self.member('comm')}, MPI_ERRORS_RETURN));",
            f"  TRY(MPI_Comm_rank({self.member('comm')}, &{self.member('rank')}));",
        ]
        if warning := self._warning():
            slots, text = warning
            lines.append(f"  TRY(check_hosts({self.member('comm')}, {slots},")
            lines += [f"                  {line}" for line in text]
            lines[-1] += "));"
        lines += self.numbers()
        for colour, key, name in self.splits():
            lines.append(f"  TRY(MPI_Comm_split({self.member('comm')}, {colour},")
            lines.append(f"                     {key}, &{name}));")
            lines.append(f"  TRY(MPI_Comm_set_errhandler({name}, MPI_ERRORS_RETURN));")
        for operator in self.operators:
            lines.append(
                f"  TRY(MPI_Op_create({operator.name}, 1, &{self.member(operator.name)}));"
            )
        lines += ["done:", f"  if (err != MPI_SUCCESS) {self.symbol}_destroy({HANDLE});"]
        return [*lines, f"  else *made = {HANDLE};", "  return err;", "}", "", *self._create_f()]

    def _create_f(self) -> list[str]:
        """Return the function that Fortran calls, whose communicators are numbers."""
        return [
            f"int {self.symbol}_create_f(MPI_Fint comm, {self.kind} **made)",
            "{",
            f"  return {self.symbol}_create(MPI_Comm_f2c(comm), made);",
            "}",
            "",
        ]

    def _warning(self) -> tuple[int, list[str]] | None:
        """Return how many ranks a host has, and the warning where they are elsewhere, as literals
        of C; None where the machine is one host, or its hosts differ."""
        levels = self.mesh.machine.levels
        place = host_level(levels) if levels else -1
        if place < 0 or any(level.parents for level in levels):
            return None
        slots = math.prod(level.size for level in levels[place + 1 :])
        hosts = self.mesh.devices // slots
        text = [
            f"collir: mesh @{self.mesh.name} has {hosts} hosts of {slots} ranks that follow\\n",
            "each other, but the ranks run elsewhere: launch them by\\n",
            f"-ppn {slots} (MPICH), --map-by ppr:{slots}:node (Open MPI),\\n",
            f"--ntasks-per-node={slots} -m block (Slurm), or with -t hostfile or -t rankfile\\n",
        ]
        return slots, [f'"{line}"' for line in text]

    def has_hosts(self) -> bool:
        """Return whether the functions check the hosts of the ranks."""
        return self._warning() is not None

    def _destroy(self, has_memory: bool) -> list[str]:
        comms = [*self.communicators.values(), "comm"]
        made = [(self.member(name), "MPI_COMM_NULL", "MPI_Comm_free") for name in comms]
        made += [(self.member(x.name), "MPI_OP_NULL", "MPI_Op_free") for x in self.operators]
        return [
            f"void {self.symbol}_destroy({self.kind} *{HANDLE})",
            "{",
            f"  if (!{HANDLE}) return;",
            *(f"  if ({name} != {null}) {free}(&{name});" for name, null, free in made),
            *[f"  free({self.member('workspace')}.start);"] * has_memory,
            f"  free({HANDLE});",
            "}",
            "",
        ]


_BY_SUM = {Reduction.AVG: Reduction.SUM}
"""The reductions that consist of another one and a division."""

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
