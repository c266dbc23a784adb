"""Forms of the operations of models that all libraries of arrays for Python share.

Differences in spelling are in each library's ``ModelStep``. Forms of a single library are in its
own file.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, Mesh
from collir.targets.code.python_text import tuple_text
from collir.targets.code.subscripts import subscripts


@dataclass(frozen=True)
class ModelStep(ABC):
    """An operation on the blocks of a device, and how a library spells what it needs.

    Attributes:
        inputs: the operands as expressions.
        needs: the helpers that expressions call; each expression adds its own.
    """

    LIBRARY: ClassVar[str]
    """The name of the library."""
    AXIS: ClassVar[str] = "axis"
    """The argument for dimensions."""
    KEEP: ClassVar[str] = "keepdims"
    """The argument by which a reduction keeps dimensions, with size 1."""

    op: DistOp
    mesh: Mesh
    inputs: list[str]
    needs: set[str]

    @property
    def x(self) -> str:
        """The first operand."""
        return self.inputs[0]

    @property
    def operand(self) -> DistType:
        """The type of the first operand."""
        return dist_type(self.op.input)

    @property
    def result(self) -> DistType:
        """The type of the result."""
        return dist_type(self.op.result)

    @property
    def before(self) -> tuple[int, ...]:
        """The shape of a block of the first operand."""
        return self.operand.local_shape(self.mesh)

    @property
    def after(self) -> tuple[int, ...]:
        """The shape of a block of the result."""
        return self.result.local_shape(self.mesh)

    @property
    def dim(self) -> int:
        """The dimension that the operation names."""
        return self.op.integer("dim")

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions that the operation names."""
        return self.op.sizes("dims")

    def call(self, function: str, *arguments: object) -> str:
        """Return a call of a function of the library."""
        return f"{self.LIBRARY}.{function}({', '.join(map(str, arguments))})"

    def along(self, dims: Sequence[int]) -> str:
        """Return dimensions as an argument: ``axis=1``, ``dim=(0, 2)``."""
        return f"{self.AXIS}={dims[0] if len(dims) == 1 else tuple_text(dims)}"

    @property
    @abstractmethod
    def options(self) -> str:
        """The last arguments of a call that makes an array of the type of the result."""

    @property
    @abstractmethod
    def same_integers(self) -> list[str]:
        """The argument by which a sum of integers keeps their type; none for other numbers."""

    @abstractmethod
    def number(self, value: float) -> str:
        """Return a number of the type of the result."""

    @abstractmethod
    def permuted(self, x: str, order: Sequence[int]) -> str:
        """Return an array with its dimensions in another order."""

    @abstractmethod
    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        """Return an array under another shape."""


_S = TypeVar("_S", bound=ModelStep)
Expression = Callable[[_S], str]
"""A function of a step to the expression that computes it."""

MAPS: dict[str, str] = {
    "neg": "-{0}",
    "mul": "{0} * {1}",
    "sub": "{0} - {1}",
    "div": "{0} / {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "maximum": "LIBRARY.maximum({0}, {1})",
    "minimum": "LIBRARY.minimum({0}, {1})",
    "where": "LIBRARY.where({0}, {1}, {2})",
    "exp": "LIBRARY.exp({0})",
    "log": "LIBRARY.log({0})",
    "sqrt": "LIBRARY.sqrt({0})",
    "tanh": "LIBRARY.tanh({0})",
    "sin": "LIBRARY.sin({0})",
    "cos": "LIBRARY.cos({0})",
}


def maps(library: str) -> dict[str, str]:
    """Return the form of each elementwise operation that libraries share."""
    return {name: form.replace("LIBRARY", library) for name, form in MAPS.items()}


def form(text: str) -> Expression[ModelStep]:
    """Return the expression of an elementwise operation."""
    return lambda s: text.format(*s.inputs)


def einsum(s: ModelStep) -> str:
    """Return a sum of products."""
    return s.call("einsum", f'"{subscripts(s.op.word("equation"))}"', *s.inputs)


def reduction(function: str, adds: bool = False) -> Expression[ModelStep]:
    """Return the expression of a reduction over dimensions.

    Args:
        adds: whether it adds elements, which libraries do in wider integers.
    """

    def expression(s: ModelStep) -> str:
        keep = [f"{s.KEEP}=True"] if "keepdims" in s.op.properties else []
        return s.call(function, s.x, s.along(s.dims), *keep, *(s.same_integers if adds else []))

    return expression


def gains(s: ModelStep) -> list[str]:
    """Return the operands of a normalisation but the first, each with its dimensions at their
    places among those of the first."""
    dims, ascending = s.dims, sorted(s.dims)
    aligned: list[str] = []
    for gain in s.inputs[1:]:
        if list(dims) != ascending:
            gain = s.permuted(gain, [dims.index(dim) for dim in ascending])
        if ascending != list(range(ascending[0], len(s.before))):
            shape = [n if dim in dims else 1 for dim, n in enumerate(s.before)]
            gain = s.reshaped(gain, shape[ascending[0] :])
        aligned.append(gain)
    return aligned


def constant(s: ModelStep) -> str:
    """Return an array of one number."""
    shape, value = tuple_text(s.after), s.op.number("value")
    if value in (0, 1) and math.copysign(1, value) > 0:
        return s.call("ones" if value else "zeros", shape, s.options)
    return s.call("full", shape, s.number(value), s.options)


def broadcast_to(s: ModelStep) -> str:
    """Return an array repeated along dimensions."""
    return s.call("broadcast_to", s.x, tuple_text(s.after))


SHARED: dict[str, Expression[ModelStep]] = {
    "sum": reduction("sum", adds=True),
    "mean": reduction("mean"),
    "constant": constant,
    "broadcast_to": broadcast_to,
}
"""The expressions that are the same in all libraries, but for the words that the steps say."""
