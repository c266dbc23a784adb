"""Element types and reduction operations."""

import math
from enum import StrEnum


class Reduction(StrEnum):
    """An operation that combines partial values; ``avg`` is a sum with a division at the end."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    AVG = "avg"

    @property
    def linear(self) -> bool:
        """True if it commutes with scaling and with adding another partial value."""
        return self in (Reduction.SUM, Reduction.AVG)

    @property
    def idempotent(self) -> bool:
        """True if equal parts are the true value."""
        return self not in (Reduction.SUM, Reduction.PROD)


class DType(StrEnum):
    """An element type: floats and signed integers, named as in MLIR, and truth values."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    I32 = "i32"
    I64 = "i64"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        """Width in bits."""
        return 8 if self is DType.BOOL else int(self.value.lstrip("bfi"))

    @property
    def bytes(self) -> int:
        """Width in bytes."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """True for a floating-point type."""
        return self is not DType.BOOL and self.value[0] in "bf"

    @property
    def is_short(self) -> bool:
        """True for floats of 16 bits, whose sums are computed in f32."""
        return self.is_float and self.bytes < 4

    @property
    def mantissa(self) -> int:
        """Precision in bits: every integer up to ``2 ** mantissa`` is exact."""
        known = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53, DType.BOOL: 1}
        return known.get(self, self.bits - 1)

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """The reductions of partial values: of truth values, max is "or" and min is "and"."""
        if self is DType.BOOL:
            return (Reduction.MAX, Reduction.MIN)
        return tuple(r for r in Reduction if self.is_float or r is not Reduction.AVG)

    @property
    def short_range(self) -> bool:
        """True if sums and small factors easily leave the range.

        The largest f16 is 65504; below 6e-5 it loses precision, and below 3e-8 it is 0.
        """
        return self is DType.F16

    @property
    def epsilon(self) -> float:
        """Spacing of the numbers just above 1; 0 for integers."""
        return 2.0 ** (1 - self.mantissa) if self.is_float else 0.0

    def holds(self, other: "DType") -> bool:
        """Return whether this type holds every value of ``other`` exactly (no narrowing)."""
        if other in (self, DType.BOOL):
            return True
        if self is DType.BOOL:
            return False
        if not self.is_float:
            return not other.is_float and self.bits >= other.bits
        if self == DType.F16 and other == DType.BF16:
            return False  # f16 has more precision than bf16, but a smaller exponent range
        return self.mantissa >= other.mantissa

    def represents(self, value: float) -> bool:
        """Return whether a finite constant can be written in this type.

        Integers must be whole and in range. Floats may round (0.1 is fine as f16); they may not
        overflow to infinity.
        """
        if not math.isfinite(value):
            return False
        if self is DType.BOOL:
            return 0 <= value <= 1 and not value % 1
        if not self.is_float:
            limit = 2 ** (self.bits - 1)
            return -limit <= value < limit and not value % 1
        return abs(value) <= _LARGEST[self]

    def may_be(self, value: float) -> bool:
        """Return whether elements of this type may be a constant: also infinite, as floats may."""
        return self.represents(value) or (self.is_float and math.isinf(value))


_LARGEST = {
    DType.F16: 65504.0,
    DType.BF16: 3.3895313892515355e38,
    DType.F32: 3.4028234663852886e38,
    DType.F64: 1.7976931348623157e308,
}
