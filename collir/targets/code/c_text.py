"""Names, types, sizes and elements in C and C++."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from collir.layout import DistType, DType, Mesh, Reduction
from collir.layout.cuts import Extent
from collir.layout.formulas import Formula
from collir.layout.sizes import OpenSize
from collir.semantics.reference.buffers import NUMPY
from collir.targets.code.names import distinct
from collir.transforms.any_size import Condition, is_product

C_TYPES = {
    DType.F16: "uint16_t",
    DType.BF16: "uint16_t",
    DType.F32: "float",
    DType.F64: "double",
    DType.I8: "int8_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.BOOL: "uint8_t",
}
"""The type of each element in memory; f16 and bf16 are kept as their bits."""

AS_BITS = (DType.F16, DType.BF16)
"""Element types that C computes as float, between a load and a store."""

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
    err i pending main malloc free memcpy memset printf fprintf stdout stderr stdin errno unix
    linux size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
    done to from TRY NEW MOST_DIMS mesh part
    all_reduce reduce broadcast reduce_scatter all_gather gather scatter all_to_all permute
    send_to receive_from shift memory reserve exchange blocks_before as_integers
    least size_of compute_for wrong_size is_size check_size snprintf
    all_gather_blocks gather_blocks scatter_blocks reduce_scatter_blocks all_to_all_blocks
    copy_rows zero_rows transpose_1 transpose_2 transpose_4 transpose_8
    bf16_load bf16_store f16_load f16_store f16_of_double
    sum_of_f16 prod_of_f16 max_of_f16 min_of_f16 sum_of_bf16 prod_of_bf16 max_of_bf16 min_of_bf16
    layout place hashed part_value whole_value differ fabs fmax atoi math_errhandling
    P_tmpdir L_tmpnam
    mixed_bits larger larger_integer product_f16 product_bf16 product_f32 product_f64 product_i8
    product_i32 product_i64
    """.split()  # noqa: SIM905
)
"""Names that the emitted code uses, and no function or variable may have."""

_RESERVED = re.compile(r"MPIX?_|PMPI_|nccl|cuda|COLLIR_|collir_|mesh_|_")
"""The beginnings that no name may have."""


@dataclass(frozen=True)
class Words:
    """The names that a language, and the code emitted in it, do not leave to functions.

    Attributes:
        language: the name of the language.
        used: the names that the emitted code uses.
        reserved: the beginnings that no name may have.
    """

    language: str
    keywords: frozenset[str]
    used: frozenset[str]
    reserved: re.Pattern[str]


C = Words("C", KEYWORDS, USED, _RESERVED)


@cache
def _library() -> frozenset[str]:
    """Return the names of the C library, and of the libraries that MPI needs."""
    text = Path(__file__).with_name("c_library.txt").read_text(encoding="ascii")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return frozenset(word for line in lines for word in line.split())


def name_problem(name: str, words: Words = C) -> str | None:
    """Return the reason why the code cannot have an external function of this name, or None."""
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
    """Return a distinct variable for each of the names of values.

    Variables may hide functions of the C library, but no macros, and no name that the code uses.
    """
    return distinct(_variable(name, words) for name in names)


def _variable(name: str, words: Words) -> str:
    """Return a variable for a name, which may be the same as for another name."""
    base = re.sub(r"\W", "_", name, flags=re.ASCII)
    macro = base.isupper() and base in _library()
    loop_variable = re.fullmatch(r"i\d+", base)
    if base in words.keywords | words.used or macro or loop_variable:
        return f"{base}_"
    return f"v{base}" if base[0].isdigit() or words.reserved.match(base) else base


def comment(text: str) -> str:
    """Return text that cannot end a comment: in MLIR, machines and axes may have any name."""
    return re.sub(r"\*/|/\*|[^ -~]|\\", "_", text)


class Comment(str):
    """Lines of a comment, which no formatter breaks."""

    __slots__ = ()


def size_text(count: int) -> str:
    """Return a count as a C expression of a type that holds it.

    An open size is an expression of the parameters of its function. A count that differs between
    ranks has tokens, which ``MeshNames.resolved`` replaces.
    """
    if isinstance(count, OpenSize):
        above, below = map(str, count.formula.fraction())
        if below == "1":
            return above
        above = f"({above})" if _is_sum(above) else above
        return f"{above} / ({below})" if " " in below else f"{above} / {below}"
    if isinstance(count, Extent):
        return count.formula()
    return str(count) if count < 2**31 else f"(size_t){count}"


def factor_text(count: int) -> str:
    """Return a count as a factor of a product in C."""
    text = size_text(count)
    return f"({text})" if _is_sum(text) or " / " in text else text


