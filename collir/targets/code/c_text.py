"""C for what every C target shares: names, types, and the operations that send nothing."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType, Mesh, Reduction
from collir.semantics.reference.buffers import NUMPY
from collir.targets.code.ranks import RankText

C_TYPES = {
    DType.F16: "uint16_t",
    DType.BF16: "uint16_t",
    DType.F32: "float",
    DType.F64: "double",
    DType.I8: "int8_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
}
"""Elements in memory; f16 and bf16 as their bits."""

AS_BITS = (DType.F16, DType.BF16)
"""Types that C computes as float, between a load and a store."""

KEYWORDS = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef
    union unsigned void volatile while asm typeof bool true false nullptr alignas alignof
    constexpr thread_local static_assert typeof_unqual
    """.split()  # noqa: SIM905
)
"""Words that cannot name anything in C (to C23, with GNU's asm)."""

USED = frozenset(
    """
    err i pending width main malloc free memcpy memset printf fprintf stdout stderr stdin errno unix
    linux size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
    done to from TRY NEW MOST_DIMS
    all_reduce reduce broadcast reduce_scatter all_gather gather scatter all_to_all permute
    reduce_scatter_rows all_gather_rows gather_rows scatter_rows all_to_all_rows
    least size_of copy_rows swap_blocks strided compute_for wrong_size snprintf
    bf16_load bf16_store f16_load f16_store f16_of_double
    sum_of_f16 prod_of_f16 max_of_f16 min_of_f16 sum_of_bf16 prod_of_bf16 max_of_bf16 min_of_bf16
    layout place mixed part_value whole_value differ fabs fmax atoi math_errhandling
    P_tmpdir L_tmpnam
    """.split()  # noqa: SIM905
)
"""Names that the emitted code uses: nothing beside may have them."""

_RESERVED = re.compile(r"MPIX?_|PMPI_|nccl|cuda|COLLIR_|collir_|mesh_|_")
"""What no name starts with."""


@dataclass(frozen=True)
class Words:
    """The names that a language and the code emitted in it leave no room for."""

    language: str
    keywords: frozenset[str]
    used: frozenset[str]
    reserved: re.Pattern[str]


C = Words("C", KEYWORDS, USED, _RESERVED)


@cache
def _library() -> frozenset[str]:
    """The names of the C library, and of what MPI needs."""
    text = Path(__file__).with_name("c_library.txt").read_text(encoding="ascii")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return frozenset(word for line in lines for word in line.split())


def name_problem(name: str, words: Words = C) -> str | None:
    """Why the code cannot have an external function of this name, or None if it can."""
    if name in words.keywords:
        return f"'{name}' is a keyword of {words.language}"
    if name in words.used:
        return f"'{name}' is a name of the emitted code"
    if name in _library():
        return f"'{name}' is a name of the C library"
    if reserved := words.reserved.match(name):
        return f"names that start with '{reserved.group()}' are reserved"
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        return f"names in {words.language} are letters, digits and _"
    return None


def variables(names: Sequence[str], words: Words = C) -> list[str]:
    """A distinct variable for each of the names of values.

    They may hide functions of the C library, but no macros, and nothing that the code uses.
    """
    taken: set[str] = set()
    out: list[str] = []
    for name in names:
        base = re.sub(r"\W", "_", name, flags=re.ASCII)
        macro = base.isupper() and base in _library()
        if (
            base in words.keywords | words.used or macro or re.fullmatch(r"i\d+", base)
        ):  # i0, i1: loops
            base = f"{base}_"
        elif base[0].isdigit() or words.reserved.match(base):
            base = f"v{base}"
        candidate, suffix = base, 1
        while candidate in taken:
            suffix += 1
            candidate = f"{base}_{suffix}"
        taken.add(candidate)
        out.append(candidate)
    return out


def comment(text: str) -> str:
    """Text that cannot end a comment: in MLIR, machines and axes may have any name."""
    return re.sub(r"\*/|/\*|[^ -~]|\\", "_", text)


def size_text(count: int) -> str:
    """A count as a C expression of a type that holds it."""
    return str(count) if count < 2**31 else f"(size_t){count}"


