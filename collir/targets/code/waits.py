"""Steps that a program starts early, and that printed code waits for at once."""

from collections.abc import Callable

from xdsl.dialects.func import FuncOp

from collir.dialects.operation import DistOp, is_collective
from collir.ir.remarks import remark


def remark_waits(function: FuncOp, starts: Callable[[DistOp], bool]) -> None:
    """Make a remark if code waits at once for collectives that a simulation runs beside others.

    Args:
        starts: whether the code starts a collective and waits for it later.
    """
    ops = [op for op in function.walk() if is_collective(op) and op.is_async and not starts(op)]
    if not ops:
        return
    what = f"this {ops[0].mnemonic}"
    if others := len(ops) - 1:
        what += f" and {others} more of @{function.sym_name.data}"
    remark(
        ops[0],
        f"the code waits for {what} at once: the time that a simulation runs beside other steps is "
        "not hidden",
    )
