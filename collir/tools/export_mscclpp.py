"""The work of ``collir export mscclpp``: write a plan, once it is proven as it stands there."""

import argparse
import gc

from collir.algorithms.checking import CAPACITY, check
from collir.algorithms.fusion import fused_program
from collir.algorithms.mscclpp.checking import check_plan, why_not_run
from collir.algorithms.mscclpp.text import text_of_plan
from collir.algorithms.mscclpp.writing import SLOTS, plan_of
from collir.algorithms.program import ChunkProgram
from collir.importing.algorithms.mscclpp import read_mscclpp
from collir.importing.values import ReadError
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.tools.algorithm_choice import program_of_options
from collir.tools.shell import write_or_print


def run(options: argparse.Namespace) -> int:
    """Write the file; return the exit status."""
    gc.set_threshold(50_000, 20, 100)  # files are large, and hardly any of it is garbage
    text = exported_plan(program_of_options(options), options.channel)
    write_or_print(options.output, text)
    return 0


def exported_plan(chunks: ChunkProgram, channel: str = "memory") -> str:
    """Return an algorithm as a plan of MSCCL++.

    Args:
        channel: the type of its channels: ``memory`` or ``port``.

    Raises:
        DiagnosticError: the executor does not take the file.
    """
    ranks = len(chunks.ranks)
    hint = "try fewer ranks, or an algorithm with fewer peers, such as ring"
    if reason := why_not_run(plan_of(chunks, channel)):
        message = f"the plan of {ranks} ranks is too large to be proven: {reason}"
        raise DiagnosticError(Diagnostic(f"{message} ({hint})"))
    fused = fused_program(chunks)
    if check(fused, SLOTS).is_right:
        chunks = fused
    slots = next((n for n in range(SLOTS, CAPACITY) if check(chunks, n).is_right), CAPACITY)
    text = text_of_plan(plan_of(chunks, channel, slots))
    try:
        checked = check_plan(read_mscclpp(text.encode()).plan)
    except ReadError as error:
        message = f"the plan of {ranks} ranks is too large to be proven: {error.message}"
        raise DiagnosticError(Diagnostic(f"{message} ({hint})")) from error
    if limits := [x for x in checked.problems if x.kind == "limit"]:
        message = f"mscclpp does not take this algorithm of {ranks} ranks: {limits[0].message}"
        raise DiagnosticError(Diagnostic(f"{message} ({hint})"))
    assert checked.is_right, checked.problems
    return text
