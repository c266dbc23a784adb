"""The program of a rank as a target, for people."""

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.target import Target

from collir.ir.names import keep_names
from collir.localize.localize import localize
from collir.syntax.writer import write


@dataclass(frozen=True)
class LocalTarget(Target):
    """The program of each rank, as local functions: buffers, copies, starts and waits.

    Functions are lowered as by the pass `localize`, and printed as `.coll`, which reads back.
    """

    name = "local"

    sized: bool = False
    """Keep size parameters: sizes are formulas of them, and functions work for any of their
    values."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        if any(isinstance(op, FuncOp) for op in module.ops):
            module = module.clone()
            keep_names(module)
            localize(module, sized=self.sized)
        output.write(write(module))
