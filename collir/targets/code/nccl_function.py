"""C++17 for NCCL and CUDA: one function per ``func`` on device buffers and a stream."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.programs.compute import step_seconds
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.alternatives import alternatives
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import check_programs, functions_of
from collir.layout import DistType, DType, Reduction
from collir.layout.steps import PAD, PERMUTE
from collir.layout.types import MAX_BYTES
from collir.targets.code.c_function import (
    DECLARATIONS,
    LINKAGE,
    SIZED,
    FunctionBase,
    check_names,
    header_text,
    runtime,
)
from collir.targets.code.c_text import (
    Names,
    Sizes,
    Words,
    element_count,
    size_text,
)
from collir.targets.code.emitters import Emitters
from collir.targets.code.nccl_mesh import Workspace, mesh_names, mesh_text
from collir.targets.code.nccl_streams import CALLERS, Streams
from collir.targets.code.nccl_text import CPP, CUDA_TYPES, CudaText

NCCL_TYPES = {
    DType.F16: "ncclFloat16",
    DType.BF16: "ncclBfloat16",
    DType.F32: "ncclFloat32",
    DType.F64: "ncclFloat64",
    DType.I8: "ncclInt8",
    DType.I32: "ncclInt32",
    DType.I64: "ncclInt64",
}
"""The NCCL datatype of every element type."""

_NCCL_OPS = {
    Reduction.SUM: "ncclSum",
    Reduction.AVG: "ncclAvg",
    Reduction.PROD: "ncclProd",
    Reduction.MAX: "ncclMax",
    Reduction.MIN: "ncclMin",
}

_WIDTH = 100

# ---------------------------------------------------------------------------------------------
# One function
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """A collective, as its emitter sees it.

    Attributes:
        operand, out: what the operand and the result are called.
        x, y: their types, and ``kind`` what NCCL calls their elements.
        comm: the communicator of its groups.
        at_root: whether this rank is the root.
    """

    op: DistOp
    operand: str
    out: str
    x: DistType
    y: DistType
    kind: str
    comm: str
    at_root: str


@dataclass
class FunctionText(FunctionBase):
    """The C++ of one function, and what it needs from the rest of the file."""

    words: ClassVar[Words] = CPP
    after_width: ClassVar[Sequence[str]] = (CALLERS,)
    success: ClassVar[str] = "ncclSuccess"

    cuda: CudaText
    workspace: Workspace | None = None
    static: bool = False
    levels: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.streams = Streams(self.function, self.plan, self.names.variable, self.levels)

    def signature(self) -> str:
        """The C++ declaration, without a semicolon."""
        inputs = [
            f"const {CUDA_TYPES[dist_type(arg).dtype]} *{self.variable[arg]}"
            for arg in self.function.args
        ]
        outputs = [
            f"{CUDA_TYPES[dist_type(value).dtype]} *{name}"
            for value, name in zip(self.plan.returned, self.results, strict=True)
        ]
        prefix = "static " if self.static else ""
        width = ["size_t width"] if self.size.by_width else []
        parameters = ", ".join([*inputs, *outputs, *width, "cudaStream_t stream"])
        return f"{prefix or LINKAGE}ncclResult_t {self.function.sym_name.data}({parameters})"

    def text(self) -> list[str]:
        """The whole function with a comment that says what it is in ``.coll``."""
        offsets: dict[str, int] = {}
        body: list[str] = []
        if self.streams.events:
            body += self._all_memory(offsets)
            body += [f"  {line}" for line in self.streams.fork()]
        for op in self.function.body.ops:
            if isinstance(op, DistOp):
                body += self._step(op, offsets)
        body += [f"  {line}" for line in self.streams.join()]
        body += self._copy_results()
        declarations = [
            self._declaration(self.variable[value], dist_type(value).dtype, offsets)
            for value in self.plan.owner
            if self.plan.is_temporary(value)
        ]
        if self.workspace is not None:
            self.workspace.taken.clear()
        unused = self.unused()
        if not declarations and not any("stream" in line for line in body):
            unused.append("stream")
        lines = [self.comment(), self.signature(), "{"]
        lines += [f"  {line}" for line in declarations]
        lines += [f"  (void){name};" for name in unused]
        lines += self.choice()
        return [*lines, *body, "  return ncclSuccess;", "}", ""]

    # --- memory -----------------------------------------------------------------------------

    def _declaration(self, name: str, dtype: DType, offsets: dict[str, int]) -> str:
        kind = CUDA_TYPES[dtype]
        if self.workspace is None:
            self.cuda.needs.add("device_memory")
            return f"device_memory<{kind}> {name}({self.cuda.stream});"
        start = f"{self.names.variable}.workspace.start + {size_text(offsets[name])}"
        return f"{kind} *const {name} = ({kind} *)({start});"

    def _new(self, name: str, count: int, dtype: DType, offsets: dict[str, int]) -> str | None:
        """The statement that gets memory for a temporary, if that takes one."""
        if self.workspace is None:
            return f"TRY({name}.allocate({self.size(count)}));"
        offsets[name] = self.workspace.take(count * dtype.bytes)
        return None

    def _all_memory(self, offsets: dict[str, int]) -> list[str]:
        """The memory of all temporaries, where several streams use them: until the end."""
        lines: list[str] = []
        for value in filter(self.plan.is_temporary, self.plan.owner):
            y = dist_type(value)
            count, holds = element_count(y, self.mesh), self.holds(y)
            if new := self._new(self.variable[value], count, y.dtype, offsets):
                lines.append(f"  if ({holds}) {new}" if holds else f"  {new}")
        return lines

    def _packing(self, name: str, count: int, dtype: DType, only: str = "") -> list[str]:
        """Memory until the end of a block."""
        offsets: dict[str, int] = {}
        new = self._new(name, count, dtype, offsets)
        lines = [self._declaration(name, dtype, offsets)]
        if new:
            lines.append(f"if ({only}) {new}" if only else new)
        return lines

    # --- steps ------------------------------------------------------------------------------

    def _step(self, op: DistOp, offsets: dict[str, int]) -> list[str]:
        """An operation: a comment, its memory, its statements, and what it was the last to use."""
        if op.kind.computes:
            return self._compute(op, offsets)
        if self.plan.is_view(op):
            return [self.shown(op)] if op.kind is PAD else []
        x, y = dist_type(op.operands[0]), dist_type(op.result)
        out = self.variable[op.result]
        operands = [self.variable[operand] for operand in op.operands]
        collective = op.kind.sends
        taking_part = x.root - frozenset(op.over) if collective else y.root
        new: list[str] = []
        if self.plan.is_temporary(op.result) and not self.streams.events:
            count = element_count(y, self.mesh)
            if statement := self._new(out, count, y.dtype, offsets):
                only = self.names.at_zero(y.root - taking_part)
                new = [f"if ({only}) {statement}" if only else statement]
        before = list(self.workspace.taken) if self.workspace else []
        self.cuda.stream = self.streams.on[op]
        if collective:
            statements = self.COLLECTIVES[op.mnemonic](self, self._sent(op, operands[0], out))
        else:
            statements = self.cuda.local_operation(op, Names(operands, out, self.names))
        self.cuda.stream = CALLERS
        if self.workspace is not None and not self.streams.events:  # what was packed
            self.workspace.taken = before
        statements = [*new, *statements]
        lines = [self.shown(op)]
        lines += [f"  {line}" for line in self.streams.before(op)]
        condition = self.names.at_zero(taking_part)
        declares = any(line.startswith(_DECLARES) for line in statements)
        if condition or declares or op.kind is PERMUTE:
            head = f"if ({condition}) {{" if condition else "{"
            lines += [f"  {head}", *(f"    {line}" for line in statements), "  }"]
        else:
            lines += [f"  {line}" for line in statements]
        lines += [f"  {line}" for line in self.streams.after(op)]
        return lines if self.streams.events else lines + self._release(op, offsets)

    def _compute(self, op: DistOp, offsets: dict[str, int]) -> list[str]:
        """The time of a computation, of which nothing else is known."""
        lines = [self.shown(op), *(f"  {line}" for line in self.streams.before(op))]
        if nanoseconds := round(1e9 * step_seconds(op, self.mesh)):
            self.cuda.needs.add("compute_for")
            whole = f"width * {nanoseconds}" if self.size.by_width else str(nanoseconds)
            call = f"TRY_CUDA(cudaLaunchHostFunc({CALLERS}, compute_for, (void *)({whole})));"
            condition = self.names.at_zero(dist_type(op.result).root)
            lines.append(f"  if ({condition}) {call}" if condition else f"  {call}")
        return lines if self.streams.events else lines + self._release(op, offsets)

    def _release(self, op: DistOp, offsets: dict[str, int]) -> list[str]:
        """Frees what nothing reads any more."""
        lines: list[str] = []
        for owner in dict.fromkeys(self.plan.owner[operand] for operand in op.operands):
            if self.plan.is_temporary(owner) and self.plan.last_use[owner] is op:
                name = self.variable[owner]
                if self.workspace is None:
                    lines.append(f"  {name}.release();")
                else:
                    self.workspace.give_back(offsets[name])
        return lines

    def _copy_results(self) -> list[str]:
        lines: list[str] = []
        for index, (value, name) in enumerate(zip(self.plan.returned, self.results, strict=True)):
            if self.plan.result_of.get(self.plan.owner[value]) == index:
                continue
            x = dist_type(value)
            size = self.size(element_count(x, self.mesh) * x.dtype.bytes)
            copy = self.cuda.copy(name, self.variable[value], size)
            holds = self.holds(x)
            lines.append(f"  if ({holds}) {copy}" if holds else f"  {copy}")
        return lines

    # --- collectives ------------------------------------------------------------------------

    def _sent(self, op: DistOp, operand: str, out: str) -> Sent:
        x, y = dist_type(op.input), dist_type(op.result)
        comm = "" if op.kind is PERMUTE else self.communicator(op)
        at_root = self.names.at_zero(op.over)
        return Sent(op, operand, out, x, y, NCCL_TYPES[x.dtype], comm, at_root)

    def _all_reduce(self, s: Sent) -> list[str]:
        return [self.call("ncclAllReduce", s, self.elements(s.y), operator(s.x))]

    def _reduce(self, s: Sent) -> list[str]:
        return [self.call("ncclReduce", s, self.elements(s.y), operator(s.x), "0")]

    def _broadcast(self, s: Sent) -> list[str]:
        return [self.call("ncclBroadcast", s, self.elements(s.y), "0")]

    def _reduce_scatter(self, s: Sent) -> list[str]:
        block = s.y.local_shape(self.mesh)
        before, packed = self._packed(s.op.integer("dim"), block, s.operand, s.op)
        sent = replace(s, operand=packed)
        return [
            *before,
            self.call("ncclReduceScatter", sent, self.elements(s.y), operator(s.x)),
        ]

    def _scatter(self, s: Sent) -> list[str]:
        self.cuda.needs.add("scatter")
        block = s.y.local_shape(self.mesh)
        before, packed = self._packed(s.op.integer("dim"), block, s.operand, s.op, s.at_root)
        return [*before, self.call("scatter", replace(s, operand=packed), self.elements(s.y))]

    def _all_gather(self, s: Sent) -> list[str]:
        block = s.x.local_shape(self.mesh)
        before, coming, after = self._unpacked(s.op.integer("dim"), block, s.out, s.op)
        call = self.call("ncclAllGather", replace(s, out=coming), self.elements(s.x))
        return [*before, call, *after]

    def _gather(self, s: Sent) -> list[str]:
        self.cuda.needs.add("gather")
        block = s.x.local_shape(self.mesh)
        before, coming, after = self._unpacked(s.op.integer("dim"), block, s.out, s.op, s.at_root)
        call = self.call("gather", replace(s, out=coming), self.elements(s.x))
        return [*before, call, *after]

    def _all_to_all(self, s: Sent) -> list[str]:
        self.cuda.needs.add("all_to_all")
        source, target = s.op.integer("source"), s.op.integer("target")
        block = list(s.x.local_shape(self.mesh))
        block[target] //= self.mesh.group_size(s.op.over)
        before, packed = self._packed(target, block, s.operand, s.op)
        there, coming, after = self._unpacked(source, block, s.out, s.op)
        call = self.call("all_to_all", replace(s, operand=packed, out=coming), math.prod(block))
        return [*before, *there, call, *after]

    def elements(self, x: DistType) -> int:
        """How many elements a rank holds of a value."""
        return element_count(x, self.mesh)

    def call(self, name: str, s: Sent, count: int, *tail: str) -> str:
        """A call on a number of elements."""
        arguments = [s.operand, s.out, self.size(count), s.kind, *tail, s.comm, self.cuda.stream]
        return f"TRY({name}({', '.join(arguments)}));"

    def _packed(
        self, dim: int, block: Sequence[int], operand: str, op: DistOp, only: str = ""
    ) -> tuple[list[str], str]:
        """What makes the blocks along a dimension contiguous, and where they are then."""
        if (rows := math.prod(block[:dim])) == 1:
            return [], operand
        dtype, group = dist_type(op.result).dtype, self.mesh.group_size(op.over)
        swap = self.cuda.swap("packed", operand, rows, group, math.prod(block[dim:]) * dtype.bytes)
        lines = self._packing("packed", math.prod(block) * group, dtype, only)
        return [*lines, f"if ({only}) {swap}" if only else swap], "packed"

    def _unpacked(
        self, dim: int, block: Sequence[int], out: str, op: DistOp, only: str = ""
    ) -> tuple[list[str], str, list[str]]:
        """Where blocks along a dimension come in, contiguous, and what puts them in their rows."""
        if (rows := math.prod(block[:dim])) == 1:
            return [], out, []
        dtype, group = dist_type(op.result).dtype, self.mesh.group_size(op.over)
        swap = self.cuda.swap(out, "coming", group, rows, math.prod(block[dim:]) * dtype.bytes)
        lines = self._packing("coming", math.prod(block) * group, dtype, only)
        return lines, "coming", [f"if ({only}) {swap}" if only else swap]

    def _permute(self, s: Sent) -> list[str]:
        """Every rank sends its block to one rank and gets one: the r-th rank that holds a block
        sends it to the r-th rank that wants it."""
        x, y = s.x, s.y
        self.cuda.needs.add("permute")
        count = self.size(element_count(x, self.mesh))
        return [
            *self.partner("to", x, y),
            *self.partner("from", y, x),
            f"TRY(permute({s.operand}, to, {s.out}, from, {count}, {s.kind}, "
            f"{self.names.variable}.comm, stream));",
        ]

    COLLECTIVES: ClassVar[Emitters[Sent]] = {
        "all_reduce": _all_reduce,
        "reduce": _reduce,
        "broadcast": _broadcast,
        "reduce_scatter": _reduce_scatter,
        "scatter": _scatter,
        "all_gather": _all_gather,
        "gather": _gather,
        "all_to_all": _all_to_all,
        "permute": _permute,
    }
    """The statements of each collective, for the ranks that take part."""


_DECLARES = ("device_memory<", *(f"{kind} *const" for kind in CUDA_TYPES.values()))


def _wrapped(line: str) -> list[str]:
    """A line, broken after commas where it is long, as deep as its brackets are open."""
    if len(line) <= _WIDTH or ", " not in line[:_WIDTH] or line.lstrip().startswith("/"):
        return [line]
    cut = line.rindex(", ", 0, _WIDTH) + 1
    opened: list[int] = []
    for place, letter in enumerate(line[:cut]):
        if letter in "({":
            opened.append(place + 1)
        elif letter in ")}" and opened:
            opened.pop()
    if not opened:
        return [line]
    return [line[:cut], *_wrapped(" " * opened[-1] + line[cut + 1 :])]


def operator(x: DistType) -> str:
    """The reduction of a value, as an argument."""
    assert x.reduction is not None
    return _NCCL_OPS[x.reduction]


# ---------------------------------------------------------------------------------------------
# The file
# ---------------------------------------------------------------------------------------------


_HEADER = """/* Written by collir {version}: C++17, CUDA and NCCL {least}{or_newer}. {compiler}
 *
 * Every rank calls MESH_init with a communicator of all ranks of the mesh, which stays the
 * caller's, then the functions with buffers on its device, which must not overlap, and in the end
 * MESH_finalize. Functions put work on the stream and do not wait for it; MESH_synchronize does,
 * and ends when a communicator fails. All return ncclSuccess or an error of NCCL, which is
 * ncclUnhandledCudaError for those of CUDA. A rank is a thread: a process may have several. Where
 * a rank holds nothing of a value, its buffer is not touched and may be NULL.
{symmetric}{interface}
 */"""

_SYMMETRIC = """ *
 * The temporaries are symmetric memory that MESH_init registers: the functions of a mesh have to be
 * called on one stream, or so that they do not overlap. Buffers from MESH_alloc are registered too.
