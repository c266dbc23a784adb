"""Runs chunk programs on real MPI ranks, beside MPI's own collectives."""

import sys
from pathlib import Path

from support.harness.hanging import HANG

from collir.tools.mpi_run import mpiexec

SCRIPT = """
import sys
import numpy as np
from mpi4py import MPI
from collir.algorithms.chunks import program_of
from collir.algorithms.program import DOES, ChunkBuffer
from collir.algorithms.table import ALGORITHMS

comm, size = MPI.COMM_WORLD, 3
n, me = comm.size, comm.rank
IN, OUT = ChunkBuffer.INPUT, ChunkBuffer.OUTPUT
for (collective, name), algorithm in ALGORITHMS.items():
    if not algorithm.fits(n):
        continue
    program = program_of(algorithm, n)
    chunks, row = program.chunks, program.ranks[me].sizes
    memory = {buffer: np.zeros((count, size)) for buffer, count in row.items()}
    own = np.random.default_rng(me).integers(-99, 99, (row[IN], size)).astype(float)
    if program.in_place:
        base = IN if collective in ("reduce_scatter", "scatter") else OUT
        inner = OUT if base is IN else IN
        begin = me * chunks if row[inner] < row[base] else 0
        memory[inner] = memory[base][begin : begin + row[inner]]
    if collective not in ("broadcast", "scatter") or me == 0:
        memory[IN][:] = own
    at = [0] * len(program.ranks[me].blocks)
    pending = []
    while any(a < len(b.steps) for a, b in zip(at, program.ranks[me].blocks)):
        for k, block in enumerate(program.ranks[me].blocks):
            if at[k] == len(block.steps):
                continue
            step = block.steps[at[k]]
            if any(at[b] <= s for b, s in step.after):
                continue
            does, part = DOES[step.kind], step.target or step.source
            cut = slice(part.offset, part.offset + part.size)
            data = memory[part.buffer]
            if does.receives:
                if not comm.Iprobe(block.receives_from, block.channel):
                    continue
                came = np.empty((part.size, size))
                comm.Recv(came, block.receives_from, block.channel)
                data[cut] = data[cut] + came if does.reduces else came
            elif does.keeps:
                source = step.source
                data[cut] = memory[source.buffer][source.offset : source.offset + part.size]
            if does.sends:
                sent = data[cut].copy()
                pending.append((sent, comm.Isend(sent, block.sends_to, block.channel)))
            at[k] += 1
    MPI.Request.Waitall([request for _, request in pending])
    mine = memory[OUT]
    want = np.zeros((row[OUT], size))
    match collective:
        case "all_reduce":
            comm.Allreduce(own, want)
        case "all_gather":
            comm.Allgather(own, want)
        case "reduce_scatter":
            comm.Reduce_scatter_block(own, want)
        case "all_to_all":
            comm.Alltoall(own, want)
        case "gather":
            comm.Gather(own, want)
            mine = mine if me == 0 else want
        case "scatter":
            comm.Scatter(own, want)
        case "broadcast":
            want[:] = own if me == 0 else 0
            comm.Bcast(want)
        case "reduce":
            comm.Reduce(own, want)
            mine = mine if me == 0 else want
    good = comm.allreduce(int(np.array_equal(mine, want)), MPI.MIN)
    if me == 0:
        print(collective, name, "equal" if good else "DIFFERENT")
"""


def equal_to_mpi(ranks: int, folder: Path) -> dict[tuple[str, str], bool]:
    """Return which algorithms give what MPI's own collectives do, on as many ranks."""
    script = folder / "chunks.py"
    script.write_text(SCRIPT, encoding="utf-8")
    out = mpiexec(ranks, [sys.executable, "-W", "ignore", "-m", "mpi4py", str(script)], HANG)
    words = [line.split() for line in out.splitlines()]
    return {(c, a): verdict == "equal" for c, a, verdict in words}
