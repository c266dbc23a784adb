"""``collir compare``: measurements beside predictions."""

import argparse

from collir.tools.shell import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "subjects",
        nargs="+",
        metavar="MACHINE | TRACE ... PROGRAM",
        help="with --from: a .coll file with the machine, or @NAME of a shipped one; else traces "
        "of one or all ranks, and the .coll file of the program that ran",
    )
    measured = parser.add_argument_group("measurements of collectives")
    measured.add_argument(
        "--from",
        dest="files",
        action="append",
        metavar="FILE[,over=LEVELS][,collective=NAME]",
        help="measurements of nccl-tests, OSU, IMB or collir, as for collir calibrate; again for "
        "more files",
    )
    measured.add_argument(
        "--machine", dest="name", metavar="NAME", help="the machine, where the file has several"
    )
    traced = parser.add_argument_group("traces of programs")
    traced.add_argument("-p", "--passes", default="", metavar="PASSES",
                        help="passes that run first, as in collopt -p")  # fmt: skip
    traced.add_argument("--function", metavar="NAME", help="the function that ran (default: @step)")
    traced.add_argument(
        "--calibrate", metavar="FILE", help="write the machine that explains the trace"
    )
    for name, description in (
        ("model", "alpha-beta, nccl or p2"),
        ("algorithm", "how the collectives ran: cheapest, runtime (MPICH's) or one by name"),
        ("order", "order of the ranks: written or hardware"),
    ):
        parser.add_argument(f"--{name}", default="auto", help=f"{description} (default: auto)")
    parser.add_argument(
        "--html", metavar="FILE", help="a page of it: charts with filters, timelines, and tables"
    )
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    # Imported here because they are slow and the tools start fast.
    if options.files:
        from collir.tools import compare_driver

        if len(options.subjects) > 1 or options.passes or options.function or options.calibrate:
            raise UsageError("with --from there is a machine alone, and no program")
        options.machine = options.subjects[0]
        return compare_driver.run(options)
    from collir.tools import trace_driver

    if len(options.subjects) < 2:
        raise UsageError("compare takes a machine and --from FILE, or traces and a program")
    if options.name:
        raise UsageError("--machine goes with --from")
    return trace_driver.run(options)
