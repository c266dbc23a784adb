"""C for MPI 3.0 and C99: one function per ``func``, communicators made once."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

import collir
from collir.cost.programs.compute import step_seconds
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.ir.alternatives import alternatives
from collir.ir.functions import check_programs, functions_of
from collir.ir.steps import is_free
from collir.layout import DistType, DType, Mesh, Reduction
from collir.layout.steps import PAD, PERMUTE
from collir.targets.code.c_function import (
    DECLARATIONS,
    SIZED,
    FunctionBase,
    check_names,
    coordinates_text,
    header_text,
    runtime,
    struct_text,
)
from collir.targets.code.c_text import (
    AS_BITS,
    C_TYPES,
    MeshNames,
    Names,
    Sizes,
    element_count,
    load,
    local_operation,
    loop,
    number_text,
    size_text,
    store,
)
from collir.targets.code.ranks import OverList, needed_ranks, outermost

MPI_TYPES = {
    DType.F16: "MPI_UINT16_T",
    DType.BF16: "MPI_UINT16_T",
    DType.F32: "MPI_FLOAT",
    DType.F64: "MPI_DOUBLE",
    DType.I8: "MPI_INT8_T",
    DType.I32: "MPI_INT32_T",
    DType.I64: "MPI_INT64_T",
}
"""The MPI datatype of every element type; f16 and bf16 travel as their bits."""

_MPI_OPS = {
    Reduction.SUM: "MPI_SUM",
    Reduction.AVG: "MPI_SUM",
    Reduction.PROD: "MPI_PROD",
    Reduction.MAX: "MPI_MAX",
    Reduction.MIN: "MPI_MIN",
}

_ON_FLOATS = {
    Reduction.SUM: "a + b",
    Reduction.PROD: "a * b",
    Reduction.MAX: "a != a || a > b ? a : b",  # a NaN stays, on either side
    Reduction.MIN: "a != a || a < b ? a : b",
}

STARTS = {
    "all_reduce": "MPI_Iallreduce({x}, {y}, {n}, {type}, {op}, {comm})",
    "reduce": "MPI_Ireduce({x}, {y}, {n}, {type}, {op}, 0, {comm})",
    "broadcast": "MPI_Ibcast({y}, {n}, {type}, 0, {comm})",
    "reduce_scatter": "MPI_Ireduce_scatter_block({x}, {y}, {n}, {type}, {op}, {comm})",
    "all_gather": "MPI_Iallgather({x}, {n}, {type}, {y}, {n}, {type}, {comm})",
    "scatter": "MPI_Iscatter({x}, {n}, {type}, {y}, {n}, {type}, 0, {comm})",
    "gather": "MPI_Igather({x}, {n}, {type}, {y}, {n}, {type}, 0, {comm})",
    "all_to_all": "MPI_Ialltoall({x}, {n}, {type}, {y}, {n}, {type}, {comm})",
}
"""The calls that start a collective, but for their request.

