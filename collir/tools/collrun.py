"""collrun: run the functions of a program and check their results.

The numpy engine holds every device's buffer and compares the result with a run of the function
on one device. The mpi engine compiles the emitted C, runs it on real ranks, and compares every
rank's buffers with the numpy engine's; the mpi4py engine does so with the emitted Python, and the
torch engine with the emitted torch, on processes with gloo. The jax engine runs the emitted jax on
CPU devices, and compares likewise. Models that round run in f64; with jax and torch, so does every
function that rounds.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import collir
from collir.ir.diagnostics import Sources
from collir.tools import completion
from collir.tools.shell import CommandParser, function_name, run_tool


def _seed(text: str) -> int:
    """Return the seed for numpy's generators, an integer that is not negative."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer of at least 0")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="collrun", description="Runs the functions of a program and checks what they compute."
    )
    parser.add_argument("file", type=Path, help="a .coll or .mlir file")
    parser.add_argument(
        "--engine",
        choices=["numpy", "local", "mpi", "mpi4py", "jax", "torch"],
        default="numpy",
        help="what runs the functions: numpy (default), C or Python on MPI ranks, jax on CPU "
        "devices, or torch on processes with gloo",
    )
    parser.add_argument(
        "--function",
        type=function_name,
        metavar="NAME",
        action="append",
        default=[],
        help="run this one only; may be given several times (default: all)",
    )
    parser.add_argument("-p", "--passes", default="", help="passes to run first, as for collopt")
    parser.add_argument(
        "-n", type=int, metavar="RANKS", help="run the functions on meshes of this many devices"
    )
    parser.add_argument("--seed", type=_seed, default=0, help="seed of the inputs (default: 0)")
    parser.add_argument(
        "--input",
        metavar="ARG=FILE.npy",
        action="append",
        default=[],
        help="the global tensor of an argument, instead of small random numbers; or a folder with "
        "ARG.npy for each argument, or an .npz file with arrays of these names",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        help="write the global results there, as FUNCTION.RESULT.npy, where RESULT is the name of "
        "the result",
    )
    parser.add_argument(
        "--set-size",
        metavar="[OLD=]NEW",
        action="append",
        default=[],
        help="replace dimensions of size OLD (default: the largest), or the value of a size "
        "parameter of the functions, by NEW, before the passes",
    )
    parser.add_argument(
        "--time",
        action="store_true",
        help="with --engine mpi or mpi4py: print the best time of several runs beside the "
        "predicted one",
    )
    parser.add_argument("--repeats", metavar="N", type=int, help="runs for --time (default: 10)")
    parser.add_argument("--debug", action="store_true", help="show tracebacks of internal errors")
    parser.add_argument("--version", action="version", version=f"collrun {collir.__version__}")
    if completion.asked():
        from collir.tools.universe import known_passes

        completion.complete(parser, passes=completion.pass_list(known_passes()))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sources = Sources()

    def work() -> int:
        options = _parser().parse_args(words)
        # Imported here because it is slow and the tools start fast.
        from collir.tools.collrun_driver import run

        return run(options, sources)

    return run_tool("collrun", sources, "--debug" in words, work)


def script() -> None:
    """Run the console script."""
    sys.exit(main())