"""

_WITH_KERNELS = "It has kernels: compile it with nvcc."
_IS_HEADER = "It is a header."
_WITHOUT_KERNELS = "It has no kernels: any C++\n * compiler will do."


def emit_cpp(
    module: ModuleOp,
    static: Iterable[FuncOp] = (),
    includes: Iterable[str] = (),
    symmetric: bool = False,
    sized: bool = False,
    header: bool = False,
) -> str:
    """The C++ of all functions of a module; those in ``static`` are for this file only.

    Args:
        symmetric: whether temporaries are symmetric memory.
        sized: whether functions take a width, and choose by it.
        header: whether to print declarations instead.

    Raises:
        DiagnosticError: names that C++ cannot have, operations that are not collectives.
    """
    hidden = set(static)
    functions = functions_of(module)
    check_programs(functions, "has no form in NCCL")
    cuda = CudaText(size=Sizes(sized))
    choices = alternatives(module) if sized else {}
    names = mesh_names(functions)
    meshes = {
        name: mesh_text(name, one, functions, Workspace() if symmetric else None)
        for name, one in names.items()
    }
    made = ("init", "finalize", "synchronize", *(("alloc", "free") if symmetric else ()))
    check_names(module, list(meshes), CPP, made)
    texts = [
        FunctionText(
            function,
            names[mesh_of(function).name],
            cuda,
            meshes[mesh_of(function).name].workspace,
            function in hidden,
            meshes[mesh_of(function).name].levels,
            size=cuda.size,
            instead=choices.get(function.sym_name.data, []),
        )
        for function in functions
    ]
    bodies = [text.text() for text in texts]
    for text in texts:
        if text.workspace is not None and text.workspace.bytes > MAX_BYTES:
            raise DiagnosticError.at(
                text.function,
                f"the temporaries of @{text.function.sym_name.data} take more than 2^63 - 1 bytes "
                "of symmetric memory: without symmetric=true each is freed after its last use",
            )
    if symmetric:
        cuda.needs.add("symmetric")
    types = {dist_type(value).dtype for text in texts for value in text.plan.owner}
    interface = [line for mesh in meshes.values() for line in mesh.interface()]
    declared = [f"{text.signature().removeprefix(LINKAGE)};" for text in texts if not text.static]
    about = _HEADER.format(
        version=collir.__version__,
        least="2.28" if symmetric else "2.18",
        or_newer=" or newer",
        compiler=_IS_HEADER if header else _WITH_KERNELS if cuda.kernels else _WITHOUT_KERNELS,
        symmetric=(_SYMMETRIC if symmetric else "") + (SIZED if sized else ""),
        interface=DECLARATIONS
        if header
        else "\n".join(f" *   {line}" for line in (*interface, *declared)),
    )
    if header:
        included = [_IN_C.get(name, name) for name in _includes(CudaText(), types, ())]
        declared_texts = [(text.comment(), text.signature()) for text in texts]
        return header_text(about, included, interface, declared_texts)
    lines = [
        about,
        *(f"#include <{name}>" for name in _includes(cuda, types, includes)),
        "",
        "\n\n".join(runtime("nccl_runtime.cu", cuda.needs)),
        "",
    ]
    for kernel in cuda.kernels.values():
        lines += kernel
    called = {function for listed in choices.values() for _, function in listed}
    declared = [f"{text.signature()};" for text in texts if text.function in called]
    for part in [*(mesh.text() for mesh in meshes.values()), declared, *bodies]:
        lines += [short for line in part for short in _wrapped(line)]
    return "\n".join(lines)


_IN_C = {"cstddef": "stddef.h", "cstdint": "stdint.h"}
"""What C calls headers of C++."""


def _includes(cuda: CudaText, types: set[DType], more: Iterable[str]) -> Sequence[str]:
    wanted = {"cstddef", "cstdint", "cuda_runtime.h", "nccl.h", *more}
    if "compute_for" in cuda.needs:
        wanted |= {"chrono", "thread"}
    if cuda.needs & {"copy_rows", "swap_blocks"}:
        wanted.add("climits")
    if DType.F16 in types:
        wanted.add("cuda_fp16.h")
    if DType.BF16 in types:
        wanted.add("cuda_bf16.h")
    return sorted(wanted)
