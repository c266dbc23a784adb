"""The number of collectives of each function, a line each."""

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.dialects.operation import is_collective
from collir.ir.functions import functions_of


@dataclass(frozen=True)
class CountTarget(Target):
    """The number of collectives of each function."""

    name = "count"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        for function in functions_of(module):
            count = sum(map(is_collective, function.body.ops))
            output.write(f"@{function.sym_name.data} {count}\n")
