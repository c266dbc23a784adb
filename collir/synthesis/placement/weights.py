"""How often functions run, as options of passes and targets: ``"grads:1,activations:32"``."""

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of


def weights_of(options: Sequence[str], module: ModuleOp) -> dict[str, float]:
    """The weights by the names of functions.

    Raises:
        DiagnosticError: a part that is not ``function:number``, no function of that name, or one
            that is there twice.
    """
    names = [function.sym_name.data for function in functions_of(module)]
    found: dict[str, float] = {}
    for option in ",".join(options).split(",") if options else ():
        name, _, number = option.rpartition(":")
        name = name.strip().removeprefix("@")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not (weight >= 0 and math.isfinite(weight)) or not name:
            raise DiagnosticError(
                Diagnostic(f"weights are like `weights=\"f:1,g:32\"`, not '{option}'")
            )
        if name not in names:
            listed = ", ".join(f"@{known}" for known in names)
            raise DiagnosticError(
                Diagnostic(f"weights: there is no function @{name} (there are {listed})")
            )
        if name in found:
            raise DiagnosticError(Diagnostic(f"weights: @{name} is there twice"))
        found[name] = weight
    return found