def _is_sum(text: str) -> bool:
    return " + " in text or " - " in text or text.startswith("-")


def double_text(formula: Formula) -> str:
    """Return a bound of the absolute value of a sum of products as a C expression of a double."""
    terms: list[str] = []
    for powers, number in formula.terms:
        factors = [name for name, exponent in powers for _ in range(exponent)]
        terms.append(" * ".join([f"{abs(int(number))}.0", *(f"(double){x}" for x in factors)]))
    return " + ".join(terms) or "0.0"


def condition_text(condition: Condition) -> str:
    """Return a condition on the parameters of a function in C."""
    formula = condition.formula
    if is_product(formula):
        return f"{formula} > 0" if condition.least else f"{double_text(formula)} < 9.2e18"
    above, below = formula.fraction()
    plus = Formula(tuple(term for term in above.terms if term[1] > 0))
    bounds = [plus, plus - above, below]
    about = " + ".join(double_text(x) for x in bounds if x.parameters)
    return f"is_size({', '.join([str(condition.least), about, *map(str, bounds)])})"


def number_text(value: float, dtype: DType) -> str:
    """Return a constant, rounded to a dtype, as C computes with it; f16 and bf16 as a float."""
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    if not dtype.is_float:
        return f"{int(value)}" + ("LL" if abs(value) >= 2**31 else "")
    rounded = NUMPY[dtype].type(value)
    return str(float(rounded)) if dtype is DType.F64 else f"{np.float32(rounded)}f"


@dataclass(frozen=True)
class Elements:
    """The memory form of elements in a language, and the conversions around a computation.

    Attributes:
        types: the type of each element in memory.
        loads, stores: the functions between the bits of f16 and bf16, and a float.
        half_of_double: the function that rounds a double to f16 once.
    """

    types: Mapping[DType, str]
    loads: Mapping[DType, str]
    stores: Mapping[DType, str]
    half_of_double: str

    def load(self, text: str, dtype: DType) -> str:
        """Return an element as the language computes with it."""
        return f"{self.loads[dtype]}({text})" if dtype in AS_BITS else text

    def term(self, text: str, dtype: DType) -> str:
        """Return an element as a term or factor; signed integers must not overflow, so they
        become unsigned."""
        if dtype in (DType.I32, DType.I64):
            return f"(u{self.types[dtype]}){text}"
        return self.load(text, dtype)

    def store(self, text: str, dtype: DType) -> str:
        """Return the result of a computation as an element, rounded to nearest even."""
        if dtype in AS_BITS:
            return f"{self.stores[dtype]}({text})"
        return text if dtype.is_float else f"({self.types[dtype]})({text})"

    def total(self, terms: Iterable[str], dtype: DType) -> str:
        """Return the sum of elements as an element."""
        return self.store(" + ".join(self.term(x, dtype) for x in terms), dtype)

    def scaled(self, text: str, factor: str, dtype: DType) -> str:
        """Return the product of an element and a number as an element."""
        if factor.startswith("-") and not dtype.is_float:
            factor = self.term(factor, dtype)
        return self.store(f"{self.term(text, dtype)} * {factor}", dtype)

    def converted(self, text: str, source: DType, target: DType) -> str:
        """Return an element as one of another dtype."""
        value = self.load(text, source)
        if target is DType.BOOL is not source:
            return f"({self.types[target]})({value} != 0)"
        if target not in AS_BITS:
            return f"({self.types[target]}){value}"
        if (source, target) == (DType.F64, DType.F16):  # by way of float it would be rounded twice
            return f"{self.half_of_double}({value})"
        return self.store(value if source in (*AS_BITS, DType.F32) else f"(float){value}", target)


C_ELEMENTS = Elements(
    C_TYPES,
    {dtype: f"{dtype}_load" for dtype in AS_BITS},
    {dtype: f"{dtype}_store" for dtype in AS_BITS},
    "f16_of_double",
)
"""Elements in C, with the functions of the runtime for f16 and bf16."""


@dataclass(frozen=True)
class CustomOperator:
    """The reduction of a type that MPI does not know."""

    reduction: Reduction
    dtype: DType

    @property
    def name(self) -> str:
        """The name of the C function, which no axis gets."""
        return f"{self.reduction}_of_{self.dtype}"


def loop(count: str, statement: str) -> str:
    """Return a loop that carries out a statement for every element ``i``."""
    return f"for (size_t i = 0; i < {count}; ++i) {statement}"


def element_count(x: DistType, mesh: Mesh) -> int:
    """Return the number of elements in the buffer of one rank."""
    return math.prod(x.local_shape(mesh))
