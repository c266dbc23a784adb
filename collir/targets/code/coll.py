"""The language itself as a target."""

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from collir.syntax.writer import write


@dataclass(frozen=True)
class CollTarget(Target):
    """The module as .coll, the default."""

    name = "coll"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        output.write(write(module))
