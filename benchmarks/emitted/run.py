"""Compare the C that collir prints with C by hand, in one program and on the same buffers.

    python benchmarks/emitted/run.py [RANKS ...]

Each line is a function of ``by_hand.c`` and the same one printed by ``-t mpi``. Runs take turns;
a time is that of the slowest rank, the best of the runs. Results are compared. Where there are more
ranks than cores, times are those of the whole machine, for both.
"""

import sys
import tempfile
from pathlib import Path

import collir
from collir.tools.mpi_run import compile_c, mpiexec

HERE = Path(__file__).parent
FLAGS = ("-O3", "-march=native", "-std=c99", "-D_POSIX_C_SOURCE=199309L")
MB = 1_000_000
CASES = 5
"""The functions of main.c; each has a process of its own, so that its memory is not another's."""

PROGRAM = """
machine @host {{ level core[{ranks}] {{ port = 8 GB/s, latency = 1 us, fabric = memory }} }}
mesh @m on @host {{ p = core:{ranks} }}

// The blocks of a matrix, transposed over all ranks.
func @pencil(%x: f32[{side}@p, {side}]) -> f32[{side}@p, {side}] on @m {{
  %y = all_to_all %x over p dim 0 to 1
  %r = transpose %y order [1, 0]
  return %r
}}

// The sum of a buffer, in two steps.
func @sum(%x: f32[{sum}] partial(sum: p)) -> f32[{sum}] on @m {{
  %y = reduce_scatter %x over p dim 0
  %r = all_gather %y over p dim 0
  return %r
}}

// The same for columns of a matrix, whose blocks lie in rows.
func @columns(%x: f32[1000, {columns}] partial(sum: p)) -> f32[1000, {columns}] on @m {{
  %y = reduce_scatter %x over p dim 1
  %r = all_gather %y over p dim 1
  return %r
}}

// The rows of a block between the last one above and the first one below; zeros at the ends.
func @halo(%x: f32[{ranks}@p, {rows}, 1000]) -> f32[{ranks}@p, {padded}, 1000] on @m {{
  %last = pad %x dim 1 low -{cut}
  %first = pad %x dim 1 high -{cut}
  %above = shift %last over p by 1 open
  %below = shift %first over p by -1 open
  %r = concat %above, %x, %below dim 1
  return %r
}}

// A number.
func @small(%x: f32[2] partial(sum: p)) -> f32[2] on @m {{
  %r = all_reduce %x over p
  return %r
}}
"""


def sizes(ranks: int) -> dict[str, int]:
    """Return the sizes of the programs: 57 MB, 100 MB and 20 MB a rank."""
    side = int((57 * MB / 4 * ranks) ** 0.5) // (2 * ranks) * 2 * ranks
    count = 25 * MB // ranks * ranks
    return {
        "ranks": ranks,
        "side": side,
        "sum": count,
        "columns": count // 1000 // ranks * ranks,
        "rows": 5000,
        "padded": 5002,
        "cut": 4999,
    }


def main() -> None:
    for ranks in [int(x) for x in sys.argv[1:]] or [2, 8]:
        known = sizes(ranks)
        module = collir.parse(PROGRAM.format(**known))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "emitted.c").write_text(collir.emit(module, "mpi"))
            (folder / "emitted.h").write_text(collir.emit(module, "mpi{header=true}"))
            words = [f"-D{key.upper()}={value}" for key, value in known.items()]
            sources = [str(folder / "emitted.c"), str(HERE / "by_hand.c")]
            program = folder / "program"
            compile_c(HERE / "main.c", program, [*FLAGS, *words, f"-I{folder}", *sources])
            print(f"{ranks} ranks    emitted      by hand    ratio", flush=True)
            for number in range(CASES):
                print(compared(program, ranks, number), flush=True)


def compared(program: Path, ranks: int, number: int) -> str:
    """Return the line of a function: of processes in which one or the other is the first, as what
    touches memory first may get slower pages."""
    name, best = "", [float("inf")] * 2
    for first in (0, 1, 0, 1):
        name, *times = mpiexec(ranks, [str(program), str(number), str(first)], 300).split()
        best = [min(pair) for pair in zip(best, map(float, times), strict=True)]
    ours, theirs = best
    return f"{name:<8} {ours * 1e3:9.4f} ms {theirs * 1e3:9.4f} ms   {ours / theirs:6.2f}"


if __name__ == "__main__":
    main()
