"""One function in C for MPI 3.0 and C99: its collectives are started or waited for."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from xdsl.ir import Operation, SSAValue

from collir.dialects.nested import CallOp, NestedOp, RepeatOp
from collir.dialects.operation import DistOp, is_of_model
from collir.dialects.tensor import dist_type
from collir.ir.any_size import Condition
from collir.ir.blocks import Part, parts_of
from collir.ir.models import has_models
from collir.ir.steps import is_free
from collir.layout import DistType, DType, Reduction
from collir.layout.operation_table import OperationTable
from collir.layout.sizes import OpenSize
from collir.localize.arena import Arena
from collir.localize.places import root_place, taking_part
from collir.targets.code.c_file import sections
from collir.targets.code.c_function import CFunction
from collir.targets.code.c_kernels import Kernels
from collir.targets.code.c_local import HostSteps
from collir.targets.code.c_models import BODIES
from collir.targets.code.c_text import (
    AS_BITS,
    C_ELEMENTS,
    C_TYPES,
    condition_text,
    element_count,
    loop,
    number_text,
    only_if,
    size_text,
    with_comments_kept,
)
from collir.targets.code.emitters import check_uneven
from collir.targets.code.mpi_mesh import custom_operator
from collir.targets.code.ranks import outermost
from collir.targets.code.waits import remark_waits

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


@dataclass(frozen=True)
class Start:
    """The call that starts a collective.

    Attributes:
        call: the call, with names for its arguments.
        in_place: whether the operand is sent from the buffer of the result.
        receive: the call that receives, if that is another one.
    """

    call: str
    in_place: bool = False
    receive: str = ""


_MESSAGE = Start(
    "MPI_Isend({x}, {n}, {type}, {to}, 0, {comm}, {request})",
    receive="MPI_Irecv({y}, {n}, {type}, {source}, 0, {comm}, {request})",
)

STARTS: OperationTable[Start] = OperationTable(
    "STARTS",
    __name__,
    {
        "all_reduce": Start("MPI_Iallreduce({x}, {y}, {n}, {type}, {op}, {comm}, {request})"),
        "reduce": Start("MPI_Ireduce({x}, {y}, {n}, {type}, {op}, 0, {comm}, {request})"),
        "broadcast": Start(
            "MPI_Ibcast({y}, {n}, {type}, {root}, {comm}, {request})", in_place=True
        ),
        "reduce_scatter": Start(
            "MPI_Ireduce_scatter_block({x}, {y}, {n}, {type}, {op}, {comm}, {request})"
        ),
        "all_gather": Start(
            "MPI_Iallgather({x}, {n}, {type}, {y}, {n}, {type}, {comm}, {request})"
        ),
        "scatter": Start(
            "MPI_Iscatter({x}, {n}, {type}, {y}, {n}, {type}, {root}, {comm}, {request})"
        ),
        "gather": Start("MPI_Igather({x}, {n}, {type}, {y}, {n}, {type}, 0, {comm}, {request})"),
        "all_to_all": Start("MPI_Ialltoall({x}, {n}, {type}, {y}, {n}, {type}, {comm}, {request})"),
        "send": _MESSAGE,
        "shift": _MESSAGE,
    },
    row="the call of MPI that starts it",
)
"""The calls that start a collective.

