"""Measure what layers cost the tool: ``python benchmarks/layers.py``.

The programs have a loop over layers forward and one backward (ZeRO-3), and a pipeline of stages in
a loop over microbatches. The table has the CPU milliseconds of
every stage of the tool for 2, 96 and 96,000 iterations, and for 96 that are unrolled, which is what
the tool would have to do without loops.
"""

import gc
import logging
import time
from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.programs.simulate import simulate
from collir.ir.functions import functions_of
from collir.ir.verification import verify
from collir.semantics.validation.validate import compare
from collir.syntax.reader import read
from collir.targets.reports.text import table as lines

COUNTS = (2, 96, 96_000)
HEAD = """\
machine @cluster {
  device { compute f32 = 19.5 TFLOP/s; memory = 4096 GiB @ 1.5 TB/s }
  level node[2] { port =   8 GB/s, latency = 20 us }
  level gpu[4]  { port = 270 GB/s, latency =  3 us }
}
"""
LAYERS = """
mesh @m on @cluster { data = node:2 * gpu:4 }
func @f(%x: f32[64], %w: f32[COUNT, 64@data]) -> (f32[64], f32[COUNT, 64@data]) on @m {
  %y, %inputs = repeat COUNT carry(%h = %x) slice(%w = %w) {
    %whole = all_gather %w over data dim 0
    %z = add %h, %whole
    %o = compute %z flops 1e6
    yield %o, %h
  }
  %g, %gradients = repeat COUNT carry(%g = %y) slice(%w = %w, %h = %inputs) reverse {
    %again = barrier %w
    %whole = all_gather %again over data dim 0
    %b = compute %g, %whole, %h flops 2e6
    %p = mask %b over data op sum
    %d = reduce_scatter %p over data dim 0
    yield %b, %d
  }
  return %g, %gradients
}
"""
STAGES = """
mesh @m on @cluster { stage = node:2, data = gpu:4 }
func @f(%x: f32[COUNT, 64] root(stage)) -> f32[COUNT, 64] at(stage = 1) on @m {
  %y = repeat COUNT slice(%m = %x) {
    %a = compute %m flops 1e6
    %b = send %a over stage from 0 to 1
    %c = compute %b flops 2e6
    yield %c
  }
  return %y
}
"""


def milliseconds(work: Callable[[], object], tries: int = 5) -> float:
    """Return the least CPU time of some work in several tries."""
    times: list[float] = []
    for _ in range(tries):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def stages(text: str, module: ModuleOp) -> dict[str, float]:
    """Return the CPU milliseconds of every stage of the tool on a program.

    Args:
        text: the program as it is written.
    """
    passes = "decompose{strategy=rs-ar-ag},overlap"
    changed = collir.run_passes(module.clone(), passes)
    before, after = functions_of(module)[0], functions_of(changed)[0]
    found = {
        "parse": milliseconds(lambda: read(text)),
        "verify": milliseconds(lambda: verify(module)),
        "simulate": milliseconds(lambda: simulate(module)[0].time),
        "prove": milliseconds(lambda: compare(before, after, memory=0)),
        passes: milliseconds(lambda: collir.run_passes(module.clone(), passes), 3),
    }
    for target in ("mpi", "nccl", "mpi4py"):
        found[f"-t {target}"] = milliseconds(lambda name=target: collir.emit(module, name))
    return found


def table(name: str, program: str) -> str:
    """Return the table of a program whose number of iterations is ``COUNT``."""
    columns = [f"{count:,}" for count in COUNTS] + ["96 unrolled"]
    texts = [HEAD + program.replace("COUNT", str(count)) for count in COUNTS]
    modules = [read(text) for text in texts]
    modules.append(collir.run_passes(modules[1].clone(), "unroll"))
    texts.append(collir.emit(modules[-1]))
    figures = [stages(text, module) for text, module in zip(texts, modules, strict=True)]
    rows = [[stage, *(f"{found[stage]:.1f}" for found in figures)] for stage in figures[0]]
    return "\n".join([f"{name}, CPU ms", *lines([" ", *columns], rows, left=1), ""])


def main() -> None:
    logging.getLogger("collir").setLevel(logging.ERROR)  # no remarks
    print(table("ZeRO-3 over layers", LAYERS))
    print(table("a pipeline over microbatches", STAGES))


if __name__ == "__main__":
    main()
