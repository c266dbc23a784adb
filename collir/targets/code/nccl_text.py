"""C++ for CUDA: names, element types, and the statements and kernels of steps that send nothing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collir.layout import DType
from collir.layout.local import LocalBuffer
from collir.layout.sizes import OpenSize
from collir.targets.code.c_copies import Pointer, loops_over
from collir.targets.code.c_nest import Array, CLoop, is_one, nested
from collir.targets.code.c_text import (
    AS_BITS,
    C_TYPES,
    KEYWORDS,
    USED,
    Elements,
    Words,
    factor_text,
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
    stream streams events n start windows comms cuda memory workspace
    TRY_CUDA THREADS FIRST STEP blocks device_memory symmetric_memory symmetric_alloc symmetric_free
    threadIdx blockIdx blockDim gridDim warpSize held sends receives dim3 half half2 nv_bfloat16
    nv_bfloat162 nv_half nv_half2 std RANKS strdupa strndupa IF_DEVICE_OR_CUDACC
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


@dataclass
class CudaText:
    """Steps that send nothing, as statements on the caller's stream, and the kernels that these
    launch.

    Attributes:
        needs: the sections of the runtime.
        kernels: the lines that define each kernel, by its name.
        stream: the C++ expression of the stream.
    """

    needs: set[str] = field(default_factory=lambda: {"check"})
    kernels: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    stream: str = "stream"
    _names: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])

    # --- moves --------------------------------------------------------------------------------

    def copied(self, source: Pointer, x: LocalBuffer, target: Pointer, y: LocalBuffer) -> list[str]:
        """Return the statements that copy the elements of a buffer to another one: copies of runs
        where both have some, else a kernel."""
        loops, (to, start) = loops_over([target, source], [y, x])
        size, runs = y.dtype.bytes, _runs(loops, [to, start])
        if runs is None:
            return self._moved("copy", loops, to, start)
        run, rows, around = runs
        count = size_text((run.size if run else 1) * size)
        outer = [loop.variable for loop in (*around, *rows)]
        if not rows:
            ends = f"{to.place(outer)}, {start.place(outer)}, {count}"
            return nested(
                around, [self._called("cudaMemcpyAsync", ends, "cudaMemcpyDeviceToDevice")]
            )
        self.needs.add("copy_rows")
        [row] = rows
        outer = [loop.variable for loop in around]
        ends = ", ".join(
            f"{array.place(outer)}, {size_text(array.strides[row.variable] * size)}"
            for array in (to, start)
        )
        call = self._called("copy_rows", ends, size_text(row.size), count)
        return nested(around, [call])

    def filled(self, target: Pointer, y: LocalBuffer, value: float) -> list[str]:
        """Return the statements that write the same value to all elements of a buffer."""
        loops, (to,) = loops_over([target], [y])
        runs = _runs(loops, [to])
        if str(value) != "0.0" or runs is None:
            return self._moved("fill", loops, to, None, value)
        run, rows, around = runs
        count = size_text((run.size if run else 1) * y.dtype.bytes)
        outer = [loop.variable for loop in around]
        if not rows:
            return nested(around, [self._called("cudaMemsetAsync", to.place(outer), "0", count)])
        [row] = rows
        self.needs.add("zero_rows")
        stride = size_text(to.strides[row.variable] * y.dtype.bytes)
        call = self._called("zero_rows", to.place(outer), stride, size_text(row.size), count)
        return nested(around, [call])

    def _called(self, function: str, *arguments: str) -> str:
        """Return the statement that calls a function of CUDA on the stream."""
        return f"TRY_CUDA({function}({', '.join([*arguments, self.stream])}));"

    def _moved(
        self, verb: str, loops: Sequence[CLoop], to: Array, start: Array | None, value: float = 0
    ) -> list[str]:
        """Return the launch of a kernel that writes to each element of an array."""
        kind = CUDA_TYPES[to.dtype]
        numbers = _Numbers()
        body = ["  for (size_t i = FIRST; i < n; i += STEP) {"]
        inner = ""
        for place in reversed(range(len(loops))):
            loop = loops[place]
            if loop.variable == "i":
                break
            quotient = f"i / ({inner})" if " " in inner else f"i / {inner}" if inner else "i"
            size = numbers.text(loop.size) if place else ""
            wrap = f" % {size}" if place else ""
            body.append(f"    size_t {loop.variable} = {quotient}{wrap};")
            inner = f"{inner} * {size}" if inner else size
        arrays = [to] if start is None else [to, start]
        parameters, pointers = list[str](), list[str]()
        elements: list[str] = []
        for word, array in zip(("out", "a"), arrays, strict=False):
            terms = [
                v if is_one(step) else f"{v} * {numbers.text(step)}"
                for v, step in array.strides.items()
            ]
            elements.append(f"{word}[{' + '.join(terms) or '0'}]")
            parameters.append(f"{'const ' if word == 'a' else ''}{kind} *{word}")
            pointers.append(array.place([]))
        if start is None:
            parameters.append(f"{_constant_type(to.dtype)} value")
            pointers.append(number_text(value, to.dtype))
            stored = CUDA_ELEMENTS.store("value", to.dtype) if to.dtype in AS_BITS else "value"
        else:
            stored = elements[1]
        body += [f"    {elements[0]} = {stored};", "  }"]
        total = 1
        for loop in loops:
            total = total * loop.size
        parameters += [f"size_t {name}" for name in numbers.names]
        arguments = [*pointers, *map(size_text, numbers.numbers)]
        note = "out = value" if start is None else "out = a, each with its own strides"
        return self._launch(f"{verb}_{to.dtype}", note, parameters, body, total, arguments)

    # --- kernels ------------------------------------------------------------------------------

    def mapped(
        self,
        name: str,
        types: Sequence[DType],
        y: LocalBuffer,
        value: str,
        arguments: Sequence[str],
        constants: Mapping[str, str],
    ) -> list[str]:
        """Return the launch of a kernel that computes each element of the result.

        Args:
            name: the name of the kernel.
            types: the types of the operands ``a``, ``b``, ...
            value: an element of the result.
            arguments: the operands and the result.
            constants: the values of other parameters, by their names.
        """
        parameters = [
            f"const {CUDA_TYPES[x]} *{word}" for x, word in zip(types, "abcd", strict=False)
        ]
        parameters += [f"{_constant_type(y.dtype)} {word}" for word in constants]
        parameters.append(f"{CUDA_TYPES[y.dtype]} *out")
        body = ["  for (size_t i = FIRST; i < n; i += STEP)", f"    out[i] = {value};"]
        *operands, out = arguments
        passed = [*operands, *constants.values(), out]
        note = re.sub(r"\[i\]", "", f"out = {value}")
        return self._launch(name, note, parameters, body, y.elements, passed)

    def _launch(
        self,
        name: str,
        note: str,
        parameters: Sequence[str],
        body: Sequence[str],
        count: int,
        arguments: Sequence[str],
    ) -> list[str]:
        """Define a kernel, unless another step already has, and return the statements that launch
        it on ``count`` elements."""
        self.needs.add("launch")
        key = name, *parameters, *body
        if key not in self._names:
            others = sum(known[0] == name for known in self._names)
            self._names[key] = f"kernel_{name}_{others + 1}" if others else f"kernel_{name}"
            self.kernels[self._names[key]] = [
                f"/* {note} */",
                f"static __global__ void {self._names[key]}(size_t n, {', '.join(parameters)})",
                "{",
                *body,
                "}",
                "",
            ]
        n = size_text(count)
        passed = ", ".join([n, *arguments])
        return [
            f"{self._names[key]}<<<blocks({n}), THREADS, 0, {self.stream}>>>({passed});",
            "TRY_CUDA(cudaGetLastError());",
        ]


LINKAGE = 'extern "C" '
"""The words of C++ before functions that C may call."""

CALLERS = "stream"
"""The caller's stream."""


