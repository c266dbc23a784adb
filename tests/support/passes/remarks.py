"""The remarks of passes."""

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from collir.ir.diagnostics import Diagnostic
from collir.ir.remarks import listening
from collir.passes.table import PASSES


def remarks_of(module: ModuleOp, passes: str) -> list[str]:
    """Run passes over a module, and return the remarks."""
    remarks: list[Diagnostic] = []
    with listening(remarks.append):
        for name in passes.split(","):
            PASSES[name]()().apply(Context(), module)
    return [remark.message for remark in remarks]
