"""Python for mpi4py: a class per mesh, with a method per ``func`` on numpy arrays."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import IO, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DType, Reduction
from collir.layout.local import LocalBuffer
from collir.layout.operation_table import OperationTable
from collir.localize.writer import ANY_GROUPS
from collir.targets.code.numpy_methods import METHODS as MODEL_METHODS
from collir.targets.code.numpy_methods import USES
from collir.targets.code.numpy_ops import EXPRESSIONS, NATIVE, OUT_OF_ORDER, VIEWS, NumpyStep
from collir.targets.code.python_file import PrintedClass, classes, example, header, helpers
from collir.targets.code.python_text import call, tuple_text
from collir.targets.code.rank_forms import DTYPES
from collir.targets.code.rank_method import (
    CollectiveCall,
    RankMethod,
    Sender,
    Transfer,
    inside,
    only_if,
)
from collir.targets.code.ranks import needed_ranks

_AS_BITS = {DType.F16: "np.float16", DType.BF16: "ml_dtypes.bfloat16"}
"""The element types that MPI does not know, as numpy knows them."""

_UFUNCS = {
    Reduction.SUM: "np.add",
    Reduction.PROD: "np.multiply",
    Reduction.MAX: "np.maximum",
    Reduction.MIN: "np.minimum",
}


@dataclass
class Mpi4pyMethod(RankMethod):
    """The method of one function on mpi4py.

    Attributes:
        operators: the reductions of types that MPI does not know.
    """

    operators: set[tuple[DType, Reduction]] = field(default_factory=set[tuple[DType, Reduction]])

    array: ClassVar[str] = "an array"
    WAIT: ClassVar[str] = "Wait"
    STEP = NumpyStep
    EXPRESSIONS = EXPRESSIONS
    NATIVE = NATIVE
    USES = USES

    def library(self, name: str) -> str:
        """Return a function or a type of the library of arrays."""
        self.needs.add("xp")
        return f"xp.{name}"

    def dtype(self, dtype: DType) -> str:
        if dtype is DType.BF16:
            self.needs.add("ml_dtypes")
            return "ml_dtypes.bfloat16"
        return self.library(DTYPES[dtype])

    def empty(self, x: LocalBuffer) -> str:
        return f"{self.library('empty')}({self.shape(x.shape)}, dtype={self.dtype(x.dtype)})"

    def copied(self, text: str, *, in_order: bool | None = True) -> str:
        self.needs.add("packed")
        return f"self._packed({text})"

    def cast(self, text: str, dtype: DType) -> str:
        return f"{self.library('astype')}({text}, {self.dtype(dtype)})"

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        return f"{self.library('reshape')}({x}, {self.shape(shape)})"

    def permuted(self, x: str, order: Sequence[int]) -> str:
        return f"{self.library('permute_dims')}({x}, {tuple_text(order)})"

    def repeated(self, x: str, shape: Sequence[int]) -> str:
        return f"{self.library('broadcast_to')}({x}, {self.shape(shape)})"

    def strided(self, x: str, view: LocalBuffer, start: int) -> str:
        self.needs.add("strided")
        shape, strides = self.shape(view.shape), self.shape(view.steps)
        return f"self._strided({x}, {shape}, {strides}, {self.spelled(start)})"

    def prologue(self) -> list[str]:
        return ["xp = self.xp"] if "xp" in self.needs else []

    def in_order(self, op: DistOp, text: str) -> str:
        self.needs.add("xp")
        if op.mnemonic in VIEWS and len(op.operands) == 1:
            return self.copied(text)
        if op.mnemonic in OUT_OF_ORDER:
            return f'{self.library("asarray")}({text}, order="C")'
        # numpy makes single numbers of arrays without dimensions.
        alone = op.operands and not dist_type(op.result).dims
        return f"{self.library('asarray')}({text})" if alone else text

    # --- calls --------------------------------------------------------------------------------

    def called(self, s: CollectiveCall, verb: str, *arguments: str) -> str:
        """Return a call of a communicator, which does not wait if something is under way then."""
        name = f"I{verb[0].lower()}{verb[1:]}" if s.token else verb
        communicator = f"self.{self.names.groups[s.op.axes.data]}"
        return f"{communicator}.{name}({', '.join(arguments)})"

    def bits(self, s: CollectiveCall, text: str) -> str:
        """Return an array as an argument; of a type that MPI does not know, its bits."""
        if s.dtype not in _AS_BITS:
            return text
        self.needs.add("np")
        return f"{text}.view(np.uint16)"

    def at_root(self, s: CollectiveCall, text: str) -> str:
        """Return an argument that only the root has."""
        return f"{text} if {s.root} else None" if s.root else text

    def counted(self, s: CollectiveCall, text: str, counts: Sequence[int]) -> str:
        """Return an array with the elements of each rank's block, if they differ."""
        array = self.bits(s, text)
        return f"[{array}, {self.counts(counts)}]" if counts else array

    def counts(self, counts: Sequence[int]) -> str:
        """Return the elements of blocks as a list."""
        return f"[{', '.join(map(self.spelled, counts))}]"

    def operator(self, s: CollectiveCall) -> str:
        """Return the reduction of a collective as an argument."""
        reduction = s.op.operation
        assert reduction is not None
        reduction = Reduction.SUM if reduction is Reduction.AVG else reduction
        self.needs.add("MPI")
        if s.dtype is DType.BOOL:
            return "MPI.LOR" if reduction is Reduction.MAX else "MPI.LAND"
        if s.dtype not in _AS_BITS:
            return f"MPI.{reduction.upper()}"
        self.needs.add("np")
        self.operators.add((s.dtype, reduction))
        return _operator_name(s.dtype, reduction)

    def average(self, s: CollectiveCall) -> list[str]:
        if s.op.operation is Reduction.AVG and s.dtype in _AS_BITS:
            return [f"{s.out}[...] = {s.out}.astype(np.float32) / {s.group}"]
        return super().average(s)

    # --- collectives --------------------------------------------------------------------------

    def _all_reduce(self, s: CollectiveCall) -> Transfer:
        arrays = [self.bits(s, s.source), self.bits(s, s.out)]
        call = self.called(s, "Allreduce", *arrays, self.operator(s))
        return self.transfer(s, s.new, call, self.average(s))

    def _reduce(self, s: CollectiveCall) -> Transfer:
        out = self.at_root(s, self.bits(s, s.out))
        call = self.called(s, "Reduce", self.bits(s, s.source), out, self.operator(s))
        return self.transfer(s, only_if(s.root, s.new), call, only_if(s.root, self.average(s)))

    def _broadcast(self, s: CollectiveCall) -> Transfer:
        root = s.op.number("root")
        lines = only_if(s.root, [self.result_is(s, s.source)])
        if s.root and s.new:
            lines += ["else:", *inside(s.new)]
        return self.transfer(s, lines, self.called(s, "Bcast", self.bits(s, s.out), *_from(root)))

    def _reduce_scatter(self, s: CollectiveCall) -> Transfer:
        sends, _ = s.op.counts
        arrays = [self.bits(s, s.source), self.bits(s, s.out)]
        verb = "Reduce_scatter" if sends else "Reduce_scatter_block"
        more = [self.counts(sends)] if sends else []
        call = self.called(s, verb, *arrays, *more, self.operator(s))
        return self.transfer(s, s.new, call, self.average(s))

    def _scatter(self, s: CollectiveCall) -> Transfer:
        sends, _ = s.op.counts
        source = self.at_root(s, self.counted(s, s.source, sends))
        rest = [self.bits(s, s.out), *_from(s.op.number("root"))]
        return self.transfer(s, s.new, self.called(s, f"Scatter{'v' * bool(sends)}", source, *rest))

    def _all_gather(self, s: CollectiveCall) -> Transfer:
        _, receives = s.op.counts
        arrays = [self.bits(s, s.source), self.counted(s, s.out, receives)]
        return self.transfer(s, s.new, self.called(s, f"Allgather{'v' * bool(receives)}", *arrays))

    def _gather(self, s: CollectiveCall) -> Transfer:
        _, receives = s.op.counts
        out = self.at_root(s, self.counted(s, s.out, receives))
        call = self.called(s, f"Gather{'v' * bool(receives)}", self.bits(s, s.source), out)
        return self.transfer(s, only_if(s.root, s.new), call)

    def _all_to_all(self, s: CollectiveCall) -> Transfer:
        sends, receives = s.op.counts
        arrays = [self.counted(s, s.source, sends), self.counted(s, s.out, receives)]
        return self.transfer(s, s.new, self.called(s, f"Alltoall{'v' * bool(sends)}", *arrays))

    def _send(self, s: CollectiveCall) -> Transfer:
        if s.op.peers is not None:
            return self._send_to_peers(s)
        sends, receives = self.ends(s.op)
        to, source = s.op.number("receiver"), s.op.number("sender")
        call = self.called(s, "Send", self.bits(s, s.source), f"dest={to}")
        receive = self.called(s, "Recv", self.bits(s, s.out), f"source={source}")
        token = f"{s.token} = " if s.token else ""
        start = [
            *([f"{s.token} = None"] if s.token else []),
            *only_if(sends, [f"{token}{call}"]),
            f"elif {receives}:",
            *inside([*s.new, f"{token}{receive}"]),
        ]
        wait = [f"if {s.token} is not None:", f"    {s.token}.Wait()"]
        return Transfer(start, wait if s.token else [])

    def _send_to_peers(self, s: CollectiveCall) -> Transfer:
        lines = list(s.new)
        for name, number in zip(("to", "from_"), s.op.partners, strict=True):
            lines.append(f"{name} = {self.spelled(number)}")
            if self.is_partial(s.op):
                self.needs.add("MPI")
                lines += [f"if {name} == {s.group}:", f"    {name} = MPI.PROC_NULL"]
        return self._exchanged(s, lines, f"self.{self.names.groups[s.op.axes.data]}")

    def _shift(self, s: CollectiveCall) -> Transfer:
        by, is_open, axes = s.op.number("distance"), s.op.open is not None, s.op.axes.data
        lines = [*s.new, *([f"{s.out}[...] = 0"] if is_open else [])]
        for name, distance in (("to", by), ("from_", -by)):
            if not is_open:
                lines.append(f"{name} = {self.names.next_index(axes, distance)}")
                continue
            self.needs.add("MPI")
            lines += [
                f"{name} = {self.names.index_on_line(axes, distance)}",
                f"if {self.names.beyond_line(axes, distance, name)}:",
                f"    {name} = MPI.PROC_NULL",
            ]
        return self._exchanged(s, lines, f"self.{self.names.groups[axes]}")

    def _permute(self, s: CollectiveCall) -> Transfer:
        assert s.op.before is not None and s.op.after is not None
        x, y = s.op.before.data, s.op.after.data
        lines = [self.names.partner("to", x, y), self.names.partner("from_", y, x), *s.new]
        return self._exchanged(s, lines, "self.comm")

    def _exchanged(self, s: CollectiveCall, before: Sequence[str], communicator: str) -> Transfer:
        """Return the exchange with the ranks ``to`` and ``from_``."""
        sent, received = self.bits(s, s.source), self.bits(s, s.out)
        if not s.token:
            arguments = f"{sent}, dest=to, recvbuf={received}, source=from_"
            return Transfer([*before, f"{communicator}.Sendrecv({arguments})"], [])
        self.needs.add("MPI")
        send, receive = f"Isend({sent}, dest=to)", f"Irecv({received}, source=from_)"
        pair = f"{communicator}.{send}, {communicator}.{receive}"
        return Transfer([*before, f"{s.token} = [{pair}]"], [f"MPI.Request.Waitall({s.token})"])

    COLLECTIVES: ClassVar[Sender] = OperationTable(
        "Mpi4pyMethod.COLLECTIVES",
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
        row="a method that returns its statements in Python for mpi4py",
    )


