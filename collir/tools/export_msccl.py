"""The work of ``collir export msccl``: write an algorithm, once it is proven as it stands there."""

import argparse
import sys

from collir.algorithms.checking import check
from collir.algorithms.chunks import program_of
from collir.algorithms.msccl_xml import text_of
from collir.algorithms.table import ALGORITHMS
from collir.importing.algorithms.msccl_xml import read_msccl_xml
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.tools.shell import UsageError, write_whole

MOST_RANKS = 1024
"""The most ranks of a file: each of them is written out."""


def run(options: argparse.Namespace) -> int:
    """Write the file; return the exit status."""
    text = exported(options.collective, options.algorithm, options.ranks, options.runtime)
    if options.output:
        write_whole(options.output, text)
    else:
        sys.stdout.write(text)
    return 0


def exported(collective: str, algorithm: str, ranks: int, runtime: str = "rccl") -> str:
    """Return an algorithm in MSCCL's XML.

    Raises:
        UsageError: there is no such algorithm of the collective, or not for as many ranks.
        DiagnosticError: the runtime does not take the file.
    """
    known = ALGORITHMS.get((collective, algorithm))
    if known is None:
        names = ", ".join(a for c, a in ALGORITHMS if c == collective)
        raise UsageError(f"{collective} has no algorithm '{algorithm}' here, but {names}")
    if not 2 <= ranks <= MOST_RANKS:
        raise UsageError(f"--ranks is from 2 to {MOST_RANKS}")
    if not known.fits(ranks):
        fitting = [n for n in range(2, MOST_RANKS + 1) if known.fits(n)]
        below, above = (
            [n for n in fitting if n < ranks][-1:],
            [n for n in fitting if n > ranks][:1],
        )
        near = " or ".join(map(str, below + above))
        raise UsageError(f"{algorithm} is no {collective} of {ranks} ranks: try {near}")
    text = text_of(program_of(known, ranks), runtime)
    read = read_msccl_xml(text.encode())
    found = check(read.program)
    assert found.is_right, found.problems
    if reasons := read.refused[runtime]:
        other = next(x for x in read.refused if x != runtime)
        hint = "" if read.refused[other] else f" (--runtime {other} does)"
        message = f"{runtime} does not take this algorithm of {ranks} ranks{hint}: {reasons[0]}"
        raise DiagnosticError(Diagnostic(message))
    return text
