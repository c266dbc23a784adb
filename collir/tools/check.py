"""``collir check FILE``: whether an algorithm of another tool implements its collective."""

import argparse

from collir.algorithms.checking import CAPACITY
from collir.algorithms.collectives import COLLECTIVES


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", help="an algorithm in MSCCL's XML, or a plan in MSCCL++'s JSON")
    parser.add_argument(
        "--collective", choices=COLLECTIVES, help="what it implements (default: as the file says)"
    )
    parser.add_argument(
        "--capacity", type=int, default=CAPACITY, metavar="N",
        help=f"the messages that a connection holds (default: {CAPACITY}, as NCCL's)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    # Imported here because the tools start fast.
    from collir.tools import check_driver

    return check_driver.run(options)
