"""The switch from a step to the method that prints its statements, shared by all code targets."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from typing import Any, TypeVar

from xdsl.ir import SSAValue

from collir.dialects.operation import DistOp
from collir.ir.diagnostics import DiagnosticError
from collir.layout import Mesh
from collir.layout.operation_table import OperationTable
from collir.syntax.writer import step_text

Seen = TypeVar("Seen")
"""A step in the form that the methods of a target take."""

Emitters = OperationTable[Callable[[Any, Seen], list[str]]]
"""The methods of a class that print the statements of steps, by the names of the steps."""


def check_uneven(op: DistOp, known: Container[str], name: str = "") -> None:
    """Check that a target has a form of a collective for blocks that differ in size.

    Args:
        known: the names that the target has.
        name: the name to look for; the default is that of the collective.

    Raises:
        DiagnosticError: it has none.
    """
    if (name or op.mnemonic) not in known:
        raise DiagnosticError.at(
            op,
            f"{op.mnemonic} has no form here for blocks that differ in size: use other steps, or "
            "leave out the weights",
        )


def written_step(op: DistOp, mesh: Mesh, names: Mapping[SSAValue, str]) -> str:
    """Return a step with its result and operands as it is written in ``.coll``."""
    operands = ", ".join(f"%{names[operand]}" for operand in op.operands)
    return f"%{names[op.result]} = {step_text(op, mesh, operands)}"


class StepEmitter(ABC):
    """The statements of one step, which a target prints by the kind of the step."""

    def statements(self, op: DistOp) -> list[str]:
        """Return the statements of a step for the ranks that take part."""
        if op.kind.sends:
            return self.collective(op)
        if op.kind.computes:
            return self.computation(op)
        return self.local_step(op)

    @abstractmethod
    def collective(self, op: DistOp) -> list[str]:
        """Return the statements of a step that sends."""

    @abstractmethod
    def computation(self, op: DistOp) -> list[str]:
        """Return the statements that stand for a computation of which only the time is known."""

    @abstractmethod
    def local_step(self, op: DistOp) -> list[str]:
        """Return the statements of a step that sends nothing."""
