"""The work of ``collir export msccl``: write an algorithm, once it is proven as it stands there."""

import argparse

from collir.algorithms.checking import check
from collir.algorithms.msccl_xml import text_of
from collir.algorithms.program import ChunkProgram
from collir.importing.algorithms.msccl_xml import read_msccl_xml
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.tools.algorithm_choice import program_of_options
from collir.tools.shell import write_or_print


def run(options: argparse.Namespace) -> int:
    """Write the file; return the exit status."""
    text = exported(program_of_options(options), options.runtime)
    write_or_print(options.output, text)
    return 0


def exported(program: ChunkProgram, runtime: str = "rccl") -> str:
    """Return an algorithm in MSCCL's XML.

    Raises:
        DiagnosticError: the runtime does not take the file.
    """
    text, ranks = text_of(program, runtime), len(program.ranks)
    read = read_msccl_xml(text.encode())
    checked = check(read.program)
    assert checked.is_right, checked.problems
    if reasons := read.refused[runtime]:
        alternative = next(x for x in read.refused if x != runtime)
        hint = "" if read.refused[alternative] else f" (--runtime {alternative} does)"
        message = f"{runtime} does not take this algorithm of {ranks} ranks{hint}: {reasons[0]}"
        raise DiagnosticError(Diagnostic(message))
    return text
