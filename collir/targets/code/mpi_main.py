"""A main for the MPI target: runs every function on inputs it makes, times it, and checks it.

Every rank computes the whole result by itself, with the function's own local operations on the
global tensors and no collective, and compares its block. Inputs are small integers, so
that no order of reducing them rounds.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import MESH_ATTRIBUTE, MachineOp, MeshOp, mesh_of
from collir.dialects.tensor import AxesAttr, dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of
from collir.layout import DistType, DType, Reduction
from collir.layout.steps import ALL_REDUCE
from collir.semantics.reference.exactness import exact, roundings
from collir.semantics.reference.meaning import meaning
from collir.targets.code.c_text import (
    AS_BITS,
    C_ELEMENTS,
    C_TYPES,
    C,
    MeshNames,
    Words,
    element_count,
    size_text,
)
from collir.targets.code.mpi_function import emit_c, mesh_names

_INCLUDES = ("limits.h", "math.h", "mpi.h", "stdint.h", "stdio.h", "stdlib.h", "string.h")

SUPPORT = """\
/* ---- A main that runs and checks the functions above ---------------------------------------- */

/* How a tensor lies: the sizes of a block and of the whole, and where the block starts. */
typedef struct {
  int dims;
  size_t local[MOST_DIMS], whole[MOST_DIMS], start[MOST_DIMS];
} layout;

/* The place in the whole tensor of the i-th element of this rank's block. */
static uint64_t place(const layout *x, size_t i)
{
  uint64_t index = 0, stride = 1;
  for (int d = x->dims - 1; d >= 0; --d) {
    index += (x->start[d] + i % x->local[d]) * stride;
    i /= x->local[d];
    stride *= x->whole[d];
  }
  return index;
}

static uint32_t mixed(uint64_t x)
{
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return (uint32_t)(x ^ x >> 33);
}

/* What the part-th of `parts` devices holds of element e: small integers, so that reducing them is
 * exact in any order and type. `op` is s(um), p(roduct), m(ax), n (min), a(verage). */
static double part_value(uint64_t e, int part, int parts, char op)
{
  int bound = parts > 24 ? 1 : parts > 16 ? 2 : 3;
  double any = (int)(mixed(e * 1048573 + (uint64_t)part) % (unsigned)(2 * bound + 1)) - bound;
  if (parts == 1) return any;
  if (op == 'p') return (any < 0 ? -1 : 1) * (e % (uint64_t)parts == (uint64_t)part ? 2 : 1);
  if (op == 'a') {
    int up = (int)(mixed(e + 1) % (unsigned)parts), down = (int)(mixed(e + 2) % (unsigned)parts);
    return (int)(mixed(e) % 7) - 3 + parts * ((up == part) - (down == part));
  }
  return any;
}

/* The element that the parts stand for. */
static double whole_value(uint64_t e, int parts, char op)
{
  double total = part_value(e, 0, parts, op);
  for (int part = 1; part < parts; ++part) {
    double one = part_value(e, part, parts, op);
    if (op == 'p') total *= one;
    else if (op == 'm') total = one > total ? one : total;
    else if (op == 'n') total = one < total ? one : total;
    else total += one;
  }
  return op == 'a' ? total / parts : total;
}