def _from(root: int) -> list[str]:
    """Return the argument that names the root, unless it is the first rank."""
    return [f"root={root}"] if root else []


def _operator_name(dtype: DType, reduction: Reduction) -> str:
    return f"{reduction.upper()}_OF_{dtype.upper()}"


# ---------------------------------------------------------------------------------------------
# The file
# ---------------------------------------------------------------------------------------------

_HEADER = """\
Arguments are checked, results are new arrays. Where a rank holds nothing of a value, it gives
and gets None. Arrays are numpy's, unless a mesh is made with the module of another library
(xp=cupy) that has the Python array API, and that MPI is built for. Needs numpy 2.1, mpi4py 4
and, for more than 2^31 - 1 elements, MPI 4."""

_REDUCED = '''\
def _on_floats(combine, dtype):
    """An MPI operator on a type that MPI does not know: computed in float32.

    mpi4py has room for 16 such operators in a process.
    """

    def operator(x, y, _):
        x, y = np.frombuffer(x, dtype), np.frombuffer(y, dtype)
        y[...] = combine(y.astype(np.float32), x.astype(np.float32))

    return MPI.Op.Create(operator, commute=True)
'''

_PACKED = '''\
    def _packed(self, x):
        """A new array with the elements of x in order, as MPI reads them."""
        new = self.xp.empty(x.shape, dtype=x.dtype)
        new[...] = x
        return new
'''

