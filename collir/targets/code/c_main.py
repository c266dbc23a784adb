"""A main that runs every function on inputs it makes, times it, and checks it, in C or C++.

Every rank computes the whole result by itself, with the function's own local operations on the
global tensors and no collective, and compares its block. Inputs are small integers, so that no
order of reducing them rounds.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import MESH_ATTRIBUTE, MachineOp, MeshOp, mesh_of
from collir.dialects.tensor import AxesAttr, dist_type
from collir.ir.buffers import plan_buffers
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of
from collir.layout import Dim, DistType, DType, Mesh, Reduction
from collir.layout.coll import ALL_REDUCE
from collir.layout.cuts import Extent, cuts, places, units
from collir.semantics.reference.exactness import exact_results, roundings
from collir.semantics.reference.meaning import meaning
from collir.targets.code.c_mesh import HANDLE, CMesh
from collir.targets.code.c_text import (
    AS_BITS,
    C_ELEMENTS,
    C_TYPES,
    C,
    Words,
    element_count,
    size_text,
)
from collir.targets.code.names import raise_all

TITLE = """\
/* ---- A main that runs and checks the functions above ---------------------------------------- */
"""

INPUTS = """\
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

static uint32_t hashed(uint64_t x)
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
  double any = (int)(hashed(e * 1048573 + (uint64_t)part) % (unsigned)(2 * bound + 1)) - bound;
  if (parts == 1) return any;
  if (op == 'p') return (any < 0 ? -1 : 1) * (e % (uint64_t)parts == (uint64_t)part ? 2 : 1);
  if (op == 'a') {
    int up = (int)(hashed(e + 1) % (unsigned)parts), down = (int)(hashed(e + 2) % (unsigned)parts);
    return (int)(hashed(e) % 7) - 3 + parts * ((up == part) - (down == part));
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
"""
"""The functions that make the inputs."""

DIFFER = """\
/* Whether x is not y, up to rounding; nothing is near what is not a number. */
static inline int differ(double x, double y, double tolerance)
{
  return x != y && !(fabs(x - y) <= tolerance * fmax(1, fabs(y)));
}
"""
"""The function that compares rounded results."""

_OP_LETTERS = {
    None: "s",
    Reduction.SUM: "s",
    Reduction.PROD: "p",
    Reduction.MAX: "m",
    Reduction.MIN: "n",
    Reduction.AVG: "a",
}
"""The letters of reductions in ``INPUTS``."""


def runnable_functions(
    module: ModuleOp, refused: str, words: Words = C, more: re.Pattern[str] | None = None
) -> list[FuncOp]:
    """Return the functions of a module after checking that one main can run them.

    Args:
        refused: the end of the message about other programs.
        more: the names that a main uses beside the names in a main in C.

    Raises:
        DiagnosticError: names that the main uses, meshes of different sizes.
    """
    functions = functions_of(module)
    check_programs(functions, refused, nested=True)
    _check_one_size(functions)
    _check_main_names(functions, words, more)
    return functions


def exchanged_types(functions: Sequence[FuncOp]) -> list[DistType]:
    """Return the types of the arguments and results of functions."""
    return [
        dist_type(value)
        for function in functions
        for value in (*function.args, *plan_buffers(function).returned)
    ]


def dims_text(types: Sequence[DistType]) -> str:
    """Return the definition of the largest number of dimensions."""
    return f"#define MOST_DIMS {max([1, *(len(x.dims) for x in types)])}"


def _check_one_size(functions: Sequence[FuncOp]) -> None:
    """Check that all functions are for one number of ranks, as one main is."""
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
"""The variables of a function that runs another, which they must not hide."""


def _check_main_names(
    functions: Sequence[FuncOp], words: Words = C, more: re.Pattern[str] | None = None
) -> None:
    """Check that no function has a name that a main adds."""
    added = {
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
        if (name := function.sym_name.data) in added
        or _LOCALS.fullmatch(name)
        or (more and more.fullmatch(name))
    ]
    raise_all(errors)


def add_reference(module: ModuleOp, function: FuncOp) -> FuncOp:
    """Add the meaning of a function on one device to its module, and return it."""
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
    """Add a function that reduces the partial results of another, so that they can be compared, and
    return it; None if there are no partial results."""
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
# The function that runs another
# ---------------------------------------------------------------------------------------------


def bytes_text(count: int, x: DistType) -> str:
    """Return the bytes of a number of elements as a C expression."""
    return size_text(count * x.dtype.bytes)


def indented(lines: Sequence[str], by: int) -> list[str]:
    """Return lines further to the right."""
    return [" " * by + line for line in lines]


def _braces(sizes: Sequence[object]) -> str:
    return "{" + ", ".join(map(str, sizes or [1])) + "}"


def _stored(value: str, x: DistType) -> str:
    """Return a double of the functions above as an element."""
    if x.dtype in AS_BITS:
        return f"{x.dtype}_store((float){value})"
    if x.dtype is DType.BOOL:  # keeps the order, so also the maximum and the minimum
        return f"({C_TYPES[x.dtype]})({value} > 0)"
    return f"({C_TYPES[x.dtype]}){value}"


def handle_of(mesh: Mesh) -> str:
    """Return the variable of a main that holds the handle of a mesh."""
    return f"mesh_{mesh.name}"


Names = TypeVar("Names", bound=CMesh)
"""The names of a mesh in a language."""


@dataclass
class CheckedRun(ABC, Generic[Names]):
    """The function that runs another, times it, and returns whether its results are wrong.

    Attributes:
        reference: the function on one device.
        total: the function that reduces the partial results, if there are any.
    """

    function: FuncOp
    reference: FuncOp
    total: FuncOp | None
    names: Names

    def __post_init__(self) -> None:
        self.mesh = self.names.mesh
        self.name = self.function.sym_name.data
        arguments = [dist_type(arg) for arg in self.function.args]
        results = [dist_type(value) for value in plan_buffers(self.function).returned]
        self.inputs = {f"in{i}": x for i, x in enumerate(arguments)}
        self.outputs = {f"out{i}": x for i, x in enumerate(results)}
        self.partial = [variable for variable, x in self.outputs.items() if x.partial]
        self.totals = {f"total_{variable}": self.outputs[variable] for variable in self.partial}

    # --- what a runtime says ----------------------------------------------------------------

    @abstractmethod
    def variables(self) -> list[str]:
        """Return the declarations beside those of the buffers of the host."""

    def opening(self) -> list[str]:
        """Return the statements between the declarations and the inputs."""
        return []

    @abstractmethod
    def timed_calls(self) -> list[str]:
        """Return the statements that call the function and measure the time in ``best``."""

    @abstractmethod
    def reduced_partials(self) -> list[str]:
        """Return the statements that reduce the partial results."""

    @abstractmethod
    def agreement(self) -> str:
        """Return the statement that sets ``anywhere`` to whether ``wrong`` is set on any rank."""

    @abstractmethod
    def report(self) -> list[str]:
        """Return the statements that print the time, and the label ``done``."""

    def closing(self) -> list[str]:
        """Return the statements behind the report that undo ``opening``."""
        return []

    @abstractmethod
    def verdict(self) -> str:
        """Return the expression of the value to return."""

    def count_text(self, count: int) -> str:
        """Return a number of elements of a tensor as a C expression."""
        return size_text(count)

    # --- what the runtimes share ------------------------------------------------------------

    def text(self) -> str:
        """Return the function."""
        return self.names.resolved("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        return [
            f"static int run_{self.name}({self.names.kind} *{HANDLE}, int repeats, int check)",
            "{",
            *indented(self.variables(), 2),
            *indented(self._declarations(), 2),
            *indented(self.opening(), 2),
            *indented(self._made_inputs(), 2),
            *indented(self.timed_calls(), 2),
            "  if (check) {",
            *indented(self._comparison(), 4),
            "  }",
            *indented(self.report(), 2),
            *indented(self.closing(), 2),
            *indented([f"free({variable});" for variable in self._host_buffers()], 2),
            f"  return {self.verdict()};",
            "}",
            "",
        ]

    def differs(self) -> bool:
        """Return whether results are compared up to rounding."""
        return bool(self.outputs and self.epsilons())

    def new(self, variable: str, x: DistType) -> str:
        """Return the statement that gets memory for a rank's part of a value."""
        return f"NEW({variable}, {bytes_text(element_count(x, self.mesh), x)});"

    def _host_buffers(self) -> dict[str, DistType]:
        """Return the types of all buffers of the host by their variables."""
        exchanged = self.inputs | self.outputs
        return exchanged | self.totals | {f"whole_{name}": x for name, x in exchanged.items()}

    def _declarations(self) -> list[str]:
        return [f"{C_TYPES[x.dtype]} *{name} = NULL;" for name, x in self._host_buffers().items()]

    def _layout(self, x: DistType) -> str:
        """Return the variable that describes this rank's block of a tensor."""
        local = x.local_shape(self.mesh)
        starts = [
            self._block_start(dim, size) if dim.axes else "0"
            for dim, size in zip(x.dims, local, strict=True)
        ]
        sizes = [_braces([size_text(n) for n in shape]) for shape in (local, x.shape)]
        return f"const layout lies = {{{len(local)}, {sizes[0]}, {sizes[1]}, {_braces(starts)}}};"

    def _block_start(self, dim: Dim, local: int) -> str:
        """Return where this rank's block of a dimension starts."""
        index = self.names.index_over(dim.axes)
        if not isinstance(local, Extent):
            return f"(size_t)({index}) * {size_text(local)}"
        count = units(self.mesh, dim.axes)
        starts = [cuts(self.mesh, count, dim.axes, at)[0] for at in places(self.mesh, dim.axes)]
        table = f"(const int[]){{{', '.join(map(str, starts))}}}"
        return f"(size_t){table}[{index}] * {size_text(dim.size // count)}"

    def _made_inputs(self) -> list[str]:
        """Return the statements that make this rank's blocks, also where the rank is at no root and
        the block is never read."""
        lines: list[str] = []
        for variable, x in self.inputs.items():
            part = self.names.index_over(self.mesh.ordered(x.partial))
            parts = self.mesh.group_size(x.partial)
            value = f"part_value(place(&lies, i), {part}, {parts}, '{_OP_LETTERS[x.reduction]}')"
            lines += [
                self.new(variable, x),
                "{",
                f"  {self._layout(x)}",
                f"  for (size_t i = 0; i < {size_text(element_count(x, self.mesh))}; ++i)",
                f"    {variable}[i] = {_stored(value, x)};",
                "}",
            ]
        return lines

    def _comparison(self) -> list[str]:
        """Return the statements that compute the whole result on every rank, and compare this
        rank's block with it."""
        lines = self.reduced_partials()
        exchanged = self.inputs | self.outputs
        for variable, x in exchanged.items():
            lines.append(f"NEW(whole_{variable}, {bytes_text(x.elements, x)});")
        for variable, x in self.inputs.items():
            parts = self.mesh.group_size(x.partial)
            value = f"whole_value(i, {parts}, '{_OP_LETTERS[x.reduction]}')"
            lines += [
                f"for (size_t i = 0; i < {self.count_text(x.elements)}; ++i)",
                f"  whole_{variable}[i] = {_stored(value, x)};",
            ]
        wholes = ", ".join(f"whole_{variable}" for variable in exchanged)
        lines.append(f"TRY({self.reference.sym_name.data}({wholes}));")
        for variable, x in self.outputs.items():
            lines += self._compared(variable, x)
        return [*lines, self.agreement()]

    def exact(self) -> set[str]:
        """Return the variables of the results that no step rounds."""
        return self._exact

    @cached_property
    def _exact(self) -> set[str]:
        exact = zip(self.outputs, exact_results(self.function), strict=True)
        return {variable for variable, is_exact in exact if is_exact}

    def epsilons(self) -> int:
        """Return the bound on the error of a result that is rounded, in epsilons of its dtype."""
        return roundings(self.function) if self.outputs.keys() - self.exact() else 0

    def _compared(self, variable: str, x: DistType) -> list[str]:
        """Return the statements that compare this rank's block of a result."""
        computed = f"total_{variable}" if x.partial else variable
        value, right = (
            C_ELEMENTS.load(text, x.dtype) for text in (f"{computed}[i]", f"whole_{variable}[at]")
        )
        off = f"{value} != {right}"
        if (epsilons := self.epsilons()) and variable not in self.exact():
            epsilon = x.dtype.epsilon or DType.BF16.epsilon  # an integer may be a rounded float
            off = f"differ({value}, {right}, {epsilon * epsilons!r})"
        holds = self.names.at_place(x.place)
        return [
            f"if ({holds}) {{" if holds else "{",
            f"  {self._layout(x)}",
            f"  for (size_t i = 0; i < {size_text(element_count(x, self.mesh))}; ++i) {{",
            "    uint64_t at = place(&lies, i);",
            f"    if ({off}) wrong = 1;",
            "  }",
            "}",
        ]
