"""C++ for CUDA: names, element types, and the statements and kernels of steps that send nothing."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from collir.layout import DType
from collir.layout.cuts import Extent
from collir.layout.sizes import OpenSize
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
"""The C++ type of each element type in the memory of a device."""

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
"""The names that functions must not have in C++17 with CUDA."""


CUDA_ELEMENTS = Elements(
    CUDA_TYPES,
    {DType.F16: "__half2float", DType.BF16: "__bfloat162float"},
    {DType.F16: "__float2half_rn", DType.BF16: "__float2bfloat16_rn"},
    "__double2half",
)
"""The loads, conversions and stores of kernels; f16 and bf16 by the functions of CUDA."""


def _constant_type(dtype: DType) -> str:
    """Return the C++ type of a constant in a kernel on elements of ``dtype``."""
    return "float" if dtype in AS_BITS else CUDA_TYPES[dtype]


@dataclass
class CudaText(LocalSteps):
    """Steps that send nothing, as statements on a CUDA stream, and the kernels that these launch.

    Attributes:
        stream: the C++ expression of the stream.
        kernels: the lines that define each kernel, by the kernel's name.
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
        """Return the statement that transposes an array of [first][second] blocks into
        [second][first]; a block has ``size`` bytes."""
        self.needs.add("swap_blocks")
        counts = size_text(first), size_text(second)
        return self.called("swap_blocks", to, start, *counts, size_text(size))

    # --- kernels ----------------------------------------------------------------------------

    def _launch(
        self,
        name: str,
        comment: str,
        parameters: Sequence[str],
        body: Sequence[str],
        count: int,
        arguments: Sequence[str],
    ) -> list[str]:
        """Define a kernel, unless another step already has, and return the statements that launch
        it on ``count`` elements."""
        self.needs.add("launch")
        self.kernels.setdefault(
            f"kernel_{name}",
            [
                f"/* {comment} */",
                f"static __global__ void kernel_{name}(size_t n, {', '.join(parameters)})",
                "{",
                *body,
                "}",
                "",
            ],
        )
        n = size_text(count)
        passed = ", ".join([n, *arguments])
        return [
            f"kernel_{name}<<<blocks({n}), THREADS, 0, {self.stream}>>>({passed});",
            "TRY_CUDA(cudaGetLastError());",
        ]

    def _map(
        self,
        name: str,
        comment: str,
        parameters: Sequence[str],
        value: str,
        count: int,
        arguments: Sequence[str],
    ) -> list[str]:
        """Return the launch of a kernel that sets every ``out[i]`` to ``value``."""
        body = ["  for (size_t i = FIRST; i < n; i += STEP)", f"    out[i] = {value};"]
        return self._launch(name, comment, parameters, body, count, arguments)

    def repeated(self, out: str, count: int, value: float, dtype: DType) -> list[str]:
        parameters = [f"{_constant_type(dtype)} value", f"{CUDA_TYPES[dtype]} *out"]
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
            parameters.append(f"{_constant_type(dtype)} factor")
            names.append("factor")
            terms.append("factor")
        parameters.append(f"{CUDA_TYPES[dtype]} *out")
        sign = f" {operator} "
        comment, value = f"out = {sign.join(names)}", self.elements.store(sign.join(terms), dtype)
        arguments = [*s.operands, *factors, s.out]
        return self._map(f"{name}_{dtype}", comment, parameters, value, s.elements, arguments)

    def cast(self, s: Local) -> list[str]:
        source, target = s.x.dtype, s.y.dtype
        parameters = [f"const {CUDA_TYPES[source]} *a", f"{CUDA_TYPES[target]} *out"]
        value = self.elements.converted("a[i]", source, target)
        name, comment = f"cast_{source}_to_{target}", f"out = a as {target}"
        return self._map(name, comment, parameters, value, s.elements, [s.operand, s.out])

    def either(self, s: Local, condition: str, first: str, second: Sequence[str]) -> list[str]:
        rest = [f"  {line}" for line in second]
        return [f"if ({condition}) {{", f"  {first}", "} else {", *rest, "}"]

    def transposed(self, s: Local, shape: Sequence[int], order: Sequence[int]) -> list[str]:
        """Return the statements that launch a kernel for this shape and order, or a plain copy."""
        dtype, count = s.y.dtype, math.prod(shape)
        if order == sorted(order):
            return [self.copy(s.out, s.operand, size_text(count * dtype.bytes))]
        if any(isinstance(size, Extent | OpenSize) for size in shape):
            return self._transposed_here(s, shape, order)
        name = f"transpose_{dtype}_{'x'.join(map(str, shape))}_to_{'_'.join(map(str, order))}"
        sizes = ", ".join(map(str, shape))
        comment = f"out = a[{sizes}] with its dimensions in the order {order}"
        parameters = [f"const {CUDA_TYPES[dtype]} *a", f"{CUDA_TYPES[dtype]} *out"]
        arguments = [s.operand, s.out]
        return self._launch(name, comment, parameters, _transposing(shape, order), count, arguments)

    def _transposed_here(self, s: Local, shape: Sequence[int], order: Sequence[int]) -> list[str]:
        """Return the statements that launch a kernel for this order and the shape of this rank."""
        dtype, dims = s.y.dtype, range(len(shape))
        sizes = [f"n{d}" for d in dims]
        of_result, of_operand = _strides([sizes[d] for d in order]), _strides(sizes)
        body = ["  for (size_t i = FIRST; i < n; i += STEP) {"]
        for place, d in enumerate(order):
            quotient = f"i / ({of_result[place]})" if of_result[place] else "i"
            body.append(f"    size_t i{d} = {quotient} % {sizes[d]};")
        terms = [f"i{d} * {of_operand[d]}" if of_operand[d] else f"i{d}" for d in dims]
        body += [f"    out[i] = a[{' + '.join(terms)}];", "  }"]
        name = f"transpose_{dtype}_to_{'_'.join(map(str, order))}"
        comment = f"out = a[{', '.join(sizes)}] with its dimensions in the order {list(order)}"
        parameters = [f"const {CUDA_TYPES[dtype]} *a", f"{CUDA_TYPES[dtype]} *out"]
        parameters += [f"size_t {size}" for size in sizes]
        arguments = [s.operand, s.out, *map(size_text, shape)]
        return self._launch(name, comment, parameters, body, math.prod(shape), arguments)


def _strides(sizes: Sequence[str]) -> list[str]:
    """Return the strides of dimensions as texts; empty where it is 1."""
    return [" * ".join(sizes[place + 1 :]) for place in range(len(sizes))]


def _transposing(shape: Sequence[int], order: Sequence[int]) -> list[str]:
    """Return the body of a kernel that reorders the dimensions of an array."""
    body = ["  for (size_t i = FIRST; i < n; i += STEP) {"]
    stride = 1  # of dimension d in the result
    for result_dim, d in reversed(list(enumerate(order))):
        quotient = f"i / {size_text(stride)}" if stride > 1 else "i"
        wrap = f" % {size_text(shape[d])}" if result_dim else ""
        body.append(f"    size_t i{d} = {quotient}{wrap};")
        stride *= shape[d]
    terms: list[str] = []
    for d in range(len(shape)):
        stride = math.prod(shape[d + 1 :])  # of dimension d in the operand
        terms.append(f"i{d} * {size_text(stride)}" if stride > 1 else f"i{d}")
    return [*body, f"    out[i] = a[{' + '.join(terms)}];", "  }"]