_ARGUMENT = '''\
    def _argument(self, name, x, dtype, shape):
        """An argument with its elements in order, if it is what it should be."""
        if getattr(x, "dtype", None) != dtype or x.shape != shape:
            found = f"{x.dtype} of shape {x.shape}" if hasattr(x, "dtype") else repr(x)
            raise ValueError(f"{name} is {found}, not {dtype} of shape {shape}")
        flags = getattr(x, "flags", None)
        return x if flags is not None and flags.c_contiguous else self._packed(x)
'''


_STRIDED = '''\
    def _strided(self, x, shape, strides, start):
        """A view of an array from an element on, with steps between indices."""
        flat = self.xp.reshape(x, (-1,))[start:]
        steps = [step * x.itemsize for step in strides]
        return self.xp.lib.stride_tricks.as_strided(flat, shape, steps)
'''


def _class(printed: PrintedClass[Mpi4pyMethod]) -> list[str]:
    names, mesh = printed.names, printed.names.mesh
    lines = [
        f"class {names.class_name}:",
        f'    """{names.description()}."""',
        "",
        "    def __init__(self, comm, xp=np):",
        f"        if comm.size != {mesh.devices}:",
        f'            raise ValueError(f"{needed_ranks(mesh)}, has {{comm.size}}")',
        "        self.xp = xp",
    ]
    if names.sends:
        lines += ["        self.comm = comm.Dup()", "        self.rank = comm.rank"]
    statements = ["rank = comm.rank"] if mesh.sub_axes else []
    statements += names.coordinates()
    if names.groups:
        statements.append("# Communicators, their ranks in the order of the sub-axes.")
    for group, name in names.groups.items():
        rest = [sub.name for sub in mesh.sub_axes if sub.name not in group]
        arguments = [names.index_over(rest), names.index_over(group)]
        statements += call(f"self.{name} = comm.Split", arguments)
    lines += [f"        {line}" for line in statements]
    lines += ["", "    def free(self):", '        """Frees the communicators."""']
    lines += [f"        self.{name}.Free()" for name in names.groups.values()]
    lines += ["        self.comm.Free()"] if names.sends else []
    lines += [line for method in printed.methods for line in ("", *method)]
    packed = {"packed"} if "argument" in printed.needs else set[str]()
    return lines + helpers(printed.needs | packed, _HELPERS)


