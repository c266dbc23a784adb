"""The method of a function whose operations of models are expressions of a library of arrays."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DistType, DType
from collir.localize.places import taking_part
from collir.targets.code.forms import Expression
from collir.targets.code.python_function import PythonFunction
from collir.targets.code.python_lines import lines_of
from collir.targets.code.python_text import WIDTH, Assignment
from collir.targets.code.rank_forms import RankStep


@dataclass
class ModelFunction(PythonFunction):
    """The method of one function; a target says how its library computes."""

    STEP: ClassVar[type[RankStep]]
    """The form of an operation for its expression."""
    EXPRESSIONS: ClassVar[Mapping[str, Expression[Any]]]
    """The expression of each operation of models, by its name."""
    NATIVE: ClassVar[Collection[str]]
    """The operations that the library computes in types of 16 bits; others are in f32."""
    USES: ClassVar[Mapping[str, Sequence[str]]]
    """The methods and modules that methods of operations use."""

    @abstractmethod
    def in_order(self, op: DistOp, text: str) -> str:
        """Return the result of an operation of a model as an array with its elements in order."""

    def local_step(self, op: DistOp) -> list[str]:
        if op.mnemonic not in self.EXPRESSIONS and op.kind.structure is None:
            return super().local_step(op)
        statement = Assignment.of(self.variable[op.result], self._expression(op))
        indent = 12 if taking_part(op) else 8
        fits = indent + len(statement) <= WIDTH
        return [statement] if fits else lines_of(statement, indent)

    def _expression(self, op: DistOp) -> str:
        """Return the result of an operation of a model, in order and of its element type."""
        y = dist_type(op.result)
        native = op.mnemonic in self.NATIVE
        inputs = [
            self.variable[operand] if native else self._wide(self.variable[operand], operand_type)
            for operand, operand_type in zip(op.operands, map(dist_type, op.operands), strict=True)
        ]
        dtype = DType.F32 if y.dtype.is_short and not native else y.dtype
        needs = set[str]()
        step = self.STEP(op, self.mesh, inputs, needs, dtype, self.dtype(dtype), self.names)
        text = self.EXPRESSIONS[op.mnemonic](step)
        self.needs |= needs.union(*(self.USES.get(name, ()) for name in needs))
        text = self.in_order(op, text)
        return text if dtype is y.dtype else self.cast(text, y.dtype)

    def _wide(self, text: str, x: DistType) -> str:
        """Return an operand in f32 if it is of 16 bits."""
        return self.cast(text, DType.F32) if x.dtype.is_short else text
