"""The function of a local program in C++17 for NCCL and CUDA, on device buffers and streams."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Block, Operation

from collir.dialects.local import ComputeOp, LocalCallOp, StartOp
from collir.dialects.local_types import buffer_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DType, Place, Reduction
from collir.layout.local import LocalBuffer
from collir.layout.operation_table import OperationTable
from collir.targets.code.c_collectives import CallArguments, is_rank, partners, sizes_sent
from collir.targets.code.c_copies import Pointer
from collir.targets.code.c_method import MEMORY, CMethod, indented
from collir.targets.code.c_text import Words, condition_text, number_text
from collir.targets.code.nccl_mesh import NcclMesh
from collir.targets.code.nccl_streams import StreamPlan
from collir.targets.code.nccl_text import CALLERS, CPP, CUDA_ELEMENTS, CUDA_TYPES, LINKAGE, CudaText
from collir.targets.code.rank_leaves import Piece
from collir.transforms.any_size import Condition

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

_OF_TWO = {
    "mul": "{a} * {b}",
    "div": "{a} / {b}",
    "maximum": "({a} > {b} || {a} != {a} ? {a} : {b})",
    "minimum": "({a} < {b} || {a} != {a} ? {a} : {b})",
}
"""The steps that compute an element of two, besides a sum."""

CALLS: OperationTable[CallArguments] = OperationTable(
    "CALLS",
    __name__,
    {
        "all_reduce": CallArguments("ncclAllReduce({x}, {y}, {n}, {type}, {op}"),
        "reduce": CallArguments("ncclReduce({x}, {y}, {n}, {type}, {op}, {root}"),
        "broadcast": CallArguments("ncclBroadcast({x}, {y}, {n}, {type}, {root}"),
        "reduce_scatter": CallArguments(
            "ncclReduceScatter({x}, {y}, {n}, {type}, {op}",
            "reduce_scatter_blocks({x}, {y}, {sends}, {type}, {op}",
        ),
        "all_gather": CallArguments(
            "ncclAllGather({x}, {y}, {n}, {type}",
            "all_gather_blocks({x}, {y}, {receives}, {type}",
        ),
        "gather": CallArguments(
            "gather({x}, {y}, {n}, {type}, {root}",
            "gather_blocks({x}, {y}, {receives}, {type}, {root}",
        ),
        "scatter": CallArguments(
            "scatter({x}, {y}, {n}, {type}, {root}",
            "scatter_blocks({x}, {y}, {sends}, {type}, {root}",
        ),
        "all_to_all": CallArguments(
            "all_to_all({x}, {y}, {n}, {type}",
            "all_to_all_blocks({x}, {y}, {sends}, {receives}, {type}",
        ),
        "shift": CallArguments("shift({x}, to, {y}, from, {n}, {type}"),
        "permute": CallArguments("permute({x}, {leaves}, to, {y}, {n}, from, {type}"),
    },
    row="the calls of NCCL, or of a function of nccl_runtime.cu, up to the communicator",
)
"""The calls of each collective, one behind the other, without their communicator and stream."""


@dataclass
class NcclMethod(CMethod):
    """The function of a local program in C++ for NCCL.

    Attributes:
        cuda: the statements on a stream, and the kernels of all functions of the file.
    """

    words: ClassVar[Words] = CPP
    types: ClassVar[Mapping[DType, str]] = CUDA_TYPES
    result: ClassVar[str] = "ncclResult_t"
    success: ClassVar[str] = "ncclSuccess"
    linkage: ClassVar[str] = LINKAGE
    last: ClassVar[Sequence[tuple[str, str]]] = (("cudaStream_t", CALLERS),)

    names: NcclMesh  # pyright: ignore[reportIncompatibleVariableOverride]
    cuda: CudaText

    def __post_init__(self) -> None:
        super().__post_init__()
        self.streams = StreamPlan(self.function)
        self.needs = self.cuda.needs

    # --- the function -------------------------------------------------------------------------

    @property
    def first_event(self) -> int:
        """The number of the first event that is this function's own."""
        calls = (op.function() for op in self.function.walk() if isinstance(op, LocalCallOp))
        others = (self.others[function.sym_name.data] for function in calls)
        return max((x.last_event for x in others if isinstance(x, NcclMethod)), default=1)

    @property
    def last_event(self) -> int:
        """The number behind that of its last event."""
        return self.first_event + len(self.streams.numbers)

    def event(self, what: object) -> str:
        """Return the event of a collective, of an operation behind which it is recorded, or of the
        beginning."""
        number = self.first_event + self.streams.numbers[what]
        return f"{self.names.member('events')}[{number}]"

    def body(self, lines: Sequence[str]) -> list[str]:
        return [*map(indented, lines), f"  return {self.success};"]

    def acquired(self, size: str) -> list[str]:
        if self.names.symmetric:
            return [f"char *const {MEMORY} = {self.names.member('workspace')}.start;"]
        self.needs.add("device_memory")
        lines = [f"device_memory held({CALLERS});", f"TRY(held.allocate({size}));"]
        return [*lines, f"char *const {MEMORY} = held;"]

    def checked(self, condition: Condition) -> str:
        return f"if (!({condition_text(condition)})) return ncclInvalidArgument;"

    def preparation(self) -> list[str]:
        """Return the statements that let streams begin behind the caller's."""
        if not (begun := self.streams.begun):
            return []
        begin = self.event(StreamPlan.BEGIN)
        names = dict.fromkeys(map(self._stream, begun))
        return [_record(begin, CALLERS), *(_waits(name, begin) for name in names)]

    def _stream(self, op: StartOp) -> str:
        number = self.names.levels.index(self.streams.stream[op])
        return f"{self.names.member('streams')}[{number}]"

    # --- steps --------------------------------------------------------------------------------

    def copied(self, source: Pointer, x: LocalBuffer, target: Pointer, y: LocalBuffer) -> list[str]:
        return self.cuda.copied(source, x, target, y)

    def filled(self, target: Pointer, y: LocalBuffer, value: float) -> list[str]:
        return self.cuda.filled(target, y, value)

    def computed(
        self,
        op: DistOp,
        starts: Sequence[str],
        inputs: Sequence[Pointer],
        out: Pointer,
        y: LocalBuffer,
    ) -> list[str]:
        return self.KERNELS[op.mnemonic](self, op, [*map(str, inputs), str(out)], y)

    def _sum(self, op: DistOp, names: Sequence[str], y: LocalBuffer) -> list[str]:
        value = CUDA_ELEMENTS.total(["a[i]", "b[i]"], y.dtype)
        return self.cuda.mapped(f"add_{y.dtype}", [y.dtype] * 2, y, value, names, {})

    def _paired(self, op: DistOp, names: Sequence[str], y: LocalBuffer) -> list[str]:
        """Return the launch of a kernel on two elements each."""
        a, b = (CUDA_ELEMENTS.load(word, y.dtype) for word in ("a[i]", "b[i]"))
        value = CUDA_ELEMENTS.store(_OF_TWO[op.mnemonic].format(a=a, b=b), y.dtype)
        return self.cuda.mapped(f"{op.mnemonic}_{y.dtype}", [y.dtype] * 2, y, value, names, {})

    def _scaled(self, op: DistOp, names: Sequence[str], y: LocalBuffer) -> list[str]:
        value = CUDA_ELEMENTS.scaled("a[i]", "factor", y.dtype)
        factor = {"factor": number_text(op.number("factor"), y.dtype)}
        return self.cuda.mapped(f"scale_{y.dtype}", [y.dtype], y, value, names, factor)

    def _cast(self, op: DistOp, names: Sequence[str], y: LocalBuffer) -> list[str]:
        source = dist_type(op.operands[0]).dtype
        value = CUDA_ELEMENTS.converted("a[i]", source, y.dtype)
        return self.cuda.mapped(f"cast_{source}_to_{y.dtype}", [source], y, value, names, {})

    KERNELS: ClassVar[
        OperationTable[Callable[[Any, DistOp, Sequence[str], LocalBuffer], list[str]]]
    ] = OperationTable(
        "NcclMethod.KERNELS",
        __name__,
        {"add": _sum, "scale": _scaled, "cast": _cast, **dict.fromkeys(_OF_TWO, _paired)},
        row="a method that returns the launch of its kernel",
    )
    """The launches of the steps that compute elements."""

    def computation(self, op: ComputeOp) -> list[str]:
        nanoseconds = self.seconds(op, self._nanoseconds)
        if nanoseconds in ("", "0"):
            return []
        self.needs.add("compute_for")
        if not nanoseconds.isdigit():
            nanoseconds = f"(size_t)({nanoseconds})"
        return [f"TRY_CUDA(cudaLaunchHostFunc({CALLERS}, compute_for, (void *)({nanoseconds})));"]

    def _nanoseconds(self, seconds: float) -> str:
        """Return seconds in nanoseconds; a part of one counts where it is multiplied by a size."""
        exact, rounded = 1e9 * seconds, round(1e9 * seconds)
        near = abs(exact - rounded) <= 1e-9 * exact
        return repr(exact) if self.signature.sizes and not near else str(rounded)

    # --- collectives ------------------------------------------------------------------------

    def pieces(self, block: Block, context: Place) -> list[Piece]:
        joined = [_waits(CALLERS, self.event(op)) for op in self.streams.joined[block]]
        return [*super().pieces(block, context), ((), joined)]

    def in_front(self, op: Operation) -> list[str]:
        return self._for_events(self._stream_of(op), self.streams.waits.get(op, ()))

    def behind(self, op: Operation) -> list[str]:
        if op in self.streams.recorded or op in self.streams.stream:
            return [_record(self.event(op), self._stream_of(op))]
        return []

    def _stream_of(self, op: Operation) -> str:
        """Return the stream that an operation runs on."""
        if isinstance(op, StartOp) and op in self.streams.stream:
            return self._stream(op)
        return CALLERS

    def _for_events(self, stream: str, waits: Sequence[object]) -> list[str]:
        """Return the statements that let a stream wait for what an operation needs."""
        lines: list[str] = []
        for what in waits:
            if what is StreamPlan.NOW:
                event = f"{self.names.member('events')}[0]"
                lines += [_record(event, CALLERS), _waits(stream, event)]
            elif what is not StreamPlan.BEGIN:  # for which it has waited
                lines.append(_waits(stream, self.event(what)))
        return lines

    def collective(self, op: StartOp, waits: bool) -> tuple[list[str], list[str]]:
        call = self._send if op.called == "send" and op.peers is None else self._called
        return call(op, self._stream_of(op)), []

    def _called(self, op: StartOp, stream: str) -> list[str]:
        form, reduction = CALLS["permute" if op.peers else op.called].of(op), op.operation
        sends, receives = op.counts
        values = sizes_sent(op, self.names) | {
            "x": str(self.of(op.source)),
            "y": str(self.of(op.target)),
            "type": NCCL_TYPES[buffer_of(op.source).dtype],
            "sends": "sends",
            "receives": "receives",
            "op": _NCCL_OPS[reduction] if reduction else "",
        }
        name = form.partition("(")[0]
        self.needs |= {name} if not name.startswith("nccl") else set[str]()
        end = f"{self.names.communicator(op.axes.data)}, {stream}"
        calls = [f"TRY({part.format(**values)}, {end}));" for part in form.split("; ")]
        before = [
            f"const size_t {word}[] = {self._counts(side)};"
            for word, side in (("sends", sends), ("receives", receives))
            if side
        ]
        if op.called in ("shift", "permute") or op.peers:
            before = partners(op, self.names, "-1")
        if op.open is not None:
            self.cuda.stream = stream
            fill = self.filled(self.of(op.target), self.names.named(buffer_of(op.target)), 0.0)
            self.cuda.stream = CALLERS
            before += ["if (from < 0) {", *map(indented, fill), "}"]
        return ["{", *map(indented, [*before, *calls]), "}"] if before else calls

    def _counts(self, counts: Sequence[int]) -> str:
        """Return the elements of blocks as the values of an array."""
        return f"{{{', '.join(map(self.names.spelled, counts))}}}"

    def _send(self, op: StartOp, stream: str) -> list[str]:
        """Return the statements that send from one rank of each group to another. Only the sender
        waits for its operand; the receiver can receive while it computes."""
        x, comm = buffer_of(op.source), self.names.communicator(op.axes.data)
        rest = f"{self.elements(x)}, {NCCL_TYPES[x.dtype]}"
        lines: list[str] = []
        for end, peer, call, memory, number in (
            ("sender", "receiver", "ncclSend", op.source, 0),
            ("receiver", "sender", "ncclRecv", op.target, 1),
        ):
            ends = self.streams.ends.get(op)
            after = self._for_events(stream, ends[number]) if ends else []
            arguments = f"{self.of(memory)}, {rest}, {op.number(peer)}, {comm}, {stream}"
            statements = [*after, f"TRY({call}({arguments}));"]
            lines += [f"if ({is_rank(op, end, self.names)}) {{"]
            lines += [*map(indented, statements), "}"]
        return lines


def _record(event: str, stream: str) -> str:
    return f"TRY_CUDA(cudaEventRecord({event}, {stream}));"


def _waits(stream: str, event: str) -> str:
    return f"TRY_CUDA(cudaStreamWaitEvent({stream}, {event}, 0));"
