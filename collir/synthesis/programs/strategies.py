"""Fixed strategies for an ``all_reduce`` over several levels."""

from xdsl.dialects.builtin import ModuleOp
from xdsl.pattern_rewriter import PatternRewriterListener

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.ir.functions import functions_of, without_weights
from collir.layout.coll import ALL_REDUCE
from collir.synthesis.programs.fixed import fixed_program
from collir.synthesis.programs.rewriting import KeptCollective, put, unplaced_in
from collir.transforms.loops.straight import on_straight_programs


@on_straight_programs
def decompose_by_strategy(
    module: ModuleOp, strategy: str, listener: PatternRewriterListener | None = None
) -> list[KeptCollective]:
    """Rewrite every all_reduce over several levels by a strategy, in place.

    Returns: the collectives that unexpectedly stay as they are written.

    Raises:
        DiagnosticError: a tensor so large that no padding fits.
    """
    kept: list[KeptCollective] = []
    if strategy == "flat":
        return kept
    for function in without_weights(functions_of(module), "decomposed"):
        for op in list(function.body.ops):
            if not isinstance(op, DistOp) or op.kind is not ALL_REDUCE:
                continue
            mesh = mesh_of(op)
            program = fixed_program(strategy, mesh, op.over) if mesh.placed else None
            if program is not None:
                put(op, program, listener)
            elif mesh.placed:
                why = f"it is over one level, and {strategy} is for several"
                kept.append(KeptCollective(op, f"this {op.mnemonic}", why))
        kept += unplaced_in(function)
    return kept
