"""Python for mpi4py: a class per mesh, with a method per ``func`` on numpy arrays."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, Reduction
from collir.layout.mesh import index_over
from collir.layout.operation_table import OperationTable
from collir.localize.places import root_place
from collir.targets.code.emitters import Emitters
from collir.targets.code.numpy_methods import METHODS as MODEL_METHODS
from collir.targets.code.numpy_methods import USES
from collir.targets.code.numpy_ops import EXPRESSIONS, NATIVE, OUT_OF_ORDER, VIEWS, NumpyStep
from collir.targets.code.python_file import classes, example, header, helpers
from collir.targets.code.python_function import PythonFunction, is_first
from collir.targets.code.python_steps import Blocks, CutDim, Sent
from collir.targets.code.python_text import call, number_text, tuple_text
from collir.targets.code.rank_forms import DTYPES
from collir.targets.code.rank_function import ModelFunction
from collir.targets.code.rank_mesh import MeshText
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
class Mpi4pyFunction(ModelFunction):
    """The method of one function on mpi4py.

    Attributes:
        operators: the reductions of types that MPI does not know.
    """

    rest: ClassVar[str] = ", ..."
    array: ClassVar[str] = "an array"
    WAIT: ClassVar[str] = "Wait"

    operators: set[tuple[DType, Reduction]] = field(default_factory=set[tuple[DType, Reduction]])

    def library(self, name: str) -> str:
        self.needs.add("xp")
        return f"xp.{name}"

    def dtype(self, dtype: DType) -> str:
        if dtype is DType.BF16:
            self.needs.add("ml_dtypes")
            return "ml_dtypes.bfloat16"
        return self.library(DTYPES[dtype])

    def options(self, dtype: DType) -> str:
        return f"dtype={self.dtype(dtype)}"

    def packed(self, text: str) -> str:
        self.needs.add("packed")
        return f"self._packed({text})"

    def copied(self, text: str) -> str:
        return self.packed(text)

    def cast(self, text: str, dtype: DType) -> str:
        return f"{self.library('astype')}({text}, {self.dtype(dtype)})"

    def reshaped(self, text: str, shape: Sequence[int]) -> str:
        return f"{self.library('reshape')}({text}, {tuple_text(shape)})"

    def transposed(self, text: str, order: Sequence[int]) -> str:
        return f"{self.library('permute_dims')}({text}, {tuple_text(order)})"

    def joined(self, arrays: Sequence[str], dim: int) -> list[str]:
        return call(self.library("concat"), [tuple_text(arrays), f"axis={dim}"], 16)

    def constant(self, value: float, dtype: DType) -> str:
        number = number_text(value, dtype)
        # A number beside an array takes its type, but in types that are not numpy's own.
        return f"{self.dtype(dtype)}({number})" if dtype is DType.BF16 else number

    def prologue(self) -> list[str]:
        return ["xp = self.xp"] if "xp" in self.needs else []

    def computed(self, text: str, x: DistType) -> str:
        # numpy makes single numbers of arrays without dimensions.
        return text if x.dims else f"{self.library('asarray')}({text})"

    # --- operations of models ---------------------------------------------------------------

    STEP = NumpyStep
    EXPRESSIONS = EXPRESSIONS
    NATIVE = NATIVE
    USES = USES

    def in_order(self, op: DistOp, text: str) -> str:
        self.needs.add("xp")
        if op.mnemonic in VIEWS and len(op.operands) == 1:
            return self.packed(text)
        if op.mnemonic in OUT_OF_ORDER:
            return f'{self.library("asarray")}({text}, order="C")'
        return self.computed(text, dist_type(op.result)) if op.operands else text

    # --- collectives ------------------------------------------------------------------------

    def _all_reduce(self, s: Sent) -> list[str]:
        lines = [s.new, *self.send(s, "Allreduce", [s.operand, s.out], self.operator(s.x))]
        return lines + self.average(s.x, s.group, s.out)

    def _reduce(self, s: Sent) -> list[str]:
        lines = [
            *self._at_root(s.new, s.out, s.root),
            *self._send_at_root(s, "Reduce", s.operand, s.out, self.operator(s.x)),
        ]
        average = self.average(s.x, s.group, s.out)
        return lines + self._where(s.root if average else "", [], average)

    def _broadcast(self, s: Sent) -> list[str]:
        made = f"{s.out} = {self.copied(s.operand)}"
        lines = [f"if {s.root}:", f"    {made}", "else:", f"    {s.new}"]
        return [*lines, *self.send(s, "Bcast", [s.out], *self._from(s))]

    def _reduce_scatter(self, s: Sent) -> list[str]:
        cut, blocks = self._cut(s.operand, s.before, s.op.integer("dim"), s.group)
        sent = self.send(s, "Reduce_scatter_block", [blocks, s.out], self.operator(s.x))
        return [*cut, s.new, *sent, *self.average(s.x, s.group, s.out)]

    def _scatter(self, s: Sent) -> list[str]:
        cut, blocks = self._cut(s.operand, s.before, s.op.integer("dim"), s.group)
        cut = self._where(s.root, ["sent = None"], cut) if cut else []
        return [*cut, s.new, *self._send_at_root(s, "Scatter", blocks, s.out, *self._from(s))]

    def _all_gather(self, s: Sent) -> list[str]:
        dim, sent = s.op.integer("dim"), self.send(s, "Allgather", [s.operand, s.out])
        if is_first(s.before, dim):
            return [s.new, *sent]
        blocks = f"{s.out} = {self.full((s.group, *s.before), s.x.dtype, None)}"
        return [blocks, *sent, self._join(s.out, dim, s.after)]

    def _gather(self, s: Sent) -> list[str]:
        dim = s.op.integer("dim")
        first = is_first(s.before, dim)
        made = s.new if first else f"{s.out} = {self.full((s.group, *s.before), s.x.dtype, None)}"
        joined = [] if first else [f"if {s.root}:", f"    {self._join(s.out, dim, s.after)}"]
        sent = self._send_at_root(s, "Gather", s.operand, s.out)
        return [*self._at_root(made, s.out, s.root), *sent, *joined]

    def _all_to_all(self, s: Sent) -> list[str]:
        source, target = s.op.integer("source"), s.op.integer("target")
        cut, blocks = self._cut(s.operand, s.before, target, s.group)
        piece = list(s.before)
        piece[target] //= s.group
        made = f"{s.out} = {self.full((s.group, *piece), s.x.dtype, None)}"
        joined = self._join(s.out, source, s.after)
        return [*cut, made, *self.send(s, "Alltoall", [blocks, s.out]), joined]

    # --- blocks that differ in size -----------------------------------------------------------

    def _made_flat(self, s: Sent) -> str:
        """Return the statement that makes an array for blocks that come one behind the other."""
        return f"{s.out} = {self.full((math.prod(s.after),), s.x.dtype, None)}"

    def _leaving(self, s: Sent, part: CutDim) -> str:
        """Return the statement that puts the blocks that leave one behind the other."""
        self.needs.add("cut_blocks")
        return f"sent = self._cut_blocks({s.operand}, {part.parts}, {part.dim})"

    def _coming(self, s: Sent, part: CutDim) -> str:
        """Return the statement that joins the blocks that came one behind the other."""
        self.needs.add("joined_blocks")
        arguments = [s.out, part.parts, str(part.dim), tuple_text(s.after)]
        return f"{s.out} = self._joined_blocks({', '.join(arguments)})"

    def _counted(self, s: Sent, array: str, part: CutDim) -> str:
        """Return an array with the elements of each rank, as an argument."""
        (counted,) = self.bits(s, [array])
        return f"[{counted}, {part.counts}]"

    def _uneven_all_gather(self, s: Sent, blocks: Blocks) -> list[str]:
        (sent,) = self.bits(s, [s.operand])
        received = self._counted(s, s.out, blocks.comes)
        call_lines = call(f"{self._communicator(s)}.Allgatherv", [sent, received])
        return [self._made_flat(s), *call_lines, self._coming(s, blocks.comes)]

    def _uneven_gather(self, s: Sent, blocks: Blocks) -> list[str]:
        (sent,) = self.bits(s, [s.operand])
        gatherv = f"{self._communicator(s)}.Gatherv"
        return [
            f"if {s.root}:",
            f"    {self._made_flat(s)}",
            *_inside(call(gatherv, [sent, self._counted(s, s.out, blocks.comes)])),
            f"    {self._coming(s, blocks.comes)}",
            "else:",
            f"    {s.out} = None",
            *_inside(call(gatherv, [sent, "None"])),
        ]

    def _uneven_scatter(self, s: Sent, blocks: Blocks) -> list[str]:
        (received,) = self.bits(s, [s.out])
        scatterv = f"{self._communicator(s)}.Scatterv"
        return [
            s.new,
            f"if {s.root}:",
            f"    {self._leaving(s, blocks.leaves)}",
            *_inside(call(scatterv, [self._counted(s, "sent", blocks.leaves), received])),
            "else:",
            *_inside(call(scatterv, ["None", received])),
        ]

    def _uneven_reduce_scatter(self, s: Sent, blocks: Blocks) -> list[str]:
        arrays = self.bits(s, ["sent", s.out])
        arguments = [*arrays, blocks.leaves.counts, self.operator(s.x)]
        return [
            self._leaving(s, blocks.leaves),
            s.new,
            *call(f"{self._communicator(s)}.Reduce_scatter", arguments),
            *self.average(s.x, s.group, s.out),
        ]

    def _uneven_all_to_all(self, s: Sent, blocks: Blocks) -> list[str]:
        arguments = [
            self._counted(s, "sent", blocks.leaves),
            self._counted(s, s.out, blocks.comes),
        ]
        return [
            self._leaving(s, blocks.leaves),
            self._made_flat(s),
            *call(f"{self._communicator(s)}.Alltoallv", arguments),
            self._coming(s, blocks.comes),
        ]

    UNEVEN: ClassVar[dict[str, Callable[[Any, Sent, Blocks], list[str]]]] = {
        "all_gather": _uneven_all_gather,
        "gather": _uneven_gather,
        "scatter": _uneven_scatter,
        "reduce_scatter": _uneven_reduce_scatter,
        "all_to_all": _uneven_all_to_all,
    }

    # --- calls --------------------------------------------------------------------------------

    def _communicator(self, s: Sent) -> str:
        return f"self.{self.names.groups[s.axes]}"

    def bits(self, s: Sent, arrays: Sequence[str | None]) -> list[str]:
        """Return arrays as arguments; those of types that MPI does not know as their bits."""
        bits = ""
        if s.x.dtype in _AS_BITS:
            self.needs.add("np")
            bits = ".view(np.uint16)"
        return ["None" if array is None else f"{array}{bits}" for array in arrays]

    def send(self, s: Sent, method: str, arrays: Sequence[str | None], *rest: str) -> list[str]:
        """Return a call of a communicator."""
        return call(f"{self._communicator(s)}.{method}", [*self.bits(s, arrays), *rest])

    def _from(self, s: Sent) -> list[str]:
        """Return the argument that names the root, if that is not the first rank."""
        root = index_over(self.mesh, s.axes, dict(root_place(s.op)))
        return [f"root={root}"] if root else []

    def _at_root(self, made: str, out: str, root: str) -> list[str]:
        line = f"{made} if {root} else None"
        if len(line) <= 76:
            return [line]
        return [f"{out} = None", f"if {root}:", f"    {made}"]

    def _send_at_root(
        self, s: Sent, method: str, sent: str, received: str, *rest: str
    ) -> list[str]:
        """Return a call in which only the root has both arrays; None has no bits to send."""
        with_both = self.send(s, method, [sent, received], *rest)
        if s.x.dtype not in _AS_BITS:
            return with_both
        elsewhere = [None, received] if s.op.kind.before == "root" else [sent, None]
        return [
            f"if {s.root}:",
            *(f"    {line}" for line in with_both),
            "else:",
            *(f"    {line}" for line in self.send(s, method, elsewhere, *rest)),
        ]

    def operator(self, x: DistType) -> str:
        """Return the reduction of a value as an argument."""
        assert x.reduction is not None
        reduction = Reduction.SUM if x.reduction is Reduction.AVG else x.reduction
        self.needs.add("MPI")
        if x.dtype is DType.BOOL:
            return "MPI.LOR" if reduction is Reduction.MAX else "MPI.LAND"
        if x.dtype not in _AS_BITS:
            return f"MPI.{reduction.upper()}"
        self.needs.add("np")
        self.operators.add((x.dtype, reduction))
        return _operator_name(x.dtype, reduction)

    def average(self, x: DistType, group: int, out: str) -> list[str]:
        if x.reduction is Reduction.AVG and x.dtype in _AS_BITS:
            return [f"{out}[...] = {out}.astype(np.float32) / {group}"]
        return super().average(x, group, out)

    def _cut(
        self, operand: str, shape: tuple[int, ...], dim: int, group: int
    ) -> tuple[list[str], str]:
        """Return the statements that make the blocks of a dimension lie one behind the other, and
        the variable with these blocks."""
        if is_first(shape, dim):
            return [], operand
        cut = tuple_text((*shape[:dim], group, shape[dim] // group, *shape[dim + 1 :]))
        moved = self.packed(f"{self.library('moveaxis')}(sent, {dim}, 0)")
        return [f"sent = {self.library('reshape')}({operand}, {cut})", f"sent = {moved}"], "sent"

    def _join(self, out: str, dim: int, shape: tuple[int, ...]) -> str:
        """Return the statement that joins blocks, one behind the other, to a dimension."""
        moved = out
        if not is_first(shape, dim):
            moved = self.packed(f"{self.library('moveaxis')}({out}, 0, {dim})")
        return f"{out} = {self.reshaped(moved, shape)}"

    def _permute(self, s: Sent) -> list[str]:
        x, y, operand, out = s.x, s.y, s.operand, s.out
        indent = 12 if x.place else 8
        sent, received = self.bits(s, [operand, out])
        return [
            *self.names.partner("to", x, y, indent),
            *self.names.partner("from_", y, x, indent),
            s.new,
            *call("self.comm.Sendrecv", [sent, "dest=to", f"recvbuf={received}", "source=from_"]),
        ]

    def _send(self, s: Sent) -> list[str]:
        to, source = s.op.integer("receiver"), s.op.integer("sender")
        verbs = ("Isend", "Irecv") if s.op.is_async else ("Send", "Recv")
        send = self.send(s, verbs[0], [s.operand], f"dest={to}")
        return self.exchange(s, send, self.send(s, verbs[1], [s.out], f"source={source}"))

    def _shift(self, s: Sent) -> list[str]:
        by, is_open = s.op.integer("distance"), "open" in s.op.properties
        lines = [f"{s.out} = {self.full(s.after, s.y.dtype, 0.0 if is_open else None)}"]
        for name, distance in (("to", by), ("from_", -by)):
            if not is_open:
                lines.append(f"{name} = {self.names.next_index(s.axes, distance)}")
                continue
            self.needs.add("MPI")
            lines += [
                f"{name} = {self.names.index_on_line(s.axes, distance)}",
                f"if {self.names.beyond_line(s.axes, distance, name)}:",
                f"    {name} = MPI.PROC_NULL",
            ]
        sent, received = self.bits(s, [s.operand, s.out])
        ends = ["dest=to", f"recvbuf={received}", "source=from_"]
        return [*lines, *call(f"{self._communicator(s)}.Sendrecv", [sent, *ends])]

    COLLECTIVES: ClassVar[Emitters[Sent]] = OperationTable(
        "Mpi4pyFunction.COLLECTIVES",
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


def _inside(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


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


_CUT_BLOCKS = '''\
    def _cut_blocks(self, x, parts, dim):
        """The blocks of a dimension, which is cut by parts, one behind the other."""
        unit, start, blocks = x.shape[dim] // sum(parts), 0, []
        for part in parts:
            stop = start + part * unit
            block = x[(*(slice(None),) * dim, slice(start, stop), ...)]
            blocks.append(self.xp.reshape(block, (-1,)))
            start = stop
        return self.xp.concat(blocks)
'''

_JOINED_BLOCKS = '''\
    def _joined_blocks(self, x, parts, dim, shape):
        """Blocks that lie one behind the other, joined along a dimension to a shape."""
        unit, start, blocks = shape[dim] // sum(parts), 0, []
        for part in parts:
            block = (*shape[:dim], part * unit, *shape[dim + 1 :])
            stop = start + math.prod(block)
            blocks.append(self.xp.reshape(x[start:stop], block))
            start = stop
        return self.xp.concat(blocks, axis=dim)
'''


def _class(names: MeshText, texts: Sequence[PythonFunction]) -> list[str]:
    mesh = names.mesh
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
    for text in texts:
        lines += ["", *text.text()]
    needs = {need for text in texts for need in text.needs}
    needs |= {"packed"} if "argument" in needs else set()
    return lines + helpers(needs, _HELPERS)


_HELPERS = {
    "argument": _ARGUMENT,
    "packed": _PACKED,
    "cut_blocks": _CUT_BLOCKS,
    "joined_blocks": _JOINED_BLOCKS,
    **MODEL_METHODS,
}
"""The methods that methods of functions call, by what needs them."""


def emit_mpi4py(module: ModuleOp, named: Collection[str] | None = None) -> str:
    """Return the Python module of the functions of a module.

    Args:
        named: those to print of a module with operations of models; None for those that no other
            function calls.

    Raises:
        DiagnosticError: names that Python cannot have, operations that are not collectives.
    """
    needs: set[str] = set()
    operators: set[tuple[DType, Reduction]] = set()
    bodies: list[str] = []
    shown = ""
    for names, functions in classes(module, "mpi4py", ordered=True, named=named):
        texts = [Mpi4pyFunction(function, names) for function in functions]
        made = f"{names.mesh.name} = {names.class_name}(MPI.COMM_WORLD)"
        shown = shown or example(made, texts)
        bodies += ["", "", *_class(names, texts)]
        for text in texts:
            needs |= text.needs
            operators |= text.operators
    lines = header("mpi4py and numpy", _USE, shown, _HEADER)
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


_MODULES = {"import math": ("joined_blocks", "math"), "import time": ("time",)}
"""The modules of the standard library, with what needs them."""

_USE = """\
Every rank makes one object of a mesh, for a communicator of as many ranks, and calls its methods
with its own arrays:"""


@dataclass(frozen=True)
class Mpi4pyTarget(Target):
    """Python for mpi4py: a class per mesh, with a method per `func` on numpy arrays.

    The class makes the communicators once. The communicator of an ordered list of sub-axes is a
    `Split` of the mesh: its colour is the index over all other sub-axes; its key is the mixed-radix
    index over the list, so the ranks of a communicator are in the order of the sub-axes. Arguments
    are checked; results are new arrays, and None where a rank holds nothing.

    Arrays of other libraries than numpy are passed to MPI by DLPack or `__cuda_array_interface__`.
    Such a library needs the Python array API and arrays that can be written, and MPI has to be
    built for its device. MPI does not know f16 and bf16: they are for numpy only, and are reduced
    in Python. Counts above 2^31 - 1 need MPI 4. On axes with weights, collectives are MPI's for
    counts that differ (`Allgatherv`, ...).

    Operations of models are expressions of numpy on the blocks of a rank (`xp.einsum`, ...), or
    calls of methods that are printed where they are used; of another library they need numpy's
    functions beyond the array API. A `repeat` is a loop that calls the method of its body, a
    `call` is its steps, and so is a gradient. Each task of a pipeline is a method, which is called
    for every microbatch at the ranks of its place, in the order of the schedule; what a task is the
    last to need is forgotten then. An `async` send is started, and waited for by both ends before
    its result is used; other `async` steps are not started early. In f16 and bf16 an operation of
    more than one function is computed in f32 and rounded once. Functions with operations of models
    that others call are not printed by themselves.
    """

    name = "mpi4py"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(emit_mpi4py(module))