@dataclass(frozen=True)
class Sizes:
    """How counts that grow with the values are written: as they are, or, in code for values of any
    size, times ``width``, the elements that lie where the types have one."""

    by_width: bool = False

    def __call__(self, count: int) -> str:
        if not self.by_width:
            return size_text(count)
        return f"{size_text(count)} * width" if count != 1 else "width"


AS_TYPED = Sizes()
"""Counts of values as large as their types say."""


def number_text(value: float, dtype: DType) -> str:
    """A constant, rounded to a dtype, as C computes with it (as a float for f16 and bf16)."""
    if not dtype.is_float:
        return f"{int(value)}" + ("LL" if abs(value) >= 2**31 else "")
    rounded = NUMPY[dtype].type(value)
    return str(float(rounded)) if dtype is DType.F64 else f"{np.float32(rounded)}f"


def load(text: str, dtype: DType) -> str:
    """An element as C computes with it."""
    return f"{dtype}_load({text})" if dtype in AS_BITS else text


def _load_term(text: str, dtype: DType) -> str:
    """An element as a term or factor: integers wrap around, which is undefined for signed ones."""
    if dtype in (DType.I32, DType.I64):
        return f"(u{C_TYPES[dtype]}){text}"
    return load(text, dtype)


def store(text: str, dtype: DType) -> str:
    """The result of a computation as an element."""
    if dtype in AS_BITS:
        return f"{dtype}_store({text})"
    return text if dtype.is_float else f"({C_TYPES[dtype]})({text})"


@dataclass(frozen=True)
class MeshNames(RankText):
    """The C struct of a mesh: its variable, and the members for coordinates and communicators.

    ``communicators`` has an entry for every ordered list of sub-axes that a program sends over.
    """

    AND = "&&"
    DIVIDE = "/"

    mesh: Mesh
    variable: str
    members: dict[str, str]
    communicators: dict[tuple[str, ...], str]
    operators: dict[str, str]

    @staticmethod
    def of(
        mesh: Mesh,
        sent_over: Iterable[tuple[str, ...]],
        operators: Iterable[str] = (),
        words: Words = C,
    ) -> "MeshNames":
        """Distinct names, also where ``a_b.c`` and ``a.b_c`` would look the same."""
        axes = [sub.name for sub in mesh.sub_axes]
        lists = list(sent_over)
        wanted = [*axes, *("over_" + "_".join(over) for over in lists)]
        # `rank` and `comm` are members of every mesh.
        names = iter(variables(["rank", "comm", *wanted], words)[2:])
        members = {axis: next(names) for axis in axes}
        communicators = {over: next(names) for over in lists}
        # The names of operators are among those that no axis gets.
        ops = {operator: operator for operator in operators}
        return MeshNames(mesh, f"mesh_{mesh.name}", members, communicators, ops)

    def coordinate(self, axis: str) -> str:
        """This rank's coordinate on a sub-axis."""
        return f"{self.variable}.{self.members[axis]}"


@dataclass(frozen=True)
class Names:
    """What an emitter calls the operands and the result of one operation."""

    operands: Sequence[str]
    result: str
    mesh: MeshNames
    size: Sizes = AS_TYPED


def loop(count: str, body: str) -> list[str]:
    """A statement for every element ``i``."""
    return [f"for (size_t i = 0; i < {count}; ++i) {body}"]


@dataclass(frozen=True)
class Local:
    """A step that sends nothing, as its emitter sees it.

    Attributes:
        x, y: the types of the first operand and of the result.
        shape: what a rank holds of the operand.
        elements: how many it holds of the result, and ``count`` as an expression.
    """

    op: DistOp
    names: Names
    x: DistType
    y: DistType
    shape: tuple[int, ...]
    elements: int
    count: str

    @property
    def mesh(self) -> Mesh:
        """The mesh."""
        return self.names.mesh.mesh

    @property
    def operand(self) -> str:
        """The name of the first operand."""
        return self.names.operands[0]

    @property
    def out(self) -> str:
        """The name of the result."""
        return self.names.result

    @property
    def here(self) -> str:
        """The index of this rank's block, as a factor."""
        index = self.names.mesh.index_over(self.op.over)
        return f"({index})" if " " in index else index

    @staticmethod
    def of(op: DistOp, names: Names, sizes: Sizes) -> "Local":
        """Return what an emitter needs of a step."""
        mesh, x, y = names.mesh.mesh, dist_type(op.input), dist_type(op.result)
        elements = math.prod(y.local_shape(mesh))
        return Local(op, names, x, y, x.local_shape(mesh), elements, sizes(elements))


