"""The function of a local program in C for MPI 3.0: its collectives are started and waited for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from collir.dialects.local import ComputeOp, LocalCallOp, StartOp, ranks_at
from collir.dialects.local_types import buffer_of
from collir.dialects.tables import OPERATIONS
from collir.layout import DType, Reduction
from collir.layout.operation_table import OperationTable
from collir.targets.code.c_collectives import CallArguments, is_rank, partners, sizes_sent
from collir.targets.code.c_host import HostMethod
from collir.targets.code.c_method import MEMORY, indented
from collir.targets.code.c_text import (
    AS_BITS,
    C_ELEMENTS,
    condition_text,
    loop,
    number_text,
    size_text,
)
from collir.targets.code.mpi_mesh import custom_operator
from collir.transforms.any_size import Condition

MPI_TYPES = {
    DType.F16: "MPI_UINT16_T",
    DType.BF16: "MPI_UINT16_T",
    DType.F32: "MPI_FLOAT",
    DType.F64: "MPI_DOUBLE",
    DType.I8: "MPI_INT8_T",
    DType.I32: "MPI_INT32_T",
    DType.I64: "MPI_INT64_T",
    DType.BOOL: "MPI_C_BOOL",
}
"""The MPI datatype of every element type; f16 and bf16 are sent as their bits."""

_MPI_OPS = {
    Reduction.SUM: "MPI_SUM",
    Reduction.AVG: "MPI_SUM",
    Reduction.PROD: "MPI_PROD",
    Reduction.MAX: "MPI_MAX",
    Reduction.MIN: "MPI_MIN",
}

_MPI_LOGICAL_OPS = {Reduction.MAX: "MPI_LOR", Reduction.MIN: "MPI_LAND"}
"""The reductions of truth values."""


ARGUMENTS: OperationTable[CallArguments] = OperationTable(
    "ARGUMENTS",
    __name__,
    {
        "all_reduce": CallArguments("{x}, {y}, {n}, {type}, {op}", in_place=True),
        "reduce": CallArguments("{x}, {y}, {n}, {type}, {op}, {root}"),
        "broadcast": CallArguments("{x}, {y}, {n}, {type}, {root}"),
        "reduce_scatter": CallArguments(
            "{x}, {y}, {n}, {type}, {op}", "{x}, {y}, {sends}, {type}, {op}"
        ),
        "all_gather": CallArguments("{x}, {y}, {n}, {type}", "{x}, {y}, {receives}, {type}"),
        "gather": CallArguments(
            "{x}, {y}, {n}, {type}, {root}", "{x}, {y}, {receives}, {type}, {root}"
        ),
        "scatter": CallArguments(
            "{x}, {y}, {n}, {type}, {root}", "{x}, {y}, {sends}, {type}, {root}"
        ),
        "all_to_all": CallArguments(
            "{x}, {y}, {n}, {type}", "{x}, {y}, {sends}, {receives}, {most}, {type}"
        ),
        "shift": CallArguments("{x}, to, {y}, from, {n}, {type}"),
        "permute": CallArguments("{x}, {leaves}, to, {y}, {n}, from, {type}"),
    },
    row="the arguments of its function in mpi_runtime.c",
)
"""The arguments for a collective of the function of its name in mpi_runtime.c.

