"""collir: a compiler for distributed communication.

The names in ``__all__`` are the Python API. docs/api.md shows how to use them, and
docs/stability.md says what is stable.
"""

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import collir.search as search
    from collir.importing.models.imported import Imported as Imported
    from collir.importing.models.jax_functions import import_jax as import_jax
    from collir.importing.models.torch_models import import_torch as import_torch
    from collir.importing.stablehlo.program import import_stablehlo as import_stablehlo
    from collir.ir.builders import FunctionBuilder as FunctionBuilder
    from collir.ir.builders import module_of as module_of
    from collir.ir.diagnostics import DiagnosticError as DiagnosticError
    from collir.tools.api import cost_formulas as cost_formulas
    from collir.tools.api import cost_function as cost_function
    from collir.tools.api import emit as emit
    from collir.tools.api import instantiate as instantiate
    from collir.tools.api import parse as parse
    from collir.tools.api import pass_costs as pass_costs
    from collir.tools.api import run_passes as run_passes
    from collir.tools.api import simulate as simulate
    from collir.tools.hlo import import_hlo as import_hlo
    from collir.tools.shell import UsageError as UsageError
    from collir.tools.sweep_api import sweep as sweep

__version__ = "0.2.0"

__all__ = [
    "DiagnosticError",
    "FunctionBuilder",
    "Imported",
    "UsageError",
    "__version__",
    "cost_formulas",
    "cost_function",
    "emit",
    "import_hlo",
    "import_jax",
    "import_stablehlo",
    "import_torch",
    "instantiate",
    "module_of",
    "parse",
    "pass_costs",
    "run_passes",
    "search",
    "simulate",
    "sweep",
]

_PACKAGES = ("search",)

_MODULES = {
    "DiagnosticError": "collir.ir.diagnostics",
    "FunctionBuilder": "collir.ir.builders",
    "Imported": "collir.importing.models.imported",
    "import_hlo": "collir.tools.hlo",
    "import_jax": "collir.importing.models.jax_functions",
    "import_stablehlo": "collir.importing.stablehlo.program",
    "import_torch": "collir.importing.models.torch_models",
    "module_of": "collir.ir.builders",
    "sweep": "collir.tools.sweep_api",
}
"""Name -> its module, for names that are not defined in ``collir.tools.api``."""


def __getattr__(name: str) -> object:
    """Import a name when it is first used, so that `import collir` stays cheap."""
    if name in _PACKAGES:
        return importlib.import_module(f"collir.{name}")
    if name in __all__:
        return getattr(importlib.import_module(_MODULES.get(name, "collir.tools.api")), name)
    raise AttributeError(f"module 'collir' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if "IPython" in sys.modules:
    importlib.import_module("collir.tools.notebook").register()
