"""``collir compare MACHINE --from FILE``: measured times beside predicted times."""

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("machine", help="a .coll file with the machine, or @NAME of a shipped one")
    parser.add_argument(
        "--from",
        dest="files",
        action="append",
        required=True,
        metavar="FILE[,over=LEVELS][,collective=NAME]",
        help="measurements of nccl-tests, OSU, IMB or collir, as for collir calibrate; again for "
        "more files",
    )
    parser.add_argument(
        "--machine", dest="name", metavar="NAME", help="the machine, where the file has several"
    )
    for name, description in (
        ("model", "alpha-beta, nccl or p2"),
        ("algorithm", "how the collectives ran: cheapest, runtime (MPICH's) or one by name"),
        ("order", "order of the ranks: written or hardware"),
    ):
        parser.add_argument(f"--{name}", default="auto", help=f"{description} (default: auto)")
    parser.add_argument(
        "--html", metavar="FILE", help="a page of all times: a chart with filters, and tables"
    )
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    # Imported here because it is slow and the tools start fast.
    from collir.tools import compare_driver

    return compare_driver.run(options)
