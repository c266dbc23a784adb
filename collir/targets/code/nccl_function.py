"""One function in C++17 for NCCL and CUDA, on device buffers and a stream."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from xdsl.ir import Operation, SSAValue

from collir.cost.collectives.table import COSTS, NcclKind
from collir.cost.programs.collectives import runs_grouped
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.any_size import Condition
from collir.ir.blocks import Part, parts_of
from collir.layout import DistType, DType, Reduction
from collir.layout.coll import PERMUTE
from collir.layout.operation_table import OperationTable
from collir.localize.places import root_place
from collir.targets.code.c_file import sections
from collir.targets.code.c_function import CFunction
from collir.targets.code.c_mesh import LINKAGE
from collir.targets.code.c_text import (
    Words,
    condition_text,
    element_count,
    only_if,
    size_text,
    with_comments_kept,
)
from collir.targets.code.emitters import Emitters, check_uneven
from collir.targets.code.nccl_mesh import Workspace
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
    DType.BOOL: "ncclInt8",
}
"""The NCCL datatype of every element type; truth values are 0 and 1."""

_NCCL_OPS = {
    Reduction.SUM: "ncclSum",
    Reduction.AVG: "ncclAvg",
    Reduction.PROD: "ncclProd",
    Reduction.MAX: "ncclMax",
    Reduction.MIN: "ncclMin",
}


def _may_be_padded(op: DistOp) -> bool:
    """Return whether a collective runs on blocks that differ in size padded, or as a group."""
    entry = COSTS[op.mnemonic].nccl
    return isinstance(entry, NcclKind) and bool(entry.grouped)


@dataclass(frozen=True)
class Sent:
    """A collective with the names of its buffers.

    Attributes:
        operand, out: the names of the operand and of the result.
        x, y: the types of the operand and of the result.
        kind: the NCCL datatype of the elements.
        comm: the communicator of the groups.
        at_root: the condition that this rank is the root.
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
class NcclFunction(CFunction):
    """One function in C++ for NCCL.

    Attributes:
        cuda: the statements on a stream, and the kernels of all functions of the file.
        workspace: the symmetric memory of temporaries, or None if each is allocated.
        levels: the levels of the streams of the mesh.
        offsets: where each temporary starts in the workspace, in bytes.
        on_stream: whether a statement names a stream.
    """

    words: ClassVar[Words] = CPP
    success: ClassVar[str] = "ncclSuccess"
    result: ClassVar[str] = "ncclResult_t"
    linkage: ClassVar[str] = LINKAGE
    last_parameters: ClassVar[Sequence[tuple[str, str]]] = (("cudaStream_t", CALLERS),)

    cuda: CudaText
    workspace: Workspace | None = None
    levels: Sequence[str] = ()
    offsets: dict[str, int] = field(default_factory=dict[str, int])
    on_stream: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.streams = Streams(self.function, self.plan, self.names.variable, self.levels)

    @property
    def local(self) -> CudaText:
        return self.cuda

    def text(self) -> list[str]:
        """Return the function with a comment that has its types in ``.coll``."""
        body: list[str] = []
        if self.streams.events:
            body += self._all_memory()
            body += [f"  {line}" for line in self.streams.fork()]
        body += self.program()
        body += [f"  {line}" for line in self.streams.join()]
        copies = self.copied_results()
        declarations = [
            self._declaration(self.variable[value], dist_type(value).dtype)
            for value in self.temporaries()
        ]
        if self.workspace is not None:
            self.workspace.taken.clear()
        choice = self.choice()
        unused = [*self.unused(), *self.unused_sizes([*choice, *declarations, *body, *copies])]
        if not (declarations or copies or self.streams.events or self.on_stream):
            unused.append(CALLERS)
        lines = [self.comment(), self.signature(), "{"]
        lines += [f"  {line}" for line in declarations]
        lines += [f"  (void){name};" for name in unused]
        lines += choice
        lines = [*lines, *body, *copies, "  return ncclSuccess;", "}", ""]
        if not self.names.shares:
            return lines
        return [with_comments_kept(line, self.names.resolved) for line in lines]

    # --- memory -----------------------------------------------------------------------------

    def _declaration(self, name: str, dtype: DType) -> str:
        kind = CUDA_TYPES[dtype]
        if self.workspace is None:
            self.cuda.needs.add("device_memory")
            return f"device_memory<{kind}> {name}({self.cuda.stream});"
        start = f"{self.names.variable}.workspace.start + {size_text(self.offsets[name])}"
        return f"{kind} *const {name} = ({kind} *)({start});"

    def _memory(self, name: str, count: int, dtype: DType) -> list[str]:
        """Return the statement that allocates a temporary, or take its part of the workspace."""
        if self.workspace is None:
            return [f"TRY({name}.allocate({size_text(count)}));"]
        self.offsets[name] = self.workspace.take(int(count * dtype.bytes))
        return []

    def _all_memory(self) -> list[str]:
        """Return the lines that get memory until the end of the function for the temporaries that
        several streams use."""
        return [
            f"  {only_if(self.holds(dist_type(value)), statement)}"
            for value in self.temporaries()
            if value in self.streams.shared
            for statement in self.new(self.variable[value], dist_type(value))
        ]

    def _packing(self, op: DistOp, name: str, count: int, dtype: DType, only: str) -> list[str]:
        """Return the statements that get memory until the end of the block of a step."""
        self.scoped.add(op)
        new = self._memory(name, count, dtype)
        return [self._declaration(name, dtype), *(only_if(only, statement) for statement in new)]

    def new(self, name: str, y: DistType) -> list[str]:
        return self._memory(name, element_count(y, self.mesh), y.dtype)

    def checked(self, condition: Condition) -> str:
        return f"if (!({condition_text(condition)})) return ncclInvalidArgument;"

    def attempt(self, call: str) -> str:
        self.on_stream = True
        return f"TRY({call});"

    def is_allocated(self, value: SSAValue) -> bool:
        return value not in self.streams.shared

    def new_spare(self, name: str, y: DistType) -> list[str]:
        new = (only_if(self.holds(y), statement) for statement in self.new(name, y))
        return [self._declaration(name, y.dtype), *new]

    def before_loop(self, op: RepeatOp) -> list[str]:
        return [f"  {line}" for line in self.streams.join()]

    def before_call(self, op: CallOp) -> list[str]:
        return [f"  {line}" for line in self.streams.before(op)]

    def is_last_use(self, owner: SSAValue, op: Operation) -> bool:
        return self.plan.last_use[owner] is op and self.is_allocated(owner)

    def freed(self, name: str) -> list[str]:
        if self.workspace is None:
            return [f"  {name}.release();"]
        self.workspace.give_back(self.offsets[name])
        return []

    # --- steps ------------------------------------------------------------------------------

    def heading(self, op: DistOp) -> list[str]:
        waits = self.streams.before(op)
        if self.streams.waits_at_sender(op):
            sends, _ = self.ends(op)
            waits = [only_if(sends, line) for line in waits]
        return [self.shown(op), *(f"  {line}" for line in waits)]

    def ending(self, op: DistOp) -> list[str]:
        return [f"  {line}" for line in self.streams.after(op)]

    def statements(self, op: DistOp) -> list[str]:
        before = list(self.workspace.taken) if self.workspace else []
        self.cuda.stream = self.streams.on[op]
        statements = super().statements(op)
        self.cuda.stream = CALLERS
        if self.workspace is not None and not self.streams.events:  # gives back what was packed
            self.workspace.taken = before
        self.on_stream |= bool(statements)
        return statements

    def computation(self, op: DistOp) -> list[str]:
        nanoseconds = self.scaled_seconds(op, self._nanoseconds)
        if nanoseconds in ("", "0"):
            return []
        self.cuda.needs.add("compute_for")
        if not nanoseconds.isdigit():
            nanoseconds = f"(size_t)({nanoseconds})"
        return [f"TRY_CUDA(cudaLaunchHostFunc({CALLERS}, compute_for, (void *)({nanoseconds})));"]

    def _nanoseconds(self, seconds: float) -> str:
        """Return seconds in nanoseconds; a part of one counts where it is multiplied by a size."""
        exact, rounded = 1e9 * seconds, round(1e9 * seconds)
        near = abs(exact - rounded) <= 1e-9 * exact
        return repr(exact) if self.sizes and not near else str(rounded)

    def collective(self, op: DistOp) -> list[str]:
        x, y = dist_type(op.input), dist_type(op.result)
        comm = "" if op.kind is PERMUTE else self.communicator(op)
        operand, out = self.variable[op.input], self.variable[op.result]
        at_root = self.names.at_place(root_place(op))
        sent = Sent(op, operand, out, x, y, NCCL_TYPES[x.dtype], comm, at_root)
        if parts := parts_of(op, self.mesh):
            return self._uneven(sent, parts)
        return self.COLLECTIVES[op.mnemonic](self, sent)

    def _uneven(self, s: Sent, parts: Sequence[Part]) -> list[str]:
        """Return the statements for blocks that differ in size.

        They get memory for blocks one behind the other, where blocks lie side by side in rows or
        are padded to the largest. The call takes for each dimension that is cut or joined the units
        of the ranks, the elements of a unit in a row, and the rows.
        """
        padded = _may_be_padded(s.op) and not runs_grouped(s.op, self.mesh)
        group = self.mesh.group_size(s.op.over)
        lines: list[str] = []
        memory: list[str] = []
        arguments: list[str] = []
        for part in parts:
            name = "NULL"
            if padded or part.rows != 1:
                name = "coming" if part.comes else "packed"
                count = element_count(s.y if part.comes else s.x, self.mesh)
                if padded:
                    count = part.row * part.rows * part.most * group
                only = s.at_root if "root" in (s.op.kind.before, s.op.kind.after) else ""
                lines += self._packing(s.op, name, count, s.y.dtype, only)
            memory.append(name)
            arguments.append(self.names.parts_of(s.op.over, part.shares))
            if _may_be_padded(s.op):
                arguments.append(str(part.most if padded else 0))
            arguments += [size_text(part.row), size_text(part.rows)]
        function = f"{s.op.mnemonic}_blocks"
        check_uneven(s.op, sections("nccl_runtime.cu"), function)
        self.cuda.needs.add(function)
        tail = [s.kind, *([operator(s.x)] if s.op.kind.reduces else []), s.comm, self.cuda.stream]
        passed = ", ".join([s.operand, s.out, *memory, *arguments, *tail])
        return [*lines, f"TRY({function}({passed}));"]

    # --- collectives ------------------------------------------------------------------------

    def _all_reduce(self, s: Sent) -> list[str]:
        return [self.call("ncclAllReduce", s, self.elements(s.y), operator(s.x))]

    def _reduce(self, s: Sent) -> list[str]:
        return [self.call("ncclReduce", s, self.elements(s.y), operator(s.x), "0")]

    def _broadcast(self, s: Sent) -> list[str]:
        return [self.call("ncclBroadcast", s, self.elements(s.y), str(self.root(s.op)))]

    def _reduce_scatter(self, s: Sent) -> list[str]:
        block = s.y.local_shape(self.mesh)
        before, packed = self._packed(s, s.op.integer("dim"), block)
        sent = replace(s, operand=packed)
        return [
            *before,
            self.call("ncclReduceScatter", sent, self.elements(s.y), operator(s.x)),
        ]

    def _scatter(self, s: Sent) -> list[str]:
        root = self.root(s.op)
        name, tail = ("scatter_from", [str(root)]) if root else ("scatter", [])
        self.cuda.needs.add(name)
        block = s.y.local_shape(self.mesh)
        before, packed = self._packed(s, s.op.integer("dim"), block, s.at_root)
        sent = replace(s, operand=packed)
        return [*before, self.call(name, sent, self.elements(s.y), *tail)]

    def _all_gather(self, s: Sent) -> list[str]:
        block = s.x.local_shape(self.mesh)
        before, coming, after = self._unpacked(s, s.op.integer("dim"), block)
        call = self.call("ncclAllGather", replace(s, out=coming), self.elements(s.x))
        return [*before, call, *after]

    def _gather(self, s: Sent) -> list[str]:
        self.cuda.needs.add("gather")
        block = s.x.local_shape(self.mesh)
        before, coming, after = self._unpacked(s, s.op.integer("dim"), block, s.at_root)
        call = self.call("gather", replace(s, out=coming), self.elements(s.x))
        return [*before, call, *after]

    def _all_to_all(self, s: Sent) -> list[str]:
        self.cuda.needs.add("all_to_all")
        source, target = s.op.integer("source"), s.op.integer("target")
        block = list(s.x.local_shape(self.mesh))
        block[target] //= self.mesh.group_size(s.op.over)
        before, packed = self._packed(s, target, block)
        memory, coming, after = self._unpacked(s, source, block)
        call = self.call("all_to_all", replace(s, operand=packed, out=coming), math.prod(block))
        return [*before, *memory, call, *after]

    def elements(self, x: DistType) -> int:
        """Return the number of elements that a rank holds of a value."""
        return element_count(x, self.mesh)

    def call(self, name: str, s: Sent, count: int, *tail: str) -> str:
        """Return a call on a number of elements."""
        arguments = [s.operand, s.out, size_text(count), s.kind, *tail, s.comm, self.cuda.stream]
        return f"TRY({name}({', '.join(arguments)}));"

    def _packed(
        self, s: Sent, dim: int, block: Sequence[int], only: str = ""
    ) -> tuple[list[str], str]:
        """Return the statements that make the blocks along a dimension of the operand contiguous,
        and the buffer with these blocks."""
        if (rows := math.prod(block[:dim])) == 1:
            return [], s.operand
        group, row = self.mesh.group_size(s.op.over), math.prod(block[dim:])
        swap = self.cuda.swap("packed", s.operand, rows, group, row * s.y.dtype.bytes)
        lines = self._packing(s.op, "packed", math.prod(block) * group, s.y.dtype, only)
        return [*lines, only_if(only, swap)], "packed"

    def _unpacked(
        self, s: Sent, dim: int, block: Sequence[int], only: str = ""
    ) -> tuple[list[str], str, list[str]]:
        """Return the memory for contiguous blocks along a dimension of the result, the buffer with
        these blocks, and the statements that put them in their rows."""
        if (rows := math.prod(block[:dim])) == 1:
            return [], s.out, []
        group, row = self.mesh.group_size(s.op.over), math.prod(block[dim:])
        swap = self.cuda.swap(s.out, "coming", group, rows, row * s.y.dtype.bytes)
        lines = self._packing(s.op, "coming", math.prod(block) * group, s.y.dtype, only)
        return lines, "coming", [only_if(only, swap)]

    def _permute(self, s: Sent) -> list[str]:
        """Return the statements that send this rank's block to one rank and get one: the r-th rank
        that holds a block sends it to the r-th rank that wants it."""
        self.cuda.needs.add("permute")
        arguments = [*self.exchanged(s.op), s.kind, f"{self.names.variable}.comm"]
        return [*self.partners(s.op), f"TRY(permute({', '.join([*arguments, CALLERS])}));"]

    def _send(self, s: Sent) -> list[str]:
        sends, receives = self.ends(s.op)
        rest = [size_text(self.elements(s.x)), s.kind]
        ends = [s.comm, self.cuda.stream]
        send = [s.operand, *rest, str(s.op.integer("receiver")), *ends]
        receive = [s.out, *rest, str(s.op.integer("sender")), *ends]
        return [
            f"if ({sends})",
            f"  TRY(ncclSend({', '.join(send)}));",
            f"if ({receives})",
            f"  TRY(ncclRecv({', '.join(receive)}));",
        ]

    def _shift(self, s: Sent) -> list[str]:
        self.cuda.needs.add("shift")
        count = self.elements(s.x)
        lines = self.neighbours(s.op, "-1")
        if "open" in s.op.properties:
            (filled,) = self.cuda.fill(s.out, count, 0.0, s.x.dtype)
            lines.append(only_if("from < 0", filled))
        arguments = [s.operand, "to", s.out, "from", size_text(count), s.kind, s.comm]
        return [*lines, f"TRY(shift({', '.join([*arguments, self.cuda.stream])}));"]

    COLLECTIVES: ClassVar[Emitters[Sent]] = OperationTable(
        "NcclFunction.COLLECTIVES",
        __name__,
        {
            "all_reduce": _all_reduce,
            "reduce": _reduce,
            "broadcast": _broadcast,
            "reduce_scatter": _reduce_scatter,
            "scatter": _scatter,
            "all_gather": _all_gather,
            "gather": _gather,
            "all_to_all": _all_to_all,
            "send": _send,
            "shift": _shift,
            "permute": _permute,
        },
        row="a method that returns its statements in C++ for NCCL",
    )
    """The statements of each collective, for the ranks that take part."""


def operator(x: DistType) -> str:
    """Return the reduction of a value as an argument."""
    assert x.reduction is not None
    return _NCCL_OPS[x.reduction]
