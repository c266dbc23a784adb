"""C++ for CUDA: names, types, kernels, and the operations that send nothing, on a stream."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DType, Reduction
from collir.targets.code.c_text import (
    AS_BITS,
    AS_TYPED,
    C_TYPES,
    KEYWORDS,
    USED,
    Local,
    Names,
    Sizes,
    Words,
    number_text,
    size_text,
)
from collir.targets.code.emitters import Emitters

CUDA_TYPES = C_TYPES | {DType.F16: "__half", DType.BF16: "__nv_bfloat16"}
"""Elements in the memory of a device."""

_CPP_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm bitand bitor bool catch char8_t char16_t char32_t class co_await
    co_return co_yield compl concept const_cast consteval constexpr constinit decltype delete
    dynamic_cast explicit export false friend mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public reinterpret_cast requires static_assert static_cast
    template this thread_local throw true try typeid typename using virtual wchar_t xor xor_eq
    """.split()  # noqa: SIM905
)

_CPP_USED = frozenset(
    """
    stream streams events packed coming rows n start windows comms cuda memory workspace
    TRY_CUDA THREADS FIRST STEP blocks device_memory symmetric_memory symmetric_alloc symmetric_free
    threadIdx blockIdx blockDim gridDim warpSize dim3 half half2 nv_bfloat16 nv_bfloat162 nv_half
    nv_half2 std RANKS strdupa strndupa IF_DEVICE_OR_CUDACC
    """.split()  # noqa: SIM905
)

_RESERVED = re.compile(
    r"MPIX?_|PMPI_|p?nccl|NCCL|cuda|CUDA|cu[A-Z]|CU_|NV_|make_|COLLIR_|collir_|mesh_|kernel_|_"
    r"|u?(char|short|int|long|longlong)[1-4](_|$)|(float|double)[1-4](_|$)"
)

CPP = Words("C++", KEYWORDS | _CPP_KEYWORDS, USED | _CPP_USED, _RESERVED)
"""The words of C++17 with CUDA."""


def load(text: str, dtype: DType) -> str:
    """An element as a kernel computes with it; integers wrap around, as only unsigned ones do."""
    match dtype:
        case DType.F16:
            return f"__half2float({text})"
        case DType.BF16:
            return f"__bfloat162float({text})"
        case DType.I32 | DType.I64:
            return f"(u{CUDA_TYPES[dtype]}){text}"
        case _:
            return text


def store(text: str, dtype: DType) -> str:
    """The result of a computation as an element, rounded to nearest even."""
    match dtype:
        case DType.F16:
            return f"__float2half_rn({text})"
        case DType.BF16:
            return f"__float2bfloat16_rn({text})"
        case DType.F32 | DType.F64:
            return text
        case _:
            return f"({CUDA_TYPES[dtype]})({text})"


def _converted(text: str, source: DType, target: DType) -> str:
    """An element as one of another dtype."""
    if (source, target) == (DType.F64, DType.F16):
        return f"__double2half({text})"  # by way of float it would be rounded twice
    value = load(text, source) if source in AS_BITS else text
    if target not in AS_BITS:
        return f"({CUDA_TYPES[target]}){value}"
    return store(value if source in (*AS_BITS, DType.F32) else f"(float){value}", target)


def _wide(dtype: DType) -> str:
    """The type of a constant that kernels compute with."""
    return "float" if dtype in AS_BITS else CUDA_TYPES[dtype]


