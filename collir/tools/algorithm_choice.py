"""The algorithm that options name, as a chunk program."""

import argparse
from dataclasses import replace
from pathlib import Path

from collir.algorithms.chunks import program_of
from collir.algorithms.own import OwnAlgorithmError
from collir.algorithms.program import ChunkProgram
from collir.algorithms.table import ALGORITHMS
from collir.dialects.algorithms import AlgorithmOp
from collir.ir.diagnostics import DiagnosticError, Position
from collir.syntax.algorithms import own_algorithm, prove, refusal
from collir.tools.api import parse
from collir.tools.shell import UsageError

MOST_RANKS = 1024
"""The most ranks of a file: each of them is written out."""


def program_of_options(options: argparse.Namespace) -> ChunkProgram:
    """Return the program of the algorithm that options name: of those of collir, or of a file.

    Raises:
        UsageError: there is none, or not for as many ranks.
        DiagnosticError: the file has errors, or declares what is none.
    """
    if options.file:
        program = _declared_program(options.file, options.algorithm, options.ranks)
        if options.collective not in (None, program.collective):
            raise UsageError(f"@{program.name} is an algorithm of {program.collective}")
        return program
    if not options.collective:
        raise UsageError("--collective says of what, or a file declares the algorithm")
    return chosen_program(options.collective, options.algorithm or "ring", options.ranks)


def _declared_program(file: str, algorithm: str | None, ranks: int) -> ChunkProgram:
    module = parse(Path(file))
    declared = {op.sym_name.data: op for op in module.ops if isinstance(op, AlgorithmOp)}
    if not declared:
        raise UsageError(f"{file} declares no algorithm")
    name = (algorithm or next(iter(declared))).removeprefix("@")
    if name not in declared or (algorithm is None and len(declared) > 1):
        wanted = f"no algorithm '{algorithm}', but" if algorithm else "several algorithms:"
        raise UsageError(f"{file} declares {wanted} {', '.join(f'@{x}' for x in declared)}")
    op = declared[name]
    own = own_algorithm(op.declared.data)
    if not 2 <= ranks <= MOST_RANKS:
        raise UsageError(f"--ranks is from 2 to {MOST_RANKS}")
    try:
        prove(own, ranks)
    except OwnAlgorithmError as error:
        place = Position.of(op)
        raise DiagnosticError(refusal(op.declared.data, ranks, error, place, place)) from None
    return replace(program_of(own, ranks), name=name)


def chosen_program(collective: str, algorithm: str, ranks: int) -> ChunkProgram:
    """Return the program of an algorithm.

    Raises:
        UsageError: there is no such algorithm of the collective, or not for as many ranks.
    """
    known = ALGORITHMS.get((collective, algorithm))
    if known is None:
        names = ", ".join(a for c, a in ALGORITHMS if c == collective)
        raise UsageError(f"{collective} has no algorithm '{algorithm}' here, but {names}")
    if known.composed:
        raise UsageError(f"{algorithm} is of the levels of a machine, which a file has not: "
                         "declare one in a .coll file")  # fmt: skip
    if not 2 <= ranks <= MOST_RANKS:
        raise UsageError(f"--ranks is from 2 to {MOST_RANKS}")
    if not known.fits(ranks):
        fitting = [n for n in range(2, MOST_RANKS + 1) if known.fits(n)]
        below = [n for n in fitting if n < ranks][-1:]
        above = [n for n in fitting if n > ranks][:1]
        near = " or ".join(map(str, below + above))
        raise UsageError(f"{algorithm} is no {collective} of {ranks} ranks: try {near}")
    return program_of(known, ranks)
