"""The option ``--function`` of the tools."""

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from collir.ir.functions import functions_of
from collir.ir.selection import erase_other_functions
from collir.tools.api import UsageError


def keep_functions(module: ModuleOp, names: Sequence[str]) -> None:
    """Erase all functions except the named functions and those they need; no names keep all.

    Raises:
        UsageError: there is no function of a name.
    """
    if not names:
        return
    functions = [function.sym_name.data for function in functions_of(module)]
    chosen = [name.removeprefix("@") for name in names]
    for name in chosen:
        if name not in functions:
            known = ", ".join(functions) or "no functions"
            raise UsageError(f"there is no function @{name} (there are {known})")
    erase_other_functions(module, chosen)
