"""A step on the blocks of a device inside of a ``shard_map``, and how jax spells what it needs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from collir.layout import DistType, DType
from collir.targets.code.forms import ModelStep
from collir.targets.code.python_text import tuple_text

DTYPES = {
    DType.F16: "jnp.float16",
    DType.BF16: "jnp.bfloat16",
    DType.F32: "jnp.float32",
    DType.F64: "jnp.float64",
    DType.I8: "jnp.int8",
    DType.I32: "jnp.int32",
    DType.I64: "jnp.int64",
    DType.BOOL: "jnp.bool_",
}


def names_text(names: Sequence[str]) -> str:
    """Return the names of axes as collectives take them: one, or a tuple in their order."""
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else tuple_text(quoted)


def literal(value: float, dtype: DType) -> str:
    """Return a number that takes the dtype of an array beside it."""
    if dtype is DType.BOOL:
        return str(bool(value))
    if not dtype.is_float:
        return str(int(value))
    if math.isnan(value):
        return "jnp.nan"
    return repr(float(value)).replace("inf", "jnp.inf")


@dataclass(frozen=True)
class JaxStep(ModelStep):
    """A step on the blocks of a device; its inputs are variables of the operands, or numbers.

    Attributes:
        axis: the name of each sub-axis in the mesh of jax.
    """

    LIBRARY: ClassVar[str] = "jnp"

    axis: dict[str, str]

    @property
    def before(self) -> tuple[int, ...]:
        return tuple(map(int, super().before))

    @property
    def after(self) -> tuple[int, ...]:
        return tuple(map(int, super().after))

    @property
    def dtype(self) -> str:
        """The element type of the result."""
        return DTYPES[self.result.dtype]

    @property
    def options(self) -> str:
        return self.dtype

    @property
    def same_integers(self) -> list[str]:
        same = self.result.dtype.is_float or self.operand.dtype is DType.BOOL
        return [] if same else ["promote_integers=False"]

    def number(self, value: float) -> str:
        return literal(value, self.result.dtype)

    def permuted(self, x: str, order: Sequence[int]) -> str:
        return f"{x}.transpose({', '.join(map(str, order))})"

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        return f"{x}.reshape({', '.join(map(str, shape)) or '()'})"

    @property
    def over(self) -> str:
        """The sub-axes that the step names, as jax takes them."""
        return self.names(self.op.over)

    @property
    def group(self) -> int:
        """The number of devices along the sub-axes that the step names."""
        return self.mesh.group_size(self.op.over)

    def names(self, axes: Sequence[str]) -> str:
        """Return sub-axes as jax takes them."""
        return names_text([self.axis[axis] for axis in axes])

    def index(self, axes: Sequence[str]) -> str:
        """Return the index of the device over sub-axes, the first most significant."""
        return f"lax.axis_index({self.names(axes)})"

    def start(self, x: DistType, dim: int) -> str:
        """Return where the block of a dimension begins, as a term to subtract; empty for 0."""
        axes = x.dims[dim].axes
        size = int(x.local_shape(self.mesh)[dim])
        return f"{self.index(axes)} * {size}" if axes else ""
