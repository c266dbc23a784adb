"""The first step of a run with a result that is not finite, and the devices with it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.interpreter import Interpreter, PythonValues
from xdsl.ir import Attribute, Operation

from collir.dialects.machine import NumberAttr
from collir.dialects.operation import DistOp
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.executor import execute


@dataclass(frozen=True)
class NotFinite:
    """Numbers that are not finite in the buffers of a value.

    Attributes:
        what: ``NaN`` or ``inf``.
        ranks: the devices that hold some.
    """

    what: str
    ranks: tuple[int, ...]

    @property
    def text(self) -> str:
        """The words for it, such as "NaN on ranks 0, 1"."""
        ranks = ", ".join(map(str, self.ranks))
        return f"{self.what} on rank{'s' * (len(self.ranks) > 1)} {ranks}"


def not_finite(buffers: Buffers) -> NotFinite | None:
    """Return which devices hold NaN; if none does, which hold an infinity; None if none does."""
    if nans := _ranks(buffers, np.isnan):
        return NotFinite("NaN", nans)
    infinities = _ranks(buffers, np.isinf)
    return NotFinite("inf", infinities) if infinities else None


def _ranks(buffers: Buffers, test: np.ufunc) -> tuple[int, ...]:
    return tuple(rank for rank, x in enumerate(buffers) if x is not None and _has(x, test))


def _has(x: Array, test: np.ufunc) -> bool:
    return x.dtype.kind not in "biu" and bool(np.any(test(x.astype(np.float64))))


def first_not_finite(
    module: ModuleOp, function: FuncOp, arguments: Sequence[Buffers], what: str
) -> tuple[DistOp, NotFinite] | None:
    """Run a function, and return its first step that makes NaN (or inf) of numbers without.

    Args:
        what: ``NaN`` or ``inf``.
    """
    watch = _Watch(what)
    execute(module, function, arguments, listeners=(watch,))
    return watch.first


def _is_infinite(attribute: Attribute) -> bool:
    return isinstance(attribute, NumberAttr) and math.isinf(attribute.data)


class _Watch(Interpreter.Listener):
    """An observer of the steps of a run.

    Attributes:
        first: the first step with a result that is not finite, and its devices.
        healthy: whether all operands of the running steps are finite.
    """

    def __init__(self, what: str):
        self.what = what
        self.first: tuple[DistOp, NotFinite] | None = None
        self.healthy: dict[Operation, bool] = {}

    def will_interpret_op(self, op: Operation, args: PythonValues) -> None:
        if self.first is None and isinstance(op, DistOp):
            written = any(map(_is_infinite, op.properties.values()))
            self.healthy[op] = not written and not any(map(self._found, args))

    def did_interpret_op(self, op: Operation, results: PythonValues) -> None:
        if self.first is None and isinstance(op, DistOp) and self.healthy.pop(op):
            found = self._found(results[0])
            if found is not None:
                self.first = op, found

    def _found(self, buffers: Buffers) -> NotFinite | None:
        found = not_finite(buffers)
        return found if found is not None and found.what == self.what else None