Statements = tuple[list[str], set[str]]
"""The statements of a step, and the runtime sections they need."""


def local_operation(op: DistOp, names: Names) -> Statements:
    """The statements of an operation that sends nothing, and the runtime sections they need."""
    return LOCAL[op.mnemonic](Local.of(op, names, names.size))


def _types(s: Local) -> set[str]:
    """The sections of dtypes that C does not know."""
    return {t.value for t in (s.x.dtype, s.y.dtype) if t in AS_BITS}


def _add(s: Local) -> Statements:
    first, second = (_load_term(f"{name}[i]", s.x.dtype) for name in s.names.operands)
    text = store(f"{first} + {second}", s.x.dtype)
    return loop(s.count, f"{s.out}[i] = {text};"), _types(s)


def _scale(s: Local) -> Statements:
    factor = number_text(s.op.number("factor"), s.x.dtype)
    text = store(f"{_load_term(f'{s.operand}[i]', s.x.dtype)} * {factor}", s.x.dtype)
    return loop(s.count, f"{s.out}[i] = {text};"), _types(s)


def _cast(s: Local) -> Statements:
    text, needed = _converted(load(f"{s.operand}[i]", s.x.dtype), s.x.dtype, s.y.dtype)
    return loop(s.count, f"{s.out}[i] = {text};"), _types(s) | needed


def _mask(s: Local) -> Statements:
    condition = s.names.mesh.at_zero(s.op.over)
    ones = Reduction(s.op.word("reduction")) is Reduction.PROD
    fill = _fill(s.out, s.elements, ones, s.y.dtype, s.names.size)
    copied = f"memcpy({s.out}, {s.operand}, {s.names.size(s.elements * s.y.dtype.bytes)});"
    return [f"if ({condition}) {copied}", f"else {fill}"], _types(s)


def _slice(s: Local) -> Statements:
    group, rows = s.mesh.group_size(s.op.over), math.prod(s.shape[: s.op.integer("dim")])
    piece, size = s.elements // rows, s.y.dtype.bytes
    start = f"{s.operand} + (size_t){s.here} * {s.names.size(piece)}"
    copy = _rows(s.out, piece, start, piece * group, rows, piece, size, s.names.size)
    return [copy], {"copy_rows"} if rows > 1 else set()


def _converted(value: str, source: DType, target: DType) -> tuple[str, set[str]]:
    """A loaded element as an element of another dtype, and the runtime section that needs."""
    if target not in AS_BITS:
        return f"({C_TYPES[target]}){value}", set()
    if (source, target) == (DType.F64, DType.F16):
        return f"f16_of_double({value})", {"f16_of_double"}
    wide = value if source in (*AS_BITS, DType.F32) else f"(float){value}"
    return f"{target}_store({wide})", set()


def _rows(
    to: str,
    to_stride: int,
    start: str,
    from_stride: int,
    rows: int,
    count: int,
    size: int,
    sizes: Sizes,
) -> str:
    """A copy of rows; strides and count in elements."""
    if rows == 1:
        return f"memcpy({to}, {start}, {sizes(count * size)});"
    return (
        f"copy_rows({to}, {sizes(to_stride * size)}, {start}, {sizes(from_stride * size)}, "
        f"{size_text(rows)}, {sizes(count * size)});"
    )


def _fill(out: str, count: int, ones: bool, dtype: DType, sizes: Sizes) -> str:
    if not ones:
        return f"memset({out}, 0, {sizes(count * dtype.bytes)});"
    one = store(number_text(1, dtype), dtype)
    return loop(sizes(count), f"{out}[i] = {one};")[0]