@dataclass
class CudaText:
    """Statements on a stream, the kernels that they launch, and what else they need."""

    stream: str = "stream"
    size: Sizes = AS_TYPED
    kernels: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    needs: set[str] = field(default_factory=lambda: {"check"})

    # --- statements -------------------------------------------------------------------------

    def copy(self, to: str, start: str, size: str) -> str:
        """A copy of ``size`` bytes."""
        return (
            f"TRY_CUDA(cudaMemcpyAsync({to}, {start}, {size}, cudaMemcpyDeviceToDevice, "
            f"{self.stream}));"
        )

    def rows(
        self,
        to: str,
        to_stride: int,
        start: str,
        from_stride: int,
        rows: int,
        count: int,
        size: int,
    ) -> str:
        """A copy of rows; strides and count in elements."""
        if rows == 1:
            return self.copy(to, start, self.size(count * size))
        self.needs.add("copy_rows")
        return (
            f"TRY_CUDA(copy_rows({to}, {self.size(to_stride * size)}, {start}, "
            f"{self.size(from_stride * size)}, {size_text(rows)}, {self.size(count * size)}, "
            f"{self.stream}));"
        )

    def swap(self, to: str, start: str, first: int, second: int, size: int) -> str:
        """[first][second] blocks of ``size`` bytes become [second][first]."""
        self.needs.add("swap_blocks")
        return (
            f"TRY_CUDA(swap_blocks({to}, {start}, {size_text(first)}, {size_text(second)}, "
            f"{self.size(size)}, {self.stream}));"
        )

    def _launch(
        self, name: str, does: str, parameters: Sequence[str], body: Sequence[str], call: str
    ) -> list[str]:
        """Launches a kernel on ``n`` elements; its text is made once."""
        self.needs.add("launch")
        self.kernels.setdefault(
            f"kernel_{name}",
            [
                f"/* {does} */",
                f"static __global__ void kernel_{name}(size_t n, {', '.join(parameters)})",
                "{",
                *body,
                "}",
                "",
            ],
        )
        count = call.partition(",")[0]
        return [
            f"kernel_{name}<<<blocks({count}), THREADS, 0, {self.stream}>>>({call});",
            "TRY_CUDA(cudaGetLastError());",
        ]

    def _each(
        self, name: str, does: str, parameters: Sequence[str], value: str, call: str
    ) -> list[str]:
        """A kernel that computes ``out[i]``."""
        body = ["  for (size_t i = FIRST; i < n; i += STEP)", f"    out[i] = {value};"]
        return self._launch(name, does, parameters, body, call)

    def fill(self, out: str, count: int, value: float, dtype: DType) -> list[str]:
        """The same value everywhere."""
        if value == 0 and math.copysign(1, value) > 0:
            size = self.size(count * dtype.bytes)
            return [f"TRY_CUDA(cudaMemsetAsync({out}, 0, {size}, {self.stream}));"]
        parameters = [f"{_wide(dtype)} value", f"{CUDA_TYPES[dtype]} *out"]
        stored = store("value", dtype) if dtype in AS_BITS else "value"
        call = f"{self.size(count)}, {number_text(value, dtype)}, {out}"
        return self._each(f"fill_{dtype}", "out = value", parameters, stored, call)

    # --- operations -------------------------------------------------------------------------

    def local_operation(self, op: DistOp, names: Names) -> list[str]:
        """The statements of an operation that sends nothing."""
        return self.LOCAL[op.mnemonic](self, Local.of(op, names, self.size))

    def _add(self, s: Local) -> list[str]:
        kind = CUDA_TYPES[s.x.dtype]
        parameters = [f"const {kind} *a", f"const {kind} *b", f"{kind} *out"]
        value = store(f"{load('a[i]', s.x.dtype)} + {load('b[i]', s.x.dtype)}", s.x.dtype)
        call = f"{s.count}, {', '.join(s.names.operands)}, {s.out}"
        return self._each(f"add_{s.x.dtype}", "out = a + b", parameters, value, call)

    def _scale(self, s: Local) -> list[str]:
        kind = CUDA_TYPES[s.x.dtype]
        parameters = [f"const {kind} *a", f"{_wide(s.x.dtype)} factor", f"{kind} *out"]
        value = store(f"{load('a[i]', s.x.dtype)} * factor", s.x.dtype)
        factor = number_text(s.op.number("factor"), s.x.dtype)
        call = f"{s.count}, {s.operand}, {factor}, {s.out}"
        return self._each(f"scale_{s.x.dtype}", "out = a * factor", parameters, value, call)

    def _cast(self, s: Local) -> list[str]:
        source, target = s.x.dtype, s.y.dtype
        parameters = [f"const {CUDA_TYPES[source]} *a", f"{CUDA_TYPES[target]} *out"]
        value, call = _converted("a[i]", source, target), f"{s.count}, {s.operand}, {s.out}"
        name = f"cast_{source}_to_{target}"
        return self._each(name, f"out = a as {target}", parameters, value, call)

    def _mask(self, s: Local) -> list[str]:
        ones = Reduction(s.op.word("reduction")) is Reduction.PROD
        copied = self.copy(s.out, s.operand, self.size(s.elements * s.y.dtype.bytes))
        filled = self.fill(s.out, s.elements, float(ones), s.y.dtype)
        condition = s.names.mesh.at_zero(s.op.over)
        rest = [f"  {line}" for line in filled]
        return [f"if ({condition}) {{", f"  {copied}", "} else {", *rest, "}"]

    def _slice(self, s: Local) -> list[str]:
        group, rows = s.mesh.group_size(s.op.over), math.prod(s.shape[: s.op.integer("dim")])
        piece = s.elements // rows
        start = f"{s.operand} + (size_t){s.here} * {self.size(piece)}"
        return [self.rows(s.out, piece, start, piece * group, rows, piece, s.y.dtype.bytes)]

    def _concat(self, s: Local) -> list[str]:
        op, names, mesh, dim = s.op, s.names, s.mesh, s.op.integer("dim")
        shape = dist_type(op.result).local_shape(mesh)
        rows, row = math.prod(shape[:dim]), math.prod(shape[dim:])
        lines: list[str] = []
        offset = 0
        for name, operand in zip(names.operands, op.operands, strict=True):
            x = dist_type(operand)
            piece = math.prod(x.local_shape(mesh)[dim:])
            to = f"{names.result} + {self.size(offset)}" if offset else names.result
            if name not in (to, f"({to})"):  # it is not there yet
                lines.append(self.rows(to, row, name, piece, rows, piece, x.dtype.bytes))
            offset += piece
        return lines

    def _pad(self, s: Local) -> list[str]:
        op, x, y, mesh, names = s.op, s.x, s.y, s.mesh, s.names
        dim, low, high = (op.integer(name) for name in ("dim", "low", "high"))
        before, after = x.local_shape(mesh), y.local_shape(mesh)
        rows, inner = math.prod(before[:dim]), math.prod(before[dim + 1 :])
        lines: list[str] = []
        if low > 0 or high > 0:
            lines = self.fill(names.result, math.prod(after), op.number("value"), y.dtype)
        kept = (before[dim] + min(low, 0) + min(high, 0)) * inner
        to = f"{names.result} + {self.size(low * inner)}" if low > 0 else names.result
        start = f"{names.operands[0]} + {self.size(-low * inner)}" if low < 0 else names.operands[0]
        strides = after[dim] * inner, before[dim] * inner
        return [*lines, self.rows(to, strides[0], start, strides[1], rows, kept, y.dtype.bytes)]

    def _transpose(self, s: Local) -> list[str]:
        """A kernel for the shape, in which sizes of 1 are left out."""
        op, shape, names, dtype = s.op, s.shape, s.names, s.y.dtype
        kept = [d for d in range(len(shape)) if shape[d] > 1]
        order = [kept.index(d) for d in op.sizes("order") if d in kept]
        shape = tuple(shape[d] for d in kept)
        count = math.prod(shape)
        if order == sorted(order):
            return [self.copy(names.result, names.operands[0], self.size(count * dtype.bytes))]
        wide = self.size.by_width
        body = ["  for (size_t i = FIRST; i < n; i += STEP) {"]
        place = "(i / width)" if wide else "i"
        right = 1  # elements of the result in a step of this dimension
        for number, d in reversed(list(enumerate(order))):
            digit = f"{place} / {size_text(right)}" if right > 1 else place
            wrap = f" % {size_text(shape[d])}" if number else ""
            body.append(f"    size_t i{d} = {digit}{wrap};")
            right *= shape[d]
        terms: list[str] = []
        for d in range(len(shape)):
            stride = math.prod(shape[d + 1 :])
            terms.append(f"i{d} * {size_text(stride)}" if stride > 1 else f"i{d}")
        index = " + ".join(terms)
        body += [f"    out[i] = a[{f'({index}) * width + i % width' if wide else index}];", "  }"]
        sizes, digits = "x".join(map(str, shape)), "_".join(map(str, order))
        name = f"transpose_{'wide_' * wide}{dtype}_{sizes}_to_{digits}"
        does = f"out = a[{sizes.replace('x', ', ')}] with its dimensions in the order {order}"
        parameters = [f"const {CUDA_TYPES[dtype]} *a", f"{CUDA_TYPES[dtype]} *out"]
        call = f"{self.size(count)}, {names.operands[0]}, {names.result}"
        if wide:
            parameters.append("size_t width")
            call += ", width"
        return self._launch(name, does, parameters, body, call)

    LOCAL: ClassVar[Emitters[Local]] = {
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
