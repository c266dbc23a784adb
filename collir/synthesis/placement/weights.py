"""The option of passes and targets that says how often functions run: ``"grads:1,acts:32"``."""

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of


def weights_of(options: Sequence[str], module: ModuleOp) -> dict[str, float]:
    """Return the weight of every function that the options name.

    Raises:
        DiagnosticError: a part is not ``function:number``, names no function, or names a function
            a second time.
    """
    names = [function.sym_name.data for function in functions_of(module)]
    weights: dict[str, float] = {}
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
        if name in weights:
            raise DiagnosticError(Diagnostic(f"weights: @{name} is there twice"))
        weights[name] = weight
    return weights