def _concat(s: Local) -> Statements:
    op, mesh, names = s.op, s.mesh, s.names
    dim = op.integer("dim")
    shape = dist_type(op.result).local_shape(mesh)
    rows, row = math.prod(shape[:dim]), math.prod(shape[dim:])
    lines: list[str] = []
    offset = 0
    for name, operand in zip(names.operands, op.operands, strict=True):
        x = dist_type(operand)
        piece = math.prod(x.local_shape(mesh)[dim:])
        to = f"{names.result} + {names.size(offset)}" if offset else names.result
        if name not in (to, f"({to})"):  # it is not there yet
            lines.append(_rows(to, row, name, piece, rows, piece, x.dtype.bytes, names.size))
        offset += piece
    return lines, {"copy_rows"} if rows > 1 else set()


def _pad(s: Local) -> Statements:
    op, x, y, mesh, names = s.op, s.x, s.y, s.mesh, s.names
    dim, low, high = (op.integer(name) for name in ("dim", "low", "high"))
    before, after = x.local_shape(mesh), y.local_shape(mesh)
    rows, inner = math.prod(before[:dim]), math.prod(before[dim + 1 :])
    old, new = before[dim] * inner, after[dim] * inner
    lines: list[str] = []
    needs = {"copy_rows"} if rows > 1 else set[str]()
    if low > 0 or high > 0:
        count = math.prod(after)
        value = op.number("value")
        if value == 0 and math.copysign(1, value) > 0:
            lines.append(f"memset({names.result}, 0, {names.size(count * y.dtype.bytes)});")
        else:
            text = store(number_text(value, y.dtype), y.dtype)
            lines += loop(names.size(count), f"{names.result}[i] = {text};")
            needs |= {y.dtype.value} if y.dtype in AS_BITS else set()
    kept = (before[dim] + min(low, 0) + min(high, 0)) * inner
    to = f"{names.result} + {names.size(low * inner)}" if low > 0 else names.result
    start = f"{names.operands[0]} + {names.size(-low * inner)}" if low < 0 else names.operands[0]
    lines.append(_rows(to, new, start, old, rows, kept, y.dtype.bytes, names.size))
    return lines, needs


def _transpose(s: Local) -> Statements:
    """A loop per dimension that moves; the dimensions behind the last of them are copied whole."""
    op, shape, names, size = s.op, s.shape, s.names, s.y.dtype.bytes
    kept = [d for d in range(len(shape)) if shape[d] > 1]
    order = [kept.index(d) for d in op.sizes("order") if d in kept]
    shape = tuple(shape[d] for d in kept)
    moving = len(order)
    while moving and order[moving - 1] == moving - 1:
        moving -= 1
    run = math.prod(shape[moving:])
    target_shape = [shape[d] for d in order]

    def offset(dims: Sequence[int], sizes: Sequence[int]) -> str:
        terms: list[str] = []
        for place, d in enumerate(dims):
            stride = names.size(math.prod(sizes[place + 1 :]))
            terms.append(f"i{d} * {stride}" if stride != "1" else f"i{d}")
        return " + ".join(terms) or "0"

    source = offset(range(moving), shape)
    target = offset(order[:moving], target_shape)
    lines = [
        f"{'  ' * level}for (size_t i{d} = 0; i{d} < {size_text(shape[d])}; ++i{d})"
        for level, d in enumerate(order[:moving])
    ]
    indent = "  " * moving
    if run == 1 and not names.size.by_width:
        lines.append(f"{indent}{names.result}[{target}] = {names.operands[0]}[{source}];")
    else:
        lines.append(
            f"{indent}memcpy({names.result} + {target}, {names.operands[0]} + {source}, "
            f"{names.size(run * size)});"
        )
    return lines, set()


LOCAL: dict[str, Callable[[Local], Statements]] = {
    "add": _add,
    "scale": _scale,
    "cast": _cast,
    "mask": _mask,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "transpose": _transpose,
}
"""The statements of every step that sends nothing and is no view."""


def element_count(x: DistType, mesh: Mesh) -> int:
    """The elements of one rank's buffer."""
    return math.prod(x.local_shape(mesh))
