"""collir: a compiler for distributed communication.

The functions of ``collir.tools.api`` are here too: ``parse``, ``run_passes``, ``cost``,
``simulate``, ``pass_costs``, ``emit``.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collir.cost import CostPackage
    from collir.syntax.diagnostics import DiagnosticError as DiagnosticError
    from collir.tools.api import UsageError as UsageError
    from collir.tools.api import emit as emit
    from collir.tools.api import parse as parse
    from collir.tools.api import pass_costs as pass_costs
    from collir.tools.api import run_passes as run_passes
    from collir.tools.api import simulate as simulate

    cost: CostPackage

__version__ = "0.1.0"

_API = ("UsageError", "emit", "parse", "pass_costs", "run_passes", "simulate")

__all__ = [
    "DiagnosticError",
    "UsageError",
    "__version__",
    "cost",
    "emit",
    "parse",
    "pass_costs",
    "run_passes",
    "simulate",
]


def __getattr__(name: str) -> object:
    """Imports what is asked for only then: `import collir` stays cheap."""
    if name in _API:
        from collir.tools import api

        return getattr(api, name)
    if name == "cost":
        return importlib.import_module("collir.cost")
    if name == "DiagnosticError":
        from collir.syntax.diagnostics import DiagnosticError

        return DiagnosticError
    raise AttributeError(f"module 'collir' has no attribute '{name}'")