/* Whether x is not y, up to rounding; nothing is near what is not a number. */
static inline int differ(double x, double y, double tolerance)
{
  return x != y && !(fabs(x - y) <= tolerance * fmax(1, fabs(y)));
}
"""

OP_LETTERS = {
    None: "s",
    Reduction.SUM: "s",
    Reduction.PROD: "p",
    Reduction.MAX: "m",
    Reduction.MIN: "n",
    Reduction.AVG: "a",
}


def emit_with_main(module: ModuleOp) -> str:
    """The C of a module with a main; the functions it needs beside are static.

    Raises:
        DiagnosticError: names that C cannot have, meshes of different sizes.
    """
    whole = module.clone()
    functions = functions_of(whole)
    check_programs(functions, "has no form in MPI")
    check_one_size(functions)
    check_main_names(functions)
    names = mesh_names(functions)
    hidden: list[FuncOp] = []
    runs: list[str] = []
    for function in functions:
        reference = add_reference(whole, function)
        total = add_total(whole, function)
        hidden += [reference] if total is None else [reference, total]
        mesh = names[mesh_of(function).name]
        runs.append(Run(function, reference, total, mesh).text())
    types = [dist_type(v) for f in functions for v in (*f.args, *plan_buffers(f).returned)]
    most_dims = max([1, *(len(x.dims) for x in types)])
    return "\n".join(
        [
            emit_c(whole, hidden, _INCLUDES, {x.dtype.value for x in types if x.dtype in AS_BITS}),
            f"#define MOST_DIMS {most_dims}",
            "",
            SUPPORT,
            *runs,
            _main_text(functions, list(names.values())),
        ]
    )


def check_one_size(functions: Sequence[FuncOp]) -> None:
    """One main runs on one number of ranks."""
    for function in functions[1:]:
        first, mesh = mesh_of(functions[0]), mesh_of(function)
        if mesh.devices != first.devices:
            raise DiagnosticError.at(
                function,
                f"a main runs on one number of ranks, but mesh @{first.name} has {first.devices} "
                f"devices and mesh @{mesh.name} has {mesh.devices}: put them in different files",
            )


_LOCALS = re.compile(
    r"err|wrong|anywhere|best|repeats|check|start|taken|slowest|(whole_|total_)?(in|out)\d+"
)
"""The variables of a function that runs another, which must not hide that."""


def check_main_names(
    functions: Sequence[FuncOp], words: Words = C, more: re.Pattern[str] | None = None
) -> None:
    """What a main adds has names of its own."""
    made = {
        f"{prefix}_{function.sym_name.data}"
        for function in functions
        for prefix in ("run", "reference", "total")
    }
    errors = [
        DiagnosticError.at(
            function,
            f"function @{name} cannot be {words.language} with a main, which uses '{name}'; "
            "rename it",
        )
        for function in functions
        if (name := function.sym_name.data) in made
        or _LOCALS.fullmatch(name)
        or (more and more.fullmatch(name))
    ]
    if errors:
        raise DiagnosticError([d for error in errors for d in error.diagnostics])


def add_reference(module: ModuleOp, function: FuncOp) -> FuncOp:
    """What the function means, on one device, as a function of the same module."""
    alone_module, alone = meaning(function)
    present = {op.sym_name for op in module.ops if isinstance(op, MachineOp | MeshOp)}
    for op in list(alone_module.ops):
        if not isinstance(op, MachineOp | MeshOp) or op.sym_name not in present:
            op.detach()
            module.body.block.add_op(op)
    alone.properties["sym_name"] = StringAttr(f"reference_{function.sym_name.data}")
    alone.location = function.location
    return alone


def add_total(module: ModuleOp, function: FuncOp) -> FuncOp | None:
    """A function that reduces the partial results of another, so that they can be compared."""
    mesh = mesh_of(function)
    partial = [value for value in plan_buffers(function).returned if dist_type(value).partial]
    if not partial:
        return None
    block = Block(arg_types=[value.type for value in partial])
    for arg in block.args:
        axes = AxesAttr(mesh.ordered(dist_type(arg).partial))
        block.add_op(OPERATIONS[ALL_REDUCE.name].make(mesh, arg, axes=axes))
    results = [result for op in block.ops for result in op.results]
    block.add_op(ReturnOp(*results))
    types = block.arg_types, [result.type for result in results]
    total = FuncOp(f"total_{function.sym_name.data}", types, Region(block))
    total.attributes[MESH_ATTRIBUTE] = function.attributes[MESH_ATTRIBUTE]
    total.location = function.location
    module.body.block.add_op(total)
    return total


# ---------------------------------------------------------------------------------------------
# The function that runs one
# ---------------------------------------------------------------------------------------------


def bytes_text(count: int, x: DistType) -> str:
    """A number of bytes as a C expression."""
    return size_text(count * x.dtype.bytes)


def _braces(sizes: Sequence[object]) -> str:
    return "{" + ", ".join(map(str, sizes or [1])) + "}"


def indented(lines: Sequence[str], by: int) -> list[str]:
    """Lines further to the right."""
    return [" " * by + line for line in lines]


@dataclass
class Run:
    """The C function that runs another, times it, and returns whether its results are right."""

    function: FuncOp
    reference: FuncOp
    total: FuncOp | None
    names: MeshNames

    def __post_init__(self) -> None:
        self.mesh = self.names.mesh
        self.name = self.function.sym_name.data
        arguments = [dist_type(arg) for arg in self.function.args]
        results = [dist_type(value) for value in plan_buffers(self.function).returned]
        self.inputs = {f"in{i}": x for i, x in enumerate(arguments)}
        self.outputs = {f"out{i}": x for i, x in enumerate(results)}
        self.totals = {f"total_{v}": x for v, x in self.outputs.items() if x.partial}

    def text(self) -> str:
        """The whole function."""
        return "\n".join(
            [
                f"static int run_{self.name}(int repeats, int check)",
                "{",
                "  int err = MPI_SUCCESS, wrong = 0, anywhere = 0;",
                "  double best = 1e300;",
                *indented(self.declarations(), 2),
                *indented(self.filled(), 2),
                *indented(self._timed_calls(), 2),
                "  if (check) {",
                *indented(self.comparison(), 4),
                "  }",
                *indented(self._report(), 2),
                *indented([f"free({variable});" for variable in self.all_buffers()], 2),
                "  return anywhere;",
                "}",
                "",
            ]
        )

    def all_buffers(self) -> dict[str, DistType]:
        """All buffers of the host."""
        mine = self.inputs | self.outputs
        return mine | self.totals | {f"whole_{variable}": x for variable, x in mine.items()}

    def declarations(self) -> list[str]:
        """A variable for each buffer."""
        return [f"{C_TYPES[x.dtype]} *{name} = NULL;" for name, x in self.all_buffers().items()]

    def layout(self, x: DistType) -> str:
        """A C value that says how this rank's block of a tensor lies in the whole."""
        local = x.local_shape(self.mesh)
        starts = [
            f"(size_t)({self.names.index_over(dim.axes)}) * {size_text(size)}" if dim.axes else "0"
            for dim, size in zip(x.dims, local, strict=True)
        ]
        sizes = [_braces([size_text(n) for n in shape]) for shape in (local, x.shape)]
        return f"const layout lies = {{{len(local)}, {sizes[0]}, {sizes[1]}, {_braces(starts)}}};"

    def filled(self) -> list[str]:
        """Fills this rank's blocks; what a rank at no root holds is never read."""
        lines: list[str] = []
        for variable, x in self.inputs.items():
            count = element_count(x, self.mesh)
            part = self.names.index_over(self.mesh.ordered(x.partial))
            parts = self.mesh.group_size(x.partial)
            value = f"part_value(place(&lies, i), {part}, {parts}, '{OP_LETTERS[x.reduction]}')"
            lines += [
                f"NEW({variable}, {bytes_text(count, x)});",
                "{",
                f"  {self.layout(x)}",
                f"  for (size_t i = 0; i < {size_text(count)}; ++i)",
                f"    {variable}[i] = {stored(value, x)};",
                "}",
            ]
        return lines

    def _timed_calls(self) -> list[str]:
        comm = f"{self.names.variable}.comm"
        new = [
            f"NEW({variable}, {bytes_text(element_count(x, self.mesh), x)});"
            for variable, x in self.outputs.items()
        ]
        return [
            *new,
            "for (int i = 0; i < repeats; ++i) {",
            "  double start, taken, slowest;",
            f"  TRY(MPI_Barrier({comm}));",
            "  start = MPI_Wtime();",
            f"  TRY({self.name}({', '.join([*self.inputs, *self.outputs])}));",
            "  taken = MPI_Wtime() - start;",
            f"  TRY(MPI_Allreduce(&taken, &slowest, 1, MPI_DOUBLE, MPI_MAX, {comm}));",
            "  if (slowest < best) best = slowest;",
            "}",
        ]

    def comparison(self) -> list[str]:
        """Computes the whole result on every rank, and compares this rank's block with it."""
        lines = [
            f"NEW({variable}, {bytes_text(element_count(x, self.mesh), x)});"
            for variable, x in self.totals.items()
        ]
        if self.total is not None:
            partial = [variable.removeprefix("total_") for variable in self.totals]
            lines.append(f"TRY(total_{self.name}({', '.join([*partial, *self.totals])}));")
        for variable, x in (self.inputs | self.outputs).items():
            lines.append(f"NEW(whole_{variable}, {bytes_text(x.elements, x)});")
        for variable, x in self.inputs.items():
            parts = self.mesh.group_size(x.partial)
            value = f"whole_value(i, {parts}, '{OP_LETTERS[x.reduction]}')"
            lines += [
                f"for (size_t i = 0; i < {size_text(x.elements)}; ++i)",
                f"  whole_{variable}[i] = {stored(value, x)};",
            ]
        wholes = ", ".join(f"whole_{variable}" for variable in self.inputs | self.outputs)
        lines.append(f"TRY({self.reference.sym_name.data}({wholes}));")
        for variable, x in self.outputs.items():
            lines += self.compare(variable, x)
        comm = f"{self.names.variable}.comm"
        return [*lines, f"TRY(MPI_Allreduce(&wrong, &anywhere, 1, MPI_INT, MPI_MAX, {comm}));"]

    def epsilons(self) -> int:
        """How far results may be off."""
        return 0 if exact(self.function) else roundings(self.function)

    def compare(self, variable: str, x: DistType) -> list[str]:
        done = f"total_{variable}" if x.partial else variable
        mine, right = (
            C_ELEMENTS.load(f"{done}[i]", x.dtype),
            C_ELEMENTS.load(f"whole_{variable}[at]", x.dtype),
        )
        off = f"{mine} != {right}"
        if epsilons := self.epsilons():
            epsilon = x.dtype.epsilon or DType.BF16.epsilon  # an integer may be a rounded float
            off = f"differ({mine}, {right}, {epsilon * epsilons!r})"
        holds = self.names.at_zero(x.root)
        return [
            f"if ({holds}) {{" if holds else "{",
            f"  {self.layout(x)}",
            f"  for (size_t i = 0; i < {size_text(element_count(x, self.mesh))}; ++i) {{",
            "    uint64_t at = place(&lies, i);",
            f"    if ({off}) wrong = 1;",
            "  }",
            "}",
        ]

    def _report(self) -> list[str]:
        rank = f"{self.names.variable}.rank"
        return [
            f"if ({rank} == 0)",
            f'  printf("{self.name}: %s on {self.mesh.devices} ranks, best of %d: %.3f ms\\n",',
            '         !check ? "not checked" : anywhere ? "WRONG" : "ok", repeats, best * 1e3);',
            "done:",
            "if (err != MPI_SUCCESS) {",
            "  char text[MPI_MAX_ERROR_STRING];",
            "  int length;",
            "  MPI_Error_string(err, text, &length);",
            f'  fprintf(stderr, "{self.name}: rank %d: %s\\n", {rank}, text);',
            "  MPI_Abort(MPI_COMM_WORLD, 1);",
            "}",
        ]


