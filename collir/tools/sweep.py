"""``collir sweep MODEL``: the fastest way to run a training step on a machine."""

import argparse
import gc
import sys

from collir.ir.diagnostics import DiagnosticError, Sources, render_all
from collir.synthesis.sweeping.space import SCHEDULES
from collir.tools.search_subjects import at_least_one
from collir.tools.shell import BAD_INPUT

EPILOG = """\
MODEL is a .coll file with a training step: an `auto` function that takes the gradient of a function
with layers. Its types say which dimension each axis divides (`%words: i32[batch@data, seq]`); the
sweep chooses the sizes of the axes, and on which levels of the machine they are. One more axis, for
stages, needs no mention.

A configuration says, for a number of devices,
  - the size of each axis at each level of the machine (data, tensor, ... parallelism),
  - the number of stages, their schedule and chunks, and the microbatches,
  - whether the backward pass computes layers again (recompute),
  - what is divided over the axis of the batch: nothing, states of the optimiser (ZeRO-1),
    sums of gradients too (ZeRO-2), or parameters too (ZeRO-3),
  - whether what goes from layer to layer is divided along the sequence, over the axes that divide
    weights (sequence parallelism); it is, where the words of a sequence divide.

Every configuration gets an estimate of its time and memory. Those that may be among the best are
compiled and simulated, until no other one can be faster by its estimate. All times that are listed
are simulated.

examples:
  collir sweep examples/models/sweep.coll --devices 8
  collir sweep examples/models/sweep.coll --machine @dgx_h100 --devices 16..64 --global-batch 256
  collir sweep examples/models/sweep.coll --devices 16 --degree model=1,2,4 -o best.coll
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add = parser.add_argument
    add("program", metavar="MODEL", help="a .coll file with a training step")
    add("--function", default="", metavar="NAME", help="the training step, if there are several")
    add(
        "--machine",
        action="append",
        metavar="FILE|@NAME",
        help="the machine, with as many outermost children as needed (default: the model's); "
        "again, or a file with several, to compare machines",
    )
    add("--devices", metavar="N", help="8, a list 8,16 or a range 8..64 (default: the machine's)")
    add(
        "--global-batch",
        type=at_least_one,
        metavar="N",
        help="the batch of all devices (default: the model's)",
    )
    add("--memory", metavar="SIZE", help="the memory of a device, such as `40 GB`")
    add(
        "--set-size", action="append", default=[], metavar="NAME=N", help="a parameter of the model"
    )
    add(
        "--degree",
        action="append",
        default=[],
        metavar="AXIS=N,...",
        help="the sizes that an axis may have (default: any)",
    )
    add("--microbatch", metavar="N,...", help="rows of a device (default: powers of two)")
    add(
        "--schedules",
        default="1f1b,interleaved",
        metavar="NAME,...",
        help=f"of {', '.join(SCHEDULES)} (default: 1f1b,interleaved)",
    )
    add("--chunks", default="2,4", metavar="N,...", help="chunks of a stage (default: 2,4)")
    add(
        "--stages",
        default="even,uneven",
        metavar="even,uneven",
        help="uneven: with a layer less at some where stages do not divide the layers "
        "(default: both)",
    )
    add(
        "--recompute",
        default="none,attention,full",
        metavar="WHAT,...",
        help="what the backward pass computes again: none, attention (that is no kernel), calls of "
        "@NAME or @NAME+@OTHER in layers, or full (default: none,attention,full)",
    )
    add("--sequence", default="divided", metavar="whole,divided", help="(default: divided)")
    add("--zero", default="0,1,2,3", metavar="STAGE,...", help="(default: 0,1,2,3)")
    add("--pipeline-axis", default="pipe", metavar="AXIS", help="(default: pipe)")
    add("--top", type=at_least_one, default=5, metavar="N", help="how many to list (default: 5)")
    add("--pareto", action="store_true", help="list the front of time against memory too")
    add("--explain", type=at_least_one, metavar="N", help="what bounds number N, and one change")
    add(
        "--compare",
        nargs=2,
        type=at_least_one,
        metavar=("N", "M"),
        help="how two of the list differ",
    )
    add(
        "--measure",
        type=at_least_one,
        metavar="N",
        help="run the first N on ranks, on this computer",
    )
    add("--engine", default="mpi4py", metavar="NAME", help="mpi4py or mpi (default: mpi4py)")
    add("--repeats", type=at_least_one, default=3, metavar="N", help="runs of each (default: 3)")
    add(
        "--mfu",
        choices=("palm", "causal"),
        default="palm",
        help="palm: attention counts in full; causal: without what kernels skip (default: palm)",
    )
    add(
        "--sort",
        default="rank",
        metavar="COLUMN",
        help="order the tables by a column of the CSV, such as memory_bytes (default: rank)",
    )
    add(
        "--settings",
        metavar="NAME",
        help="how the fastest is set up in megatron, torch, jax, torchtitan, deepspeed or nemo",
    )
    add("--settings-output", metavar="FILE", help="write that to FILE, and not behind the tables")
    add("--html", metavar="FILE", help="a page of all configurations, and those that are listed")
    add("--plot", metavar="FILE", help="draw time against memory, as SVG")
    add("--workers", type=at_least_one, metavar="N", help="processes (default: one for each core)")
    add(
        "--executor",
        metavar="dask://HOST:PORT|mpi",
        help="workers that compile and simulate: those of the scheduler of a Dask cluster, or the "
        "other ranks of the MPI job that this command is (mpiexec -n 5 collir sweep ...)",
    )
    add("--time-limit", type=float, metavar="SECONDS", help="list the best so far after this")
    add("--checkpoint", metavar="FILE", help="write down now and then how far the search is")
    add("--resume", metavar="FILE", help="go on from there; only read a file that you trust")
    add("--progress", action=argparse.BooleanOptionalAction, help="say how far the search is")
    add("--csv", metavar="FILE", help="write what is listed as CSV")
    add("--json", action="store_true", help="print JSON")
    add("-o", "--output", metavar="FILE", help="write the program of the best configuration")


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    # Imported here because they are slow and the tools start fast.
    sources = Sources()
    try:
        from collir.tools import sweep_driver

        gc.set_threshold(50_000, 20, 100)  # programs are large, and hardly any of it is garbage
        return sweep_driver.run(options, sources)
    except DiagnosticError as error:
        sys.stderr.write(render_all(error.diagnostics, sources))
        return BAD_INPUT