The calls that wait are functions of the runtime (mpi_runtime.c) with the names of collectives, and
``_rows`` behind the name where the blocks of a later dimension are moved.
"""

_MEMORY = "collir_memory"
"""The variable of the memory of all temporaries, a name that no other has."""

_MOST_STARTED = 2**31 - 1
"""The most elements that one call takes."""


@dataclass
class MpiFunction(CFunction):
    """One function in C for MPI.

    Attributes:
        started: the numbers of the requests of each collective that was started.
        reading: the number of started collectives that read a buffer.
        passed: the operations whose statements are printed.
        ended: the started collectives that were waited for.
        fallible: whether a statement goes to the label ``done`` when it fails.
        spares: the spare buffers of carries, with the types of their elements.
        kernels: the functions of the file for operations of models.
        arena: the places of temporaries in one allocation; None if each has its own. Models have
            many, and most are small.
        kinds: the types of the elements in these places.
    """

    success: ClassVar[str] = "MPI_SUCCESS"
    result: ClassVar[str] = "int"

    started: dict[DistOp, range] = field(default_factory=dict[DistOp, range])
    reading: Counter[SSAValue] = field(default_factory=Counter[SSAValue])
    passed: set[Operation] = field(default_factory=set[Operation])
    ended: set[DistOp] = field(default_factory=set[DistOp])
    fallible: bool = False
    spares: dict[str, str] = field(default_factory=dict[str, str])
    kernels: Kernels = field(default_factory=lambda: Kernels(BODIES))
    arena: Arena[str] | None = None
    kinds: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        super().__post_init__()
        self._local = HostSteps()
        if has_models(self.function) and not self.mesh.uneven:
            self.arena = Arena[str]()
        remark_waits(self.function, self._is_started)

    @property
    def local(self) -> HostSteps:
        return self._local

    @property
    def needs(self) -> set[str]:
        """The sections of the runtime."""
        return self.local.needs

    def text(self) -> list[str]:
        """Return the function with a comment that has its types in ``.coll``."""
        body = self.program()
        body += self._wait(op.result for op in list(self.started))
        body += self.copied_results()
        choice = self.choice()
        lines = [self.comment(), self.signature(), "{", f"  int err = {self.success};"]
        requests = sum(map(len, self.started.values()))
        if requests:
            lines.append(f"  MPI_Request pending[{requests}];")
        lines += [f"  {kind} *{name} = NULL;" for name, kind in self._owned().items()]
        lines += choice
        unused = [*self.unused(), *self.unused_sizes([*choice, *body])]
        lines += [f"  (void){name};" for name in unused]
        if requests:
            lines.append(f"  for (int i = 0; i < {requests}; ++i) pending[i] = MPI_REQUEST_NULL;")
        lines += self._places()
        lines += body
        if self.fallible:
            lines.append("done:")
        if self.started:
            lines.append("  if (err != MPI_SUCCESS) return err; /* memory may still be in use */")
        lines += [f"  free({name});" for name in self._owned()]
        lines += ["  return err;", "}", ""]
        if not self.names.shares:
            return lines
        return [with_comments_kept(line, self.names.resolved) for line in lines]

    def _owned(self) -> dict[str, str]:
        """Return the pointers to memory that the function allocates, with the types of elements."""
        if self.arena is not None:
            return {_MEMORY: "char"} if self.arena.size else {}
        owned = {self.variable[x]: C_TYPES[dist_type(x).dtype] for x in self.temporaries()}
        return owned | self.spares

    def _places(self) -> list[str]:
        """Return the lines that allocate memory for all temporaries and say where each is."""
        if self.arena is None or not self.arena.size:
            return []
        return [
            f"  NEW({_MEMORY}, {size_text(self.arena.size)});",
            *(
                f"  {self.kinds[name]} *{name} = ({self.kinds[name]} *)({_MEMORY} + {start});"
                for name, start in self.arena.starts.items()
            ),
        ]

    def checked(self, condition: Condition) -> str:
        self.needs.add("check_size")
        call = f'check_size({condition_text(condition)}, "{condition.problem}")'
        return f"if ((err = {call}) != MPI_SUCCESS) return err;"

    def attempt(self, call: str) -> str:
        """Return the statement that goes to the label ``done`` if a call fails."""
        self.fallible = True
        return f"TRY({call});"

    # --- memory -----------------------------------------------------------------------------

    def new(self, name: str, y: DistType) -> list[str]:
        self.fallible = True
        if self.arena is not None:
            _ = self.arena.take(name, element_count(y, self.mesh) * y.dtype.bytes)
            self.kinds[name] = C_TYPES[y.dtype]
            return []
        return [f"NEW({name}, {self.bytes_of(y)});"]

    def new_spare(self, name: str, y: DistType) -> list[str]:
        self.spares[name] = C_TYPES[y.dtype]
        return [only_if(self.holds(y), statement) for statement in self.new(name, y)]

    def before_loop(self, op: RepeatOp) -> list[str]:
        return self._wait(started.result for started in list(self.started))

    def before_call(self, op: CallOp) -> list[str]:
        return self._wait(op.operands)

    def after_loop(self, op: NestedOp) -> list[str]:
        self.passed.add(op)
        carries = self.loops[op] if isinstance(op, RepeatOp) else []
        spares = [names.spare for names in carries if names.spare in self.spares]
        return [line for name in spares for line in self.freed(name)]

    def is_last_use(self, owner: SSAValue, op: Operation) -> bool:
        return self.plan.last_use[owner] in self.passed and not self.reading[owner]

    def freed(self, name: str) -> list[str]:
        if self.arena is not None:
            self.arena.give_back(name)
            return []
        return [f"  free({name});", f"  {name} = NULL;"]

    # --- steps ------------------------------------------------------------------------------

    def heading(self, op: DistOp) -> list[str]:
        waits = self._wait(op.operands)
        if op.kind.sends and self._is_started(op):
            waits += self._wait(self._ahead(op))
        return [*waits, self.shown(op)]

    def ending(self, op: DistOp) -> list[str]:
        self.passed.add(op)
        return []

    def local_step(self, op: DistOp) -> list[str]:
        if not is_of_model(op):
            return super().local_step(op)
        operands = [self.variable[operand] for operand in op.operands]
        return [self.kernels.call(op, self.names, operands, self.variable[op.result])]

    def computation(self, op: DistOp) -> list[str]:
        seconds = self.scaled_seconds(op)
        if not seconds:
            return []
        self.needs.add("compute_for")
        return [self.attempt(f"compute_for({seconds}, {self.names.variable}.comm)")]

    # --- collectives ------------------------------------------------------------------------

    def _operator(self, x: DistType) -> str:
        assert x.reduction is not None
        if (custom := custom_operator(x)) is None:
            return (_MPI_LOGICAL_OPS if x.dtype is DType.BOOL else _MPI_OPS)[x.reduction]
        self.needs.add(x.dtype.value)
        return f"{self.names.variable}.{custom.name}"

    def collective(self, op: DistOp) -> list[str]:
        operand, out = self.variable[op.operands[0]], self.variable[op.result]
        if op.kind.pairs:
            return self.MESSAGES[op.mnemonic](self, op)
        if not self._is_started(op):
            return [self._call(op, operand, out), *self._average(op, out)]
        lines: list[str] = []
        if STARTS[op.mnemonic].in_place:
            copy = self.local.copy(out, operand, self.bytes_of(dist_type(op.operands[0])))
            lines.append(only_if(self.names.at_place(root_place(op)), copy))
        start = self._start(op, operand, out)
        count = self._blocks(op)[0]
        if not isinstance(count, OpenSize):
            return [*lines, start]
        return [
            *lines,
            f"if ({size_text(count)} <= INT_MAX) {start}",
            f"else {self._call(op, operand, out)}",
        ]

    def _start(self, op: DistOp, operand: str, out: str) -> str:
        """Return a call that does not wait."""
        x = dist_type(op.operands[0])
        count, _ = self._blocks(op)
        number = self._requested(op, 1)[0]
        return self.attempt(
            STARTS[op.mnemonic].call.format(
                x=operand,
                y=out,
                n=_int_text(count),
                type=MPI_TYPES[x.dtype],
                op=self._operator(x) if op.kind.reduces else "",
                comm=self.communicator(op),
                root=self.root(op),
                request=f"&pending[{number}]",
            )
        )

    def _requested(self, op: DistOp, count: int) -> range:
        """Return the numbers of the requests of a collective that starts now."""
        self.reading[self.plan.buffer(op.operands[0])] += 1
        first = sum(map(len, self.started.values()))
        self.started[op] = range(first, first + count)
        return self.started[op]

    def _blocks(self, op: DistOp) -> tuple[int, list[int]]:
        """Return the count of elements in an MPI call, and for each dimension whose blocks move the
        number of rows that these elements lie in."""
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
        """Return whether a collective is started and waited for later; a collective that is packed
        or takes several calls is not."""
        if not op.is_async or parts_of(op, self.mesh):
            return False
        count, rows = self._blocks(op)
        return count <= _MOST_STARTED and all(row == 1 for row in rows)

    def _ahead(self, op: DistOp) -> list[SSAValue]:
        """Return the results of the collectives to wait for before a collective starts.

        They are under way on the same stream, and are waited for anyway before anything else is
        done: MPI would let both share the links.
        """
        following = op.next_op
        while isinstance(following, DistOp) and (
            is_free(following, self.mesh)
            or (self._is_started(following) and not self._under_way(following.operands))
        ):
            following = following.next_op
        if not isinstance(following, DistOp):
            return []
        stream = outermost(self.mesh, op)
        running = self._under_way(following.operands)
        return [
            collective.result
            for collective in running
            if outermost(self.mesh, collective) == stream
        ]

    def _under_way(self, values: Iterable[SSAValue]) -> list[DistOp]:
        """Return the collectives that make some values and have started but not ended."""
        makers = (self.plan.owner[value].owner for value in values)
        return [maker for maker in makers if isinstance(maker, DistOp) and self._runs(maker)]

    def _runs(self, op: DistOp) -> bool:
        return op in self.started and op not in self.ended

    def _wait(self, values: Iterable[SSAValue]) -> list[str]:
        """Return the lines that wait for the collectives whose results are in the memory of some
        values."""
        lines: list[str] = []
        for value in values:
            op = self.plan.owner[value].owner
            if isinstance(op, DistOp) and self._runs(op):
                self.ended.add(op)
                self.reading[self.plan.buffer(op.operands[0])] -= 1
                for number in self.started[op]:
                    request = f"&pending[{number}]"
                    lines.append(f"  {self.attempt(f'MPI_Wait({request}, MPI_STATUS_IGNORE)')}")
                averaged = self._average(op, self.variable[op.result])
                if averaged and (condition := self.names.at_place(taking_part(op))):
                    averaged = [f"if ({condition}) {{", *(f"  {line}" for line in averaged), "}"]
                lines += [*(f"  {line}" for line in averaged), *self.release(op)]
        return lines

    def _call(self, op: DistOp, operand: str, out: str) -> str:
        """Return a call that waits; the blocks of a later dimension lie in several rows."""
        if parts := parts_of(op, self.mesh):
            return self._call_uneven(op, operand, out, parts)
        x = dist_type(op.operands[0])
        count, rows = self._blocks(op)
        name, arguments = op.mnemonic, [operand, out, size_text(count)]
        if any(row != 1 for row in rows):
            name += "_rows"
            arguments += map(size_text, rows)
        if root := self.root(op):
            name += "_from"
            arguments.insert(1, str(root))
        arguments.append(MPI_TYPES[x.dtype])
        if op.kind.reduces:
            arguments.append(self._operator(x))
        self.needs.add(name)
        return self.attempt(f"{name}({', '.join([*arguments, self.communicator(op)])})")

    def _call_uneven(self, op: DistOp, operand: str, out: str, parts: Sequence[Part]) -> str:
        """Return a call for blocks that differ in size.

        For each dimension that is cut or joined it takes the units of the ranks, the elements of a
        unit in a row, and the rows. Leaving blocks come before coming blocks.
        """
        x = dist_type(op.operands[0])
        arguments = [operand, out]
        for part in parts:
            arguments.append(self.names.parts_of(op.over, part.shares))
            arguments += [size_text(part.row), size_text(part.rows)]
        arguments.append(MPI_TYPES[x.dtype])
        if op.kind.reduces:
            arguments.append(self._operator(x))
        function = f"{op.mnemonic}_blocks"
        check_uneven(op, sections("mpi_runtime.c"), function)
        self.needs.add(function)
        return self.attempt(f"{function}({', '.join([*arguments, self.communicator(op)])})")

    def _average(self, op: DistOp, out: str) -> list[str]:
        """Return the division at the end of an avg, for the ranks that have the sum."""
        x = dist_type(op.operands[0])
        if not op.kind.reduces or x.reduction is not Reduction.AVG:
            return []
        group = self.mesh.group_size(op.over)
        number = number_text(group, DType.F32 if x.dtype in AS_BITS else x.dtype)
        value = f"{C_ELEMENTS.load(f'{out}[i]', x.dtype)} / {number}"
        count = element_count(dist_type(op.result), self.mesh)
        division = loop(size_text(count), f"{out}[i] = {C_ELEMENTS.store(value, x.dtype)};")
        if op.kind.after == "root":
            return [f"if ({self.names.at_zero(op.over)})", f"  {division}"]
        return [division]

    def _message(self, op: DistOp, to: object, source: object) -> tuple[str, str]:
        """Return the statements that start to send and to receive a message."""
        x = dist_type(op.input)
        count = element_count(x, self.mesh)
        start, numbers = STARTS[op.mnemonic], self.started[op]
        values = {
            "x": self.variable[op.input],
            "y": self.variable[op.result],
            "n": _int_text(count),
            "type": MPI_TYPES[x.dtype],
            "comm": self.communicator(op),
        }
        send = start.call.format(**values, to=to, request=f"&pending[{numbers[0]}]")
        receive = start.receive.format(**values, source=source, request=f"&pending[{numbers[-1]}]")
        return self.attempt(send), self.attempt(receive)

    def _may_be_large(self, op: DistOp) -> bool:
        """Return whether only the values of parameters say if a message takes one call."""
        return isinstance(element_count(dist_type(op.input), self.mesh), OpenSize)

    def _either(self, op: DistOp, started: list[str], waiting: list[str]) -> list[str]:
        """Return the statements that start a message, or those that wait where it is too large."""
        if not self._may_be_large(op):
            return started
        count = element_count(dist_type(op.input), self.mesh)
        return [
            f"if ({size_text(count)} <= INT_MAX) {{",
            *(f"  {line}" for line in started),
            "} else {",
            *(f"  {line}" for line in waiting),
            "}",
        ]

    def _send(self, op: DistOp) -> list[str]:
        """Return the statements that send from one rank of each group to another."""
        x, (sends, receives) = dist_type(op.input), self.ends(op)
        count, comm = size_text(element_count(x, self.mesh)), self.communicator(op)
        to, source = op.integer("receiver"), op.integer("sender")
        kind = MPI_TYPES[x.dtype]
        call = f"send_to({self.variable[op.input]}, {count}, {kind}, {to}, {comm})"
        answer = f"receive_from({self.variable[op.result]}, {count}, {kind}, {source}, {comm})"
        waiting = _at_ends(sends, self.attempt(call), receives, self.attempt(answer))
        started: list[str] = []
        if self._is_started(op):
            self._requested(op, 1)  # a rank sends or receives
            send, receive = self._message(op, to, source)
            started = _at_ends(sends, send, receives, receive)
        if not started or self._may_be_large(op):
            self.needs.add("send")
        return self._either(op, started, waiting) if started else waiting

    def _shift(self, op: DistOp) -> list[str]:
        """Return the statements that send to one neighbour and receive from the other."""
        x, out = dist_type(op.input), self.variable[op.result]
        count = element_count(x, self.mesh)
        arguments = [self.variable[op.input], "to", out, "from", size_text(count)]
        arguments += [MPI_TYPES[x.dtype], self.communicator(op)]
        waiting = [self.attempt(f"shift({', '.join(arguments)})")]
        started: list[str] = []
        if self._is_started(op):
            self._requested(op, 2)
            if "open" in op.properties:
                (filled,) = self.local.fill(out, count, 0.0, x.dtype)
                started = [only_if("from == MPI_PROC_NULL", filled)]
            started += self._message(op, "to", "from")
        if not started or self._may_be_large(op):
            self.needs.add("shift")
        lines = self._either(op, started, waiting) if started else waiting
        return [*self.neighbours(op, "MPI_PROC_NULL"), *lines]

    def _permute(self, op: DistOp) -> list[str]:
        """Return the statements that send this rank's block to one rank and get one, in closed
        form.

        A sub-axis that neither layout is sharded over keeps its coordinate. Among the others, the
        r-th rank that holds a block sends it to the r-th rank that wants it.
        """
        self.needs.add("permute")
        arguments = [*self.exchanged(op), MPI_TYPES[dist_type(op.input).dtype]]
        comm = f"{self.names.variable}.comm"
        return [*self.partners(op), self.attempt(f"permute({', '.join([*arguments, comm])})")]

    MESSAGES: ClassVar[dict[str, Callable[[Any, DistOp], list[str]]]] = {
        "send": _send,
        "shift": _shift,
        "permute": _permute,
    }
    """The statements of each collective in which ranks send to single ranks."""


def _int_text(count: int) -> str:
    """Return a count as an argument of MPI's own."""
    return f"(int)({size_text(count)})" if isinstance(count, OpenSize) else str(count)


def _at_ends(sends: str, send: str, receives: str, receive: str) -> list[str]:
    """Return the statements for the ranks that send, and for those that receive."""
    return [f"if ({sends})", f"  {send}", f"if ({receives})", f"  {receive}"]