@dataclass
class _Numbers:
    """Numbers in a kernel: a parameter for each that is known only where it is launched."""

    names: list[str] = field(default_factory=list[str])
    numbers: list[int] = field(default_factory=list[int])

    def text(self, number: int) -> str:
        """Return a number as a factor."""
        if not isinstance(number, OpenSize):
            return size_text(number)
        text = factor_text(number)
        for name, known in zip(self.names, self.numbers, strict=True):
            if factor_text(known) == text:
                return name
        self.names.append(f"n{len(self.names)}")
        self.numbers.append(number)
        return self.names[-1]


_MOST_CALLS = 32
"""The most copies of runs that are as good as a kernel."""


def _runs(
    loops: Sequence[CLoop], arrays: Sequence[Array]
) -> tuple[CLoop | None, list[CLoop], list[CLoop]] | None:
    """Return the loop over a run of all arrays, the one over its rows if there are any, and those
    around; None if they have no runs, or too many calls are needed."""
    if not loops:
        return None, [], []
    *outer, last = loops
    if any(not is_one(array.strides.get(last.variable, 0)) for array in arrays):
        return None
    if not outer:
        return last, [], []
    # Rows are at least as far apart as they are long.
    able = [
        loop
        for loop in outer
        if all(int(x.strides.get(loop.variable, 0)) >= int(last.size) for x in arrays)
    ]
    if not able:
        return None
    row = max(able, key=lambda loop: (isinstance(loop.size, OpenSize), int(loop.size)))
    around = [loop for loop in outer if loop is not row]
    calls = 1
    for loop in around:
        calls *= int(loop.size)
    if calls > _MOST_CALLS or any(isinstance(loop.size, OpenSize) for loop in around):
        return None
    return last, [row], around


def _constant_type(dtype: DType) -> str:
    """Return the C++ type of a constant in a kernel on elements of ``dtype``."""
    return "float" if dtype in AS_BITS else CUDA_TYPES[dtype]
