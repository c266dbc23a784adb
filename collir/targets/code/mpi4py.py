"""Python for mpi4py: a class per mesh, with a method per ``func`` on numpy arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.layout import DistType, DType, Reduction
from collir.targets.code.emitters import Emitters
from collir.targets.code.python_text import (
    FunctionText,
    MeshText,
    Sent,
    call,
    classes,
    example,
    header,
    is_first,
    number_text,
    tuple_text,
)
from collir.targets.code.ranks import needed_ranks

_DTYPES = {
    DType.F16: "float16",
    DType.F32: "float32",
    DType.F64: "float64",
    DType.I8: "int8",
    DType.I32: "int32",
    DType.I64: "int64",
    DType.BOOL: "bool",
}
"""The element types of the library of arrays, which does not know bf16."""

_AS_BITS = {DType.F16: "np.float16", DType.BF16: "ml_dtypes.bfloat16"}
"""The element types that MPI does not know, as numpy knows them."""

_UFUNCS = {
    Reduction.SUM: "np.add",
    Reduction.PROD: "np.multiply",
    Reduction.MAX: "np.maximum",
    Reduction.MIN: "np.minimum",
}


@dataclass
class Mpi4pyFunction(FunctionText):
    """The method of one function on mpi4py.

    Attributes:
        operators: the reductions of types that MPI does not know.
    """

    rest: ClassVar[str] = ", ..."
    array: ClassVar[str] = "an array"

    operators: set[tuple[DType, Reduction]] = field(default_factory=set[tuple[DType, Reduction]])

    def library(self, name: str) -> str:
        self.needs.add("xp")
        return f"xp.{name}"

    def dtype(self, dtype: DType) -> str:
        if dtype is DType.BF16:
            self.needs.add("ml_dtypes")
            return "ml_dtypes.bfloat16"
        return self.library(_DTYPES[dtype])

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
        return [*lines, *self.send(s, "Bcast", [s.out])]

    def _reduce_scatter(self, s: Sent) -> list[str]:
        cut, blocks = self._cut(s.operand, s.before, s.op.integer("dim"), s.group)
        sent = self.send(s, "Reduce_scatter_block", [blocks, s.out], self.operator(s.x))
        return [*cut, s.new, *sent, *self.average(s.x, s.group, s.out)]

    def _scatter(self, s: Sent) -> list[str]:
        cut, blocks = self._cut(s.operand, s.before, s.op.integer("dim"), s.group)
        cut = self._where(s.root, ["sent = None"], cut) if cut else []
        return [*cut, s.new, *self._send_at_root(s, "Scatter", blocks, s.out)]

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

    def send(self, s: Sent, method: str, arrays: Sequence[str | None], *rest: str) -> list[str]:
        """Return a call of a communicator; arrays of types that MPI does not know go as their
        bits."""
        bits = ""
        if s.x.dtype in _AS_BITS:
            self.needs.add("np")
            bits = ".view(np.uint16)"
        names = ["None" if array is None else f"{array}{bits}" for array in arrays]
        return call(f"self.{self.names.groups[s.axes]}.{method}", [*names, *rest])

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
        indent = 12 if x.root else 8
        names = [operand, out]
        if x.dtype in _AS_BITS:
            self.needs.add("np")
            names = [f"{name}.view(np.uint16)" for name in names]
        return [
            *self.names.partner("to", x, y, indent),
            *self.names.partner("from_", y, x, indent),
            s.new,
            *call(
                "self.comm.Sendrecv", [names[0], "dest=to", f"recvbuf={names[1]}", "source=from_"]
            ),
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


def _class(names: MeshText, texts: Sequence[FunctionText]) -> list[str]:
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
    if needs & {"argument"}:
        lines += ["", _ARGUMENT.rstrip()]
    if needs & {"argument", "packed"}:
        lines += ["", _PACKED.rstrip()]
    return lines


def emit_mpi4py(module: ModuleOp) -> str:
    """Return the Python module of all functions of a module.

    Raises:
        DiagnosticError: names that Python cannot have, operations that are not collectives.
    """
    needs: set[str] = set()
    operators: set[tuple[DType, Reduction]] = set()
    bodies: list[str] = []
    shown = ""
    for names, functions in classes(module, "mpi4py", ordered=True):
        texts = [Mpi4pyFunction(function, names) for function in functions]
        made = f"{names.mesh.name} = {names.class_name}(MPI.COMM_WORLD)"
        shown = shown or example(made, texts)
        bodies += ["", "", *_class(names, texts)]
        for text in texts:
            needs |= text.needs
            operators |= text.operators
    lines = header("mpi4py and numpy", _USE + ("\n\n" + shown if shown else ""), _HEADER)
    lines += ["", "import time"] if "time" in needs else []
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
    in Python. Counts above 2^31 - 1 need MPI 4.
    """

    name = "mpi4py"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(emit_mpi4py(module))