def stored(value: str, x: DistType) -> str:
    """A value of the support code as an element."""
    if x.dtype in AS_BITS:
        return f"{x.dtype}_store((float){value})"
    return f"({C_TYPES[x.dtype]}){value}"


def _main_text(functions: Sequence[FuncOp], meshes: Sequence[MeshNames]) -> str:
    lines = [
        "/* Arguments: how often to run each function (default 10), and 0 not to check. */",
        "int main(int argc, char **argv)",
        "{",
        "  int repeats = argc > 1 ? atoi(argv[1]) : 10, check = argc > 2 ? atoi(argv[2]) : 1;",
        "  int wrong = 0, rank, length, err = MPI_Init(&argc, &argv);",
        "  char text[MPI_MAX_ERROR_STRING];",
        "  if (err != MPI_SUCCESS || repeats < 1) return 1;",
        "  MPI_Comm_rank(MPI_COMM_WORLD, &rank);",
    ]
    for names in meshes:
        lines += [
            f"  if ((err = {names.mesh.name}_init(MPI_COMM_WORLD)) != MPI_SUCCESS) {{",
            "    MPI_Error_string(err, text, &length);",
            '    if (rank == 0) fprintf(stderr, "%s\\n", text);',
            "    MPI_Finalize();",
            "    return 1;",
            "  }",
        ]
    lines += [f"  wrong |= run_{f.sym_name.data}(repeats, check);" for f in functions]
    lines += [f"  {names.mesh.name}_finalize();" for names in meshes]
    return "\n".join([*lines, "  MPI_Finalize();", "  return wrong;", "}", ""])
