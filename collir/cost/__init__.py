"""Costs of programs, in closed form; ``collir.cost(module)`` costs a module.

The package is callable so that the Python API mirrors the tools (docs/decisions/0016).
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from collir.cost.programs.cost import FunctionCost


class CostPackage(ModuleType):
    """The package as a callable module."""

    def __call__(
        self,
        module: "ModuleOp",
        model: str = "auto",
        algorithm: str = "auto",
        order: str = "auto",
    ) -> "list[FunctionCost]":
        """Return the costs of all functions of a module; the options are those of target ``cost``.

        Raises:
            ValueError: an unknown model, algorithm or order.
            DiagnosticError: see ``collir.cost.programs.cost.cost``.
        """
        from collir.cost.model import CostModel
        from collir.cost.programs.cost import cost

        return cost(module, CostModel(model, algorithm, order))


sys.modules[__name__].__class__ = CostPackage
