"""Help pages of operations, from their rows."""

import difflib

from collir.dialects.tables import OPERATIONS
from collir.ir.extensions import load_operations
from collir.syntax.operations import usage
from collir.tools.shell import UsageError


def operation_page(name: str) -> str:
    """Return the page of an operation: its documentation, usage, dialect and algorithms.

    Raises:
        UsageError: there is no such operation.
    """
    load_operations()
    operation = OPERATIONS.get(name)
    if operation is None:
        close = difflib.get_close_matches(name, OPERATIONS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(OPERATIONS)}"
        raise UsageError(f"there is no operation '{name}'; {hint}")
    kind = operation.KIND
    lines = [f"{name}: {operation.__doc__}", "", f"  %r = {usage(kind)}", ""]
    lines.append(f"In MLIR it is {operation.name}.")
    if kind.algorithms:
        lines.append(f"Algorithms: {', '.join(kind.algorithms)}.")
    return "\n".join(lines) + "\n"