_HELPERS = {
    "argument": _ARGUMENT,
    "packed": _PACKED,
    "strided": _STRIDED,
    **MODEL_METHODS,
}
"""The methods that methods of functions call, by what needs them."""


def emit_mpi4py(module: ModuleOp, named: Collection[str] | None = None) -> str:
    """Return the Python module of the functions of a module.

    Args:
        named: the functions to print, if there are operations of models; None: all functions that
            no other function calls.

    Raises:
        DiagnosticError: names that Python cannot have, operations that are not collectives.
    """
    printed = classes(module, Mpi4pyMethod, "mpi4py", ANY_GROUPS, named)
    needs = set[str]().union(*(x.needs for x in printed))
    operators = {pair for x in printed for function in x.functions for pair in function.operators}
    bodies = [line for x in printed for line in ("", "", *_class(x))]
    lines = header("mpi4py and numpy", _USE, example(printed, "MPI.COMM_WORLD"), _HEADER)
    standard = [name for name, wanted in _MODULES.items() if needs.intersection(wanted)]
    lines += ["", *standard] if standard else []
    imports = ["import ml_dtypes"] if "ml_dtypes" in needs else []
    if bodies:
        imports.append("import numpy as np")
    imports += ["from mpi4py import MPI"] if "MPI" in needs else []
    lines += ["", *imports] if imports else []
    if operators:
        lines += ["", "", _REDUCED, ""]
        for dtype, reduction in sorted(operators):
            name = _operator_name(dtype, reduction)
            lines += call(f"{name} = _on_floats", [_UFUNCS[reduction], _AS_BITS[dtype]], 0)
    return "\n".join([*lines, *bodies, ""])


_MODULES = {"import math": ("math",), "import time": ("time",)}
"""The modules of the standard library, with what needs them."""

_USE = """\
Every rank makes one object of a mesh, for a communicator of as many ranks, and calls its methods
with its own arrays:"""


@dataclass(frozen=True)
class Mpi4pyTarget(Target):
    """Python for mpi4py: a class per mesh, with a method per `func` on numpy arrays.

    The class makes the communicators once, with ranks in the order of the sub-axes. Arguments are
    checked; results are new arrays, and None where a rank holds nothing.

    Arrays of other libraries than numpy are passed to MPI by DLPack or `__cuda_array_interface__`.
    Such a library needs the Python array API and arrays that can be written, and MPI has to be
    built for its device. f16 and bf16 are for numpy only, and are reduced in Python. Counts above
    2^31 - 1 need MPI 4. On axes with weights, collectives are MPI's for different counts
    (`Allgatherv`, ...).

    The code is that of the local level (`-t local`), operation by operation. An `async` collective
    is started (`Iallreduce`, ...), and waited for before its result or its memory is used. A
    `repeat` is a loop; calls and gradients are their steps. Each task of a pipeline is a method,
    which the ranks of its place call for every microbatch in the order of the schedule.

    Operations of models are expressions of numpy on the blocks of a rank (`xp.einsum`, ...), or
    calls of methods that are printed where they are used; of another library they need numpy's
    functions beyond the array API. In f16 and bf16 an operation of more than one function is
    computed in f32 and rounded once. Functions with operations of models that others call are not
    printed by themselves.
    """

    name = "mpi4py"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(emit_mpi4py(module))