Behind them are the arguments of all collectives: the communicator, and the request, or NULL if it
is waited for. Numbers of MPI's own type are in front of these, where blocks differ in size.
"""


def _exchanges(op: StartOp) -> bool:
    """Return whether a rank sends to one and receives from another one."""
    return op.called in ("shift", "permute") or op.peers is not None


@dataclass
class MpiMethod(HostMethod):
    """The function of a local program in C for MPI."""

    success: ClassVar[str] = "MPI_SUCCESS"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.requests = 0
        self.integers: dict[str, int] = {}

    def declarations(self) -> list[str]:
        lines = [f"MPI_Request pending[{self.requests}];"] if self.requests else []
        return [*lines, *(f"int {name}[{size}];" for name, size in self.integers.items())]

    def preparation(self) -> list[str]:
        if not self.requests:
            return []
        return [f"for (int i = 0; i < {self.requests}; ++i) pending[i] = MPI_REQUEST_NULL;"]

    def body(self, lines: Sequence[str]) -> list[str]:
        text = [f"int err = {self.success};", *lines]
        if not any(re.search(r"\b(TRY|NEW)\(|\bgoto done", line) for line in lines):
            return [*map(indented, text), "  return err;"]
        end = self._ending() if self.has_memory else []
        return [*map(indented, text), "done:", *map(indented, end), "  return err;"]

    def _ending(self) -> list[str]:
        """Return the statements behind the error label, for a function that allocates memory."""
        if not self.names.has_handle:
            return [f"free({MEMORY});"]
        calls = [op.function() for op in self.function.walk() if isinstance(op, LocalCallOp)]
        others = (op for function in calls for op in function.walk())
        if not (self.requests or any(isinstance(op, StartOp) for op in others)):
            return []
        self.needs.add("abandon")
        kept = self.names.member("workspace")
        failed = f"if (err != {self.success})"
        return [f"{failed} abandon(&{kept}); /* what is under way may still use it */"]

    def checked(self, condition: Condition) -> str:
        self.needs.add("check_size")
        call = f'check_size({condition_text(condition)}, "{condition.problem}")'
        return f"if ((err = {call}) != {self.success}) return err;"

    def acquired(self, size: str) -> list[str]:
        if not self.names.has_handle:
            self.needs.add("new")
            return [f"char *{MEMORY};", f"NEW({MEMORY}, {size});"]
        self.needs.add("reserve")
        kept = self.names.member("workspace")
        return [f"char *{MEMORY};", f"TRY(reserve(&{kept}, {size}, &{MEMORY}));"]

    def computation(self, op: ComputeOp) -> list[str]:
        seconds = self.seconds(op)
        if not seconds:
            return []
        self.needs.add("compute_for")
        return [f"TRY(compute_for({seconds}, {self.names.member('comm')}));"]

    # --- collectives ------------------------------------------------------------------------

    def collective(self, op: StartOp, waits: bool) -> tuple[list[str], list[str]]:
        request, wait = "NULL", list[str]()
        if not waits:
            count = 2 if _exchanges(op) else 1
            request = f"&pending[{self.requests}]"
            wait = [f"TRY(MPI_Wait({request}, MPI_STATUS_IGNORE));"]
            if count > 1:
                wait = [f"TRY(MPI_Waitall({count}, {request}, MPI_STATUSES_IGNORE));"]
            self.requests += count
        if op.called == "send" and op.peers is None:
            return self._send(op, request), wait
        name = f"{op.called}_blocks" if any(op.counts) else op.called
        name = "permute" if op.peers else name
        self.needs.add(name)
        call = ", ".join([*self._filled(op, ARGUMENTS[name.split("_blocks")[0]].of(op)), request])
        start, after = [f"TRY({name}({call}));"], self._average(op)
        if _exchanges(op):
            start = [
                "{",
                *(f"  {line}" for line in (*partners(op, self.names, "MPI_PROC_NULL"), *start)),
                "}",
            ]
        return ([*start, *after], []) if waits else (start, [*wait, *after])

    def _filled(self, op: StartOp, form: str) -> list[str]:
        """Return the arguments of a collective up to its communicator."""
        sends, receives = op.counts
        values = sizes_sent(op, self.names) | {
            "x": str(self.of(op.source)),
            "y": str(self.of(op.target)),
            "type": MPI_TYPES[buffer_of(op.source).dtype],
            "sends": self._counts(sends),
            "receives": self._counts(receives),
            "most": self._most(op),
            "op": self._operator(op) if op.operation else "",
        }
        numbers: list[str] = []
        if sends or receives:
            sides = bool(sends) + bool(receives)
            numbers.append(f"collir_counts{len(self.integers)}")
            self.integers[numbers[0]] = 2 * sides * self.mesh.group_size(op.axes.data)
        return [form.format(**values), *numbers, self.names.communicator(op.axes.data)]

    def _counts(self, counts: Sequence[int]) -> str:
        """Return the elements of blocks as an array."""
        return f"(const size_t[]){{{', '.join(map(self.names.spelled, counts))}}}"

    def _most(self, op: StartOp) -> str:
        """Return the most elements that some rank sends or receives."""
        ranks = ranks_at(op)
        sizes = [buffer_of(value).elements for value in (op.source, op.target)]
        return size_text(max(ranks.bounds(size)[1] for size in sizes))

    def _operator(self, op: StartOp) -> str:
        reduction, dtype = op.operation, buffer_of(op.source).dtype
        assert reduction is not None
        if custom := custom_operator(op):
            self.use(dtype)
            return self.names.member(custom.name)
        return (_MPI_LOGICAL_OPS if dtype is DType.BOOL else _MPI_OPS)[reduction]

    def _average(self, op: StartOp) -> list[str]:
        """Return the division at the end of an avg, for the ranks that have the sum."""
        if op.operation is not Reduction.AVG:
            return []
        y, axes = buffer_of(op.target), op.axes.data
        number = number_text(
            self.mesh.group_size(axes), DType.F32 if y.dtype in AS_BITS else y.dtype
        )
        out = self.of(op.target).element("i")
        value = f"{C_ELEMENTS.load(out, y.dtype)} / {number}"
        division = loop(self.elements(y), f"{out} = {C_ELEMENTS.store(value, y.dtype)};")
        if OPERATIONS[op.called].KIND.after == "root":
            root = is_rank(op, "root", self.names)
            return [f"if ({root})", f"  {division}"] if root else [division]
        return [division]

    def _send(self, op: StartOp, request: str) -> list[str]:
        """Return the statements that send from one rank of each group to another."""
        self.needs.add("send")
        x, comm = buffer_of(op.source), self.names.communicator(op.axes.data)
        rest = f"{self.elements(x)}, {MPI_TYPES[x.dtype]}"
        lines: list[str] = []
        for end, peer, call, memory in (
            ("sender", "receiver", "send_to", op.source),
            ("receiver", "sender", "receive_from", op.target),
        ):
            arguments = f"{self.of(memory)}, {rest}, {op.number(peer)}, {comm}, {request}"
            lines += [f"if ({is_rank(op, end, self.names)})", f"  TRY({call}({arguments}));"]
        return lines
