"""Names, types and kernels in C++ for CUDA, and the steps that send nothing, on a stream."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from collir.layout import DType
from collir.targets.code.c_local import Local, LocalSteps
from collir.targets.code.c_text import (
    AS_BITS,
    C_TYPES,
    KEYWORDS,
    USED,
    Elements,
    Words,
    number_text,
    size_text,
)

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


CUDA_ELEMENTS = Elements(
    CUDA_TYPES,
    {DType.F16: "__half2float", DType.BF16: "__bfloat162float"},
    {DType.F16: "__float2half_rn", DType.BF16: "__float2bfloat16_rn"},
    "__double2half",
)
"""Elements in kernels, with the functions of CUDA for f16 and bf16."""


def _wide(dtype: DType) -> str:
    """Return the type of a constant that kernels compute with."""
    return "float" if dtype in AS_BITS else CUDA_TYPES[dtype]


@dataclass
class CudaText(LocalSteps):
    """Statements on a stream, and the kernels that they launch.

    Attributes:
        stream: the expression of the stream.
        kernels: the lines of each kernel by its name.
    """

    elements: ClassVar[Elements] = CUDA_ELEMENTS
    zeroing: ClassVar[str] = "cudaMemsetAsync"

    stream: str = "stream"
    kernels: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def called(self, function: str, *arguments: str) -> str:
        return f"TRY_CUDA({function}({', '.join([*arguments, self.stream])}));"

    def copy(self, to: str, start: str, size: str) -> str:
        return self.called("cudaMemcpyAsync", to, start, size, "cudaMemcpyDeviceToDevice")

    def swap(self, to: str, start: str, first: int, second: int, size: int) -> str:
        """Return the statement that makes [first][second] blocks of ``size`` bytes
        [second][first]."""
        self.needs.add("swap_blocks")
        counts = size_text(first), size_text(second)
        return self.called("swap_blocks", to, start, *counts, self.size(size))

    # --- kernels ----------------------------------------------------------------------------

    def _launch(
        self,
        name: str,
        does: str,
        parameters: Sequence[str],
        body: Sequence[str],
        count: int,
        arguments: Sequence[str],
    ) -> list[str]:
        """Return the statements that launch a kernel on ``count`` elements, and define the kernel
        where no other step has."""
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
        threads = self.size(count)
        listed = ", ".join([threads, *arguments])
        return [
            f"kernel_{name}<<<blocks({threads}), THREADS, 0, {self.stream}>>>({listed});",
            "TRY_CUDA(cudaGetLastError());",
        ]

    def _map(
        self,
        name: str,
        does: str,
        parameters: Sequence[str],
        value: str,
        count: int,
        arguments: Sequence[str],
    ) -> list[str]:
        """Return the statements that launch a kernel for ``out[i]``."""
        body = ["  for (size_t i = FIRST; i < n; i += STEP)", f"    out[i] = {value};"]
        return self._launch(name, does, parameters, body, count, arguments)

    def repeated(self, out: str, count: int, value: float, dtype: DType) -> list[str]:
        parameters = [f"{_wide(dtype)} value", f"{CUDA_TYPES[dtype]} *out"]
        stored = self.elements.store("value", dtype) if dtype in AS_BITS else "value"
        arguments = [number_text(value, dtype), out]
        return self._map(f"fill_{dtype}", "out = value", parameters, stored, count, arguments)

    def arithmetic(
        self, s: Local, name: str, operator: str, factor: str | None = None
    ) -> list[str]:
        dtype = s.x.dtype
        names = ["a", "b"][: len(s.operands)]
        parameters = [f"const {CUDA_TYPES[dtype]} *{operand}" for operand in names]
        terms = [self.elements.term(f"{operand}[i]", dtype) for operand in names]
        factors: list[str] = []
        if factor is not None:
            factors = [factor]
            parameters.append(f"{_wide(dtype)} factor")
            names.append("factor")
            terms.append("factor")
        parameters.append(f"{CUDA_TYPES[dtype]} *out")
        sign = f" {operator} "
        does, value = f"out = {sign.join(names)}", self.elements.store(sign.join(terms), dtype)
        arguments = [*s.operands, *factors, s.out]
        return self._map(f"{name}_{dtype}", does, parameters, value, s.elements, arguments)

    def cast(self, s: Local) -> list[str]:
        source, target = s.x.dtype, s.y.dtype
        parameters = [f"const {CUDA_TYPES[source]} *a", f"{CUDA_TYPES[target]} *out"]
        value = self.elements.converted("a[i]", source, target)
        name, does = f"cast_{source}_to_{target}", f"out = a as {target}"
        return self._map(name, does, parameters, value, s.elements, [s.operand, s.out])

    def either(self, s: Local, condition: str, first: str, second: Sequence[str]) -> list[str]:
        rest = [f"  {line}" for line in second]
        return [f"if ({condition}) {{", f"  {first}", "} else {", *rest, "}"]

    def transposed(self, s: Local, shape: Sequence[int], order: Sequence[int]) -> list[str]:
        """Return the statements that launch a kernel for the shape."""
        dtype, count = s.y.dtype, math.prod(shape)
        if order == sorted(order):
            return [self.copy(s.out, s.operand, self.size(count * dtype.bytes))]
        wide = self.size.by_width
        name = (
            f"transpose_{'wide_' * wide}{dtype}_{'x'.join(map(str, shape))}"
            f"_to_{'_'.join(map(str, order))}"
        )
        sizes = ", ".join(map(str, shape))
        does = f"out = a[{sizes}] with its dimensions in the order {order}"
        parameters = [f"const {CUDA_TYPES[dtype]} *a", f"{CUDA_TYPES[dtype]} *out"]
        arguments = [s.operand, s.out]
        if wide:
            parameters.append("size_t width")
            arguments.append("width")
        body = _transposing(shape, order, wide)
        return self._launch(name, does, parameters, body, count, arguments)


def _transposing(shape: Sequence[int], order: Sequence[int], wide: bool) -> list[str]:
    """Return the body of a kernel that reorders dimensions of elements, or of rows of ``width``."""
    body = ["  for (size_t i = FIRST; i < n; i += STEP) {"]
    place = "(i / width)" if wide else "i"
    stride = 1  # of the dimension in the result
    for number, d in reversed(list(enumerate(order))):
        digit = f"{place} / {size_text(stride)}" if stride > 1 else place
        wrap = f" % {size_text(shape[d])}" if number else ""
        body.append(f"    size_t i{d} = {digit}{wrap};")
        stride *= shape[d]
    terms: list[str] = []
    for d in range(len(shape)):
        stride = math.prod(shape[d + 1 :])
        terms.append(f"i{d} * {size_text(stride)}" if stride > 1 else f"i{d}")
    index = " + ".join(terms)
    return [*body, f"    out[i] = a[{f'({index}) * width + i % width' if wide else index}];", "  }"]
