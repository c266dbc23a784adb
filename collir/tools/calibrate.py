"""``collir calibrate MACHINE --from FILE``: a machine fitted to measurements.

docs/calibration.md has examples, and explains the fit.
"""

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "machine",
        nargs="?",
        help="a .coll file with the machine, or @NAME of a shipped one; with --device, by default "
        "a machine of one device",
    )
    parser.add_argument(
        "--device",
        action="store_true",
        help="fit the device to times of computations, measured here with jax or taken --from FILE",
    )
    parser.add_argument(
        "--dtypes",
        metavar="TYPES",
        help="the element types that --device times (default: f32,f64 on a CPU, else f32,bf16,f16)",
    )
    parser.add_argument(
        "--from",
        dest="files",
        action="append",
        default=[],
        metavar="FILE[,over=LEVELS][,collective=NAME]",
        help="measurements of nccl-tests, OSU, IMB or our own; again for more files. over says "
        "which ranks, as in over=node:2*gpu:8; collective what was measured, where neither the "
        "file nor its name does; - is standard input",
    )
    parser.add_argument("--run", action="store_true", help="measure here, with mpiexec")
    parser.add_argument(
        "--seconds",
        type=float,
        help="how long --run or --device measures (default: 60)",
        metavar="N",
    )
    parser.add_argument("--save", metavar="FILE", help="write what --run or --device measured")
    parser.add_argument(
        "--machine", dest="name", metavar="NAME", help="the machine, where the file has several"
    )
    parser.add_argument(
        "--model", help="auto (default: nccl on machines of GPUs), nccl, alpha-beta or p2"
    )
    parser.add_argument(
        "--algorithm",
        help="how the collectives ran: auto (default: the library's choice), cheapest, runtime "
        "(MPICH's), or one by name",
    )
    parser.add_argument("--order", help="order of ranks: auto (default), written or hardware")
    parser.add_argument(
        "--least", type=int, default=1, metavar="BYTES", help="leave out smaller buffers"
    )
    parser.add_argument("--most", type=int, metavar="BYTES", help="leave out larger buffers")
    parser.add_argument(
        "--held-back",
        type=float,
        default=0.2,
        metavar="PART",
        help="the part of the points that is predicted only (default: 0.2)",
    )
    parser.add_argument(
        "--fixed",
        action="append",
        default=[],
        metavar="NUMBER",
        help="a number to keep, such as node.latency; again for more",
    )
    parser.add_argument("-o", dest="output", metavar="FILE", help="write the machine there")
    parser.add_argument("--report", metavar="FILE", help="write the table there, not to stderr")
    parser.add_argument(
        "--html", metavar="FILE", help="a page of the numbers, the machine and all times"
    )
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    # Imported here because it is slow and the tools start fast.
    from collir.tools import calibrate_driver

    return calibrate_driver.run(options)
