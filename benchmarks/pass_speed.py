"""Measure the time of passes per operation: ``python benchmarks/pass_speed.py``.

The programs have 2,000 and 20,000 operations: layers of gradients and computations. The table has
the CPU time per operation, its ratio to that of xDSL's own canonicalize in the same run, and the
ratio between the times per operation of the two programs.
"""

import sys
import time
from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.canonicalize import CanonicalizePass

import collir
from collir.tools.api import context, pass_pipeline

PASSES = (
    "canonicalize",
    "fuse",
    "reorder-by-hierarchy",
    "bucket{rule=earliest}",
    "bucket",
    "decompose",
    "overlap",
)
SIZES = (2000, 20000)
SHAPES = ("6400, 1600", "6400", "1600, 6400", "1600", "1600, 1600", "1600")
HEAD = """\
machine @cluster {
  device { compute f32 = 100 TFLOP/s; memory = 4096 GiB @ 3 TB/s }
  level node[8] { port = 50 GB/s, latency = 20 us }
  level gpu[8]  { port = 450 GB/s, latency = 3 us }
}
mesh @m on @cluster { data = node:8 * gpu:8 }
"""


def program(operations: int) -> str:
    """Return a backward pass with a computation and a reduction for each gradient."""
    count = operations // 2
    types = [SHAPES[number % len(SHAPES)] for number in range(count)]
    arguments = ", ".join(
        f"%g{n}: f32[{shape}] partial(sum: data)" for n, shape in enumerate(types)
    )
    lines = [f"func @backward({arguments})"]
    lines.append(f"    -> ({', '.join(f'f32[{shape}]' for shape in types)}) on @m {{")
    for number in range(count):
        before = f", %c{number - 1}" if number else ""
        lines.append(f"  %c{number} = compute %g{number}{before} flops 1e10")
        lines.append(f"  %r{number} = all_reduce %c{number} over data")
    lines.append(f"  return {', '.join(f'%r{number}' for number in range(count))}")
    return HEAD + "\n".join(lines) + "\n}\n"


def seconds(module: ModuleOp, passes: str) -> float:
    """Return the CPU seconds of a pass on a copy of a module, without verification."""
    copy = module.clone()
    [pass_] = pass_pipeline(passes).passes if passes else [CanonicalizePass()]
    start = time.process_time()
    pass_.apply(context(), copy)
    return time.process_time() - start


def rows(sizes: Sequence[int] = SIZES) -> list[list[str]]:
    """Return the rows of the table."""
    modules = [collir.parse(program(size)) for size in sizes]
    operations = [sum(1 for _ in module.walk()) for module in modules]
    table: list[list[str]] = []
    own: list[float] = []
    for passes in ("", *PASSES):
        times = [
            seconds(module, passes) / count
            for module, count in zip(modules, operations, strict=True)
        ]
        own = own or times
        table.append(
            [
                passes or "xDSL's canonicalize",
                *(f"{1e6 * value:.0f} us" for value in times),
                f"{times[-1] / own[-1]:.1f}x",
                f"{times[-1] / times[0]:.2f}x",
            ]
        )
    return table


def main() -> int:
    """Print the table, and return the exit status."""
    head = ["pass", *(f"{size} operations" for size in SIZES), "of xDSL's", "for ten times as many"]
    for row in [head, *rows()]:
        print("  ".join(f"{cell:>22}" if n else f"{cell:24}" for n, cell in enumerate(row)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