The calls that wait are functions of the runtime (mpi_runtime.c) with the names of collectives, and
``_rows`` behind them where the blocks of a later dimension are moved.
"""

_MOST_STARTED = 2**31 - 1
"""The most elements that one call takes."""

# ---------------------------------------------------------------------------------------------
# One mesh
# ---------------------------------------------------------------------------------------------


def _mesh_text(names: MeshNames) -> list[str]:
    """The struct of a mesh, and the functions that fill and empty it."""
    mesh = names.mesh
    lines = struct_text(names, "static", "MPI_Comm")
    lines += [f"  MPI_Op {name};" for name in names.operators.values()]
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
    for function, operator in names.operators.items():
        lines.append(f"  TRY(MPI_Op_create({function}, 1, &{variable}.{operator}));")
    lines += ["done:", "  return err;", "}", ""]
    lines += [f"void {mesh.name}_finalize(void)", "{"]
    lines += [f"  MPI_Comm_free(&{variable}.{name});" for name in names.communicators.values()]
    lines += [f"  MPI_Comm_free(&{variable}.comm);"]
    lines += [f"  MPI_Op_free(&{variable}.{name});" for name in names.operators.values()]
    lines += ["}", ""]
    return lines


def custom_op(x: DistType) -> str | None:
    """The name of the function that reduces a type MPI does not know, if it is one."""
    if x.dtype not in AS_BITS or x.reduction is None:
        return None
    return f"{Reduction.SUM if x.reduction is Reduction.AVG else x.reduction}_of_{x.dtype}"


def _custom_op(name: str) -> list[str]:
    """A reduction of a type that MPI does not know."""
    reduction, _, dtype = name.partition("_of_")
    return [
        f"static void {name}(void *in, void *inout, int *n, MPI_Datatype *type)",
        "{",
        "  const uint16_t *x = in;",
        "  uint16_t *y = inout;",
        "  (void)type;",
        "  for (int i = 0; i < *n; ++i) {",
        f"    float a = {dtype}_load(x[i]), b = {dtype}_load(y[i]);",
        f"    y[i] = {dtype}_store({_ON_FLOATS[Reduction(reduction)]});",
        "  }",
        "}",
        "",
    ]


# ---------------------------------------------------------------------------------------------
# One function
# ---------------------------------------------------------------------------------------------


@dataclass
class FunctionText(FunctionBase):
    """The C of one function, and what it needs from the rest of the file."""

    success: ClassVar[str] = "MPI_SUCCESS"

    static: bool = False
    needs: set[str] = field(default_factory=lambda: {"check"})
    started: dict[DistOp, int] = field(default_factory=dict[DistOp, int])
    reading: Counter[SSAValue] = field(default_factory=Counter[SSAValue])
    passed: set[Operation] = field(default_factory=set[Operation])
    ended: set[DistOp] = field(default_factory=set[DistOp])

    # --- pieces -----------------------------------------------------------------------------

    def signature(self) -> str:
        """The C declaration, without a semicolon."""
        inputs = [
            f"const {C_TYPES[dist_type(arg).dtype]} *{self.variable[arg]}"
            for arg in self.function.args
        ]
        outputs = [
            f"{C_TYPES[dist_type(value).dtype]} *{name}"
            for value, name in zip(self.plan.returned, self.results, strict=True)
        ]
        prefix = "static " if self.static else ""
        width = ["size_t width"] if self.size.by_width else []
        parameters = ", ".join([*inputs, *outputs, *width]) or "void"
        return f"{prefix}int {self.function.sym_name.data}({parameters})"

    def text(self) -> list[str]:
        """The whole function with a comment that says what it is in ``.coll``."""
        function = self.function
        body: list[str] = []
        for op in function.body.ops:
            if isinstance(op, DistOp):
                body += self._step(op)
        body += self._wait(op.result for op in list(self.started))
        body += self._copy_results()
        temporaries = [value for value in self.plan.owner if self.plan.is_temporary(value)]
        lines = [self.comment(), self.signature(), "{", f"  int err = {self.success};"]
        if self.started:
            lines.append(f"  MPI_Request pending[{len(self.started)}];")
        lines += [
            f"  {C_TYPES[dist_type(value).dtype]} *{self.variable[value]} = NULL;"
            for value in temporaries
        ]
        lines += self.choice()
        lines += [f"  (void){name};" for name in self.unused()]
        if self.started:
            lines.append(
                f"  for (int i = 0; i < {len(self.started)}; ++i) pending[i] = MPI_REQUEST_NULL;"
            )
        lines += body
        if any("TRY(" in line or "NEW(" in line for line in body):
            lines.append("done:")
        if self.started:
            lines.append("  if (err != MPI_SUCCESS) return err; /* memory may still be in use */")
        lines += [f"  free({self.variable[value]});" for value in temporaries]
        return [*lines, "  return err;", "}", ""]

    # --- steps ------------------------------------------------------------------------------

    def _step(self, op: DistOp) -> list[str]:
        """An operation: a comment, its memory, its statements, and what it was the last to use."""
        if op.kind.computes:
            return self._compute(op)
        if self.plan.is_view(op):
            return [self.shown(op)] if op.kind is PAD else []
        y = dist_type(op.result)
        out = self.variable[op.result]
        operands = [self.variable[operand] for operand in op.operands]
        before = self._wait(op.operands)
        if self._is_started(op):
            before += self._wait(self._ahead(op))
        taking_part = self._taking_part(op)
        if op.kind.sends:
            statements = self._collective(op, operands[0], out)
        else:
            names = Names(operands, out, self.names, self.size)
            statements, needs = local_operation(op, names)
            self.needs |= needs
        if self.plan.is_temporary(op.result):
            size = self.size(element_count(y, self.mesh) * y.dtype.bytes)
            new = f"NEW({out}, {size});"
            only = self.names.at_zero(y.root - taking_part)
            statements.insert(0, f"if ({only}) {new}" if only else new)
        condition = self.names.at_zero(taking_part)
        lines = [*before, self.shown(op)]
        if condition or op.kind is PERMUTE:  # which has variables of its own
            head = f"if ({condition}) {{" if condition else "{"
            lines += [f"  {head}", *(f"    {line}" for line in statements), "  }"]
        else:
            lines += [f"  {line}" for line in statements]
        self.passed.add(op)
        return lines + self._release(op)

    def _compute(self, op: DistOp) -> list[str]:
        """The time of a computation, of which nothing else is known."""
        before, seconds = self._wait(op.operands), step_seconds(op, self.mesh)
        self.passed.add(op)
        lines = [*before, self.shown(op)]
        if seconds:
            self.needs.add("compute_for")
            whole = f"width * {seconds!r}" if self.size.by_width else repr(seconds)
            call = f"TRY(compute_for({whole}, {self.names.variable}.comm));"
            condition = self.names.at_zero(self._taking_part(op))
            lines.append(f"  if ({condition}) {call}" if condition else f"  {call}")
        return lines + self._release(op)

    def _taking_part(self, op: DistOp) -> frozenset[str]:
        """The sub-axes on which only coordinate 0 carries out an operation."""
        if op.kind.sends:
            return dist_type(op.operands[0]).root - frozenset(op.over)
        return dist_type(op.result).root

    def _release(self, op: DistOp) -> list[str]:
        """Frees the operands that nothing reads any more, nor is under way with."""
        lines: list[str] = []
        for owner in dict.fromkeys(self.plan.owner[operand] for operand in op.operands):
            read = self.plan.last_use[owner] in self.passed and not self.reading[owner]
            if read and self.plan.is_temporary(owner):
                name = self.variable[owner]
                lines += [f"  free({name});", f"  {name} = NULL;"]
        return lines

    def _copy_results(self) -> list[str]:
        lines: list[str] = []
        for index, (value, name) in enumerate(zip(self.plan.returned, self.results, strict=True)):
            if self.plan.result_of.get(self.plan.owner[value]) == index:
                continue
            x = dist_type(value)
            size = self.size(element_count(x, self.mesh) * x.dtype.bytes)
            copy = f"memcpy({name}, {self.variable[value]}, {size});"
            holds = self.holds(x)
            lines.append(f"  if ({holds}) {copy}" if holds else f"  {copy}")
        return lines

    # --- collectives ------------------------------------------------------------------------

    def _operator(self, x: DistType) -> str:
        assert x.reduction is not None
        if (custom := custom_op(x)) is None:
            return _MPI_OPS[x.reduction]
        self.needs.add(x.dtype.value)
        return f"{self.names.variable}.{self.names.operators[custom]}"

    def _collective(self, op: DistOp, operand: str, out: str) -> list[str]:
        """The statements that carry out a collective, or start it."""
        if op.kind is PERMUTE:
            return self._permute(op, operand, out)
        if not self._is_started(op):
            return [self._call(op, operand, out), *self._average(op, out)]
        lines: list[str] = []
        if "{x}" not in STARTS[op.mnemonic]:  # what is sent lies where it arrives
            x = dist_type(op.operands[0])
            size = self.size(element_count(x, self.mesh) * x.dtype.bytes)
            lines.append(f"if ({self.names.at_zero(op.over)}) memcpy({out}, {operand}, {size});")
        start = self._start(op, operand, out)
        if not self.size.by_width:
            return [*lines, start]
        count = self.size(self._blocks(op)[0])
        return [
            *lines,
            f"if ({count} <= INT_MAX) {start}",
            f"else {self._call(op, operand, out)}",
        ]

    def _start(self, op: DistOp, operand: str, out: str) -> str:
        """A call that does not wait."""
        x = dist_type(op.operands[0])
        count, _ = self._blocks(op)
        call = STARTS[op.mnemonic].format(
            x=operand,
            y=out,
            n=f"(int)({self.size(count)})" if self.size.by_width else str(count),
            type=MPI_TYPES[x.dtype],
            op=self._operator(x) if op.kind.reduces else "",
            comm=self.communicator(op),
        )
        self.reading[self.plan.owner[op.operands[0]]] += 1
        number = self.started.setdefault(op, len(self.started))
        return f"TRY({call[:-1]}, &pending[{number}]));"

    def _blocks(self, op: DistOp) -> tuple[int, list[int]]:
        """The elements that an MPI call is given as a count; in how many rows they lie, where the
        dimension is not the first."""
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        if not op.kind.ordered:
            return element_count(y, self.mesh), []
        if op.kind.exchanges:
            shape = list(x.local_shape(self.mesh))
            shape[op.integer("target")] //= self.mesh.group_size(op.over)
            dims = op.integer("target"), op.integer("source")
        else:
            shape = (x if op.kind.gathers else y).local_shape(self.mesh)
            dims = (op.integer("dim"),)
        return math.prod(shape), [math.prod(shape[:dim]) for dim in dims]

    def _is_started(self, op: DistOp) -> bool:
        """Whether a collective is started and waited for later: what is packed, or goes in several
        calls, is not."""
        if not op.is_async:
            return False
        count, rows = self._blocks(op)
        return count <= _MOST_STARTED and all(row == 1 for row in rows)

    def _ahead(self, op: DistOp) -> list[SSAValue]:
        """What is under way on the stream of a collective that is about to start, and is waited for
        anyway before anything else is done: MPI would let both share the links."""
        following = op.next_op
        while isinstance(following, DistOp) and (
            is_free(following, self.mesh)
            or (self._is_started(following) and not self._under_way(following.operands))
        ):
            following = following.next_op
        if not isinstance(following, DistOp):
            return []
        stream = outermost(self.mesh, op)
        wanted = self._under_way(following.operands)
        return [one.result for one in wanted if outermost(self.mesh, one) == stream]

    def _under_way(self, values: Iterable[SSAValue]) -> list[DistOp]:
        """The collectives that have started, are not waited for yet, and make some values."""
        makers = (self.plan.owner[value].owner for value in values)
        return [one for one in makers if isinstance(one, DistOp) and self._runs(one)]

    def _runs(self, op: DistOp) -> bool:
        return op in self.started and op not in self.ended

    def _wait(self, values: Iterable[SSAValue]) -> list[str]:
        """Waits for the collectives whose results are in the memory of some values."""
        lines: list[str] = []
        for value in values:
            op = self.plan.owner[value].owner
            if isinstance(op, DistOp) and self._runs(op):
                self.ended.add(op)
                self.reading[self.plan.owner[op.operands[0]]] -= 1
                lines.append(f"  TRY(MPI_Wait(&pending[{self.started[op]}], MPI_STATUS_IGNORE));")
                averaged = self._average(op, self.variable[op.result])
                if averaged and (condition := self.names.at_zero(self._taking_part(op))):
                    averaged = [f"if ({condition}) {{", *(f"  {one}" for one in averaged), "}"]
                lines += [*(f"  {one}" for one in averaged), *self._release(op)]
        return lines

    def _call(self, op: DistOp, operand: str, out: str) -> str:
        """A call that moves blocks of a dimension; those of a later one lie in several rows."""
        x = dist_type(op.operands[0])
        count, rows = self._blocks(op)
        name, arguments = op.mnemonic, [operand, out, self.size(count)]
        if any(row > 1 for row in rows):
            name += "_rows"
            arguments += map(size_text, rows)
        arguments.append(MPI_TYPES[x.dtype])
        if op.kind.reduces:
            arguments.append(self._operator(x))
        self.needs.add(name)
        return f"TRY({name}({', '.join([*arguments, self.communicator(op)])}));"

    def _average(self, op: DistOp, out: str) -> list[str]:
        """The division at the end of an avg, on the ranks that have the sum."""
        x = dist_type(op.operands[0])
        if not op.kind.reduces or x.reduction is not Reduction.AVG:
            return []
        group = self.mesh.group_size(op.over)
        number = number_text(group, DType.F32 if x.dtype in AS_BITS else x.dtype)
        value = f"{load(f'{out}[i]', x.dtype)} / {number}"
        count = element_count(dist_type(op.result), self.mesh)
        lines = loop(self.size(count), f"{out}[i] = {store(value, x.dtype)};")
        if op.kind.after == "root":
            return [f"if ({self.names.at_zero(op.over)})", f"  {lines[0]}"]
        return lines

    def _permute(self, op: DistOp, operand: str, out: str) -> list[str]:
        """Every rank sends its block to one rank and gets one, in closed form.

        A sub-axis that neither layout is sharded over keeps its coordinate. Among the others, the
        r-th rank that holds a block sends it to the r-th rank that wants it.
        """
        x, y = dist_type(op.input), dist_type(op.result)
        count = self.size(element_count(x, self.mesh))
        kind = MPI_TYPES[x.dtype]
        self.needs.add("permute")
        return [
            *self.partner("to", x, y),
            *self.partner("from", y, x),
            f"TRY(permute({operand}, to, {out}, from, {count}, {kind}, "
            f"{self.names.variable}.comm));",
        ]


# ---------------------------------------------------------------------------------------------
# The file
# ---------------------------------------------------------------------------------------------


def mesh_names(functions: Iterable[FuncOp]) -> dict[str, MeshNames]:
    """For every mesh that functions are on, its names, and the communicators and operators they
    need."""
    meshes: dict[str, Mesh] = {}
    sent: dict[str, dict[OverList, None]] = {}
    customs: dict[str, dict[str, None]] = {}
    for function in functions:
        mesh = mesh_of(function)
        meshes[mesh.name] = mesh
        lists = sent.setdefault(mesh.name, {})
        operators = customs.setdefault(mesh.name, {})
        for op in function.body.ops:
            if not is_collective(op):
                continue
            if axes := op.over:
                lists[axes] = None
            if op.kind.reduces and (custom := custom_op(dist_type(op.input))):
                operators[custom] = None
    return {name: MeshNames.of(mesh, sent[name], customs[name]) for name, mesh in meshes.items()}


_HEADER = """/* Written by collir {version}: C99 and MPI 3.0.
 *
 * Every rank calls MESH_init(comm) once, then the functions with its own buffers, which must not
 * overlap, then MESH_finalize(). All return MPI_SUCCESS or an MPI error code, of which
 * MPI_Error_string has the text. Where a rank holds nothing of a value, its buffer is not touched
 * and may be NULL.
{sized}{interface}
 */"""

_INCLUDES = ("limits.h", "mpi.h", "stdint.h", "stdio.h", "stdlib.h", "string.h")
_HEADER_INCLUDES = ("mpi.h", "stddef.h", "stdint.h")


def emit_c(
    module: ModuleOp,
    static: Iterable[FuncOp] = (),
    includes: Iterable[str] = _INCLUDES,
    sections: Iterable[str] = (),
    sized: bool = False,
    header: bool = False,
) -> str:
    """The C of all functions of a module; those in ``static`` are for this file only.

    Args:
        sections: of the runtime, to be there in any case.
        sized: whether functions take a width, and choose by it.
        header: whether to print declarations instead, for C and C++.

    Raises:
        DiagnosticError: names that C cannot have, operations that are not collectives.
    """
    hidden = set(static)
    functions = functions_of(module)
    check_programs(functions, "has no form in MPI")
    # What is on one device only and for this file only needs no communicators.
    open_on = {mesh_of(function).name for function in functions if function not in hidden}
    meshes = mesh_names(functions)
    needed = [names for name, names in meshes.items() if names.mesh.sub_axes or name in open_on]
    check_names(module, [names.mesh.name for names in needed])
    choices = alternatives(module) if sized else {}
    texts = [
        FunctionText(
            function,
            meshes[mesh_of(function).name],
            function in hidden,
            size=Sizes(sized),
            instead=choices.get(function.sym_name.data, []),
        )
        for function in functions
    ]
    bodies = [text.text() for text in texts]
    needs = {*sections, *(name for text in texts for name in text.needs)}
    needs |= {"wrong_size"} if needed else set[str]()
    waiting = ["sched.h"] if "compute_for" in needs else []
    interface = [f"int  {names.mesh.name}_init(MPI_Comm comm);" for names in needed]
    interface += [f"void {names.mesh.name}_finalize(void);" for names in needed]
    if header:
        about = _HEADER.format(
            version=collir.__version__, sized=SIZED if sized else "", interface=DECLARATIONS
        )
        declared_texts = [(text.comment(), text.signature()) for text in texts]
        return header_text(about, _HEADER_INCLUDES, interface, declared_texts)
    interface += [f"{t.signature().replace('int ', 'int  ', 1)};" for t in texts if not t.static]
    lines = [
        _HEADER.format(
            version=collir.__version__,
            sized=SIZED if sized else "",
            interface="\n".join(f" *   {line}" for line in interface),
        ),
        *(f"#include <{name}>" for name in [*includes, *waiting]),
        "",
        "\n\n".join(runtime("mpi_runtime.c", needs)),
        "",
    ]
    for custom in dict.fromkeys(name for names in needed for name in names.operators):
        lines += _custom_op(custom)
    for names in needed:
        lines += _mesh_text(names)
    called = {function for listed in choices.values() for _, function in listed}
    lines += [f"{text.signature()};\n" for text in texts if text.function in called]
    for body in bodies:
        lines += body
    return "\n".join(lines)
